"""An executor's connection to an aggregator that may still be starting."""

import grpc
from fedscale.cloud.channels import job_api_pb2_grpc
from fedscale.cloud.channels.channel_context import ClientConnections
from overrides import overrides

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.transport import endpoint
from fedscale_ext.transport.signed_grpc import SignedChannel

_RETRY_MS = 100, 500  # first and longest pause between two attempts; gRPC's own are 1 s and 2 min


class Connection(ClientConnections):
    """FedScale's connection, which notices within half a second that the aggregator listens, and signs."""

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config.fedscale.ps_ip, config.fedscale.ps_port)
        self._config = config
        self._signer = endpoint.signer(config)
        self._credentials = endpoint.channel_credentials(config)

    @overrides
    def connect_to_server(self) -> None:
        """Open the channel; the first call on it waits for the aggregator if it is told to."""
        first, longest = _RETRY_MS
        options = [
            *endpoint.limits(self._config),
            ("grpc.initial_reconnect_backoff_ms", first),
            ("grpc.max_reconnect_backoff_ms", longest),
            ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
        ]
        address = endpoint.address(self._config)
        if self._credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, self._credentials, options)
        rank, most_mb = self._config.fedscale.this_rank, self._config.job.max_message_mb
        self.stub = job_api_pb2_grpc.JobServiceStub(SignedChannel(self.channel, self._signer, rank, most_mb))

    def reconnect(self) -> None:
        """Leave a connection that has gone silent: calls on it end as cancelled, later ones take a new one."""
        silent = self.channel
        self.connect_to_server()
        silent.close()
