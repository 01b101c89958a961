"""An executor's connection to an aggregator that may still be starting."""

import grpc
from fedscale.cloud.channels import job_api_pb2_grpc
from fedscale.cloud.channels.channel_context import MAX_MESSAGE_LENGTH, ClientConnections
from overrides import overrides

_LOOK_SHARE = 1 / 3  # of a lease: after so much silence the connection is tested, and so long for the answer
_RETRY_MS = 100, 500  # first and longest pause between two attempts; gRPC's own are 1 s and 2 min


class Connection(ClientConnections):
    """FedScale's connection, which notices within half a second that the aggregator listens, and within a
    lease that it has gone without a word."""

    def __init__(self, address: str, port: str, lease_s: float) -> None:
        super().__init__(address, port)
        self._look_ms = max(100, int(1000 * _LOOK_SHARE * lease_s))

    @overrides
    def connect_to_server(self) -> None:
        """Open the channel; the first call on it waits for the aggregator if it is told to."""
        first, longest = _RETRY_MS
        self.channel = grpc.insecure_channel(
            f"{self.aggregator_address}:{self.base_port}",
            options=[
                ("grpc.max_send_message_length", MAX_MESSAGE_LENGTH),
                ("grpc.max_receive_message_length", MAX_MESSAGE_LENGTH),
                ("grpc.keepalive_time_ms", self._look_ms),
                ("grpc.keepalive_timeout_ms", self._look_ms),
                ("grpc.http2.max_pings_without_data", 0),  # any number
                ("grpc.initial_reconnect_backoff_ms", first),
                ("grpc.max_reconnect_backoff_ms", longest),
            ],
        )
        self.stub = job_api_pb2_grpc.JobServiceStub(self.channel)
