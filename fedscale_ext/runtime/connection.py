"""An executor's connection to an aggregator that may still be starting."""

import grpc
from fedscale.cloud.channels import job_api_pb2_grpc
from fedscale.cloud.channels.channel_context import MAX_MESSAGE_LENGTH, ClientConnections
from overrides import overrides

_RETRY_MS = 100, 500  # first and longest pause between two attempts; gRPC's own are 1 s and 2 min


class Connection(ClientConnections):
    """FedScale's connection, which notices within half a second that the aggregator listens."""

    @overrides
    def connect_to_server(self) -> None:
        """Open the channel; the first call on it waits for the aggregator if it is told to."""
        first, longest = _RETRY_MS
        self.channel = grpc.insecure_channel(
            f"{self.aggregator_address}:{self.base_port}",
            options=[
                ("grpc.max_send_message_length", MAX_MESSAGE_LENGTH),
                ("grpc.max_receive_message_length", MAX_MESSAGE_LENGTH),
                ("grpc.initial_reconnect_backoff_ms", first),
                ("grpc.max_reconnect_backoff_ms", longest),
                ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
            ],
        )
        self.stub = job_api_pb2_grpc.JobServiceStub(self.channel)

    def reconnect(self) -> None:
        """Leave a connection that has gone silent: calls on it end as cancelled, later ones take a new one."""
        silent = self.channel
        self.connect_to_server()
        silent.close()
