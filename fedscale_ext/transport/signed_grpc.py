"""Signatures on FedScale's gRPC service, with its messages and stubs unchanged.

The stamp travels in the call's metadata, the reply's MAC in its trailing metadata. Both sides pass to gRPC the
serialised bytes that they signed.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from fedscale_ext.transport.refused_messages import Refusals
from fedscale_ext.transport.signing import Gate, Refused, Signer, Stamp, is_body

_STAMP, _ANSWER = "fsx-stamp-bin", "fsx-answer-bin"
_DISTRUST = "CERTIFICATE_VERIFY"  # in gRPC's words for a handshake that failed for this reason
_MOST_STRANGERS = 16  # unverified calls that wait for their refusal at once
_REFUSAL = "refused"  # the only text that an unverified sender gets


def _identity(data: bytes) -> bytes:
    return data


class SignatureCheck(grpc.ServerInterceptor):
    """Passes only signed messages to the service, each from the executor that it names, and signs the replies."""

    def __init__(self, gate: Gate, refusals: Refusals) -> None:
        self._gate, self._refusals = gate, refusals
        self._strangers = threading.Semaphore(_MOST_STRANGERS)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Choose the handler of a call only by its metadata."""
        try:
            stamp = self._gate.admit(details.method, _value(details.invocation_metadata, _STAMP))
        except Refused as refused:
            self._refusals.note(str(refused))
            if not self._strangers.acquire(blocking=False):
                return None  # gRPC then turns the call away itself, and no thread is taken
            return grpc.stream_unary_rpc_method_handler(self._refuse)
        handler = continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(self._checked(handler, details.method, stamp), _identity, _identity)

    def _refuse(self, request: Any, context: Any) -> None:
        """Abort a call without reading its body."""
        self._strangers.release()
        context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)

    def _checked(self, handler: Any, method: str, stamp: Stamp) -> Callable[[bytes, Any], bytes]:
        def call(body: bytes, context: Any) -> bytes:
            try:
                request = _request(handler, stamp, body)
            except Refused as refused:
                self._refusals.note(str(refused))
                context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
            del body  # it may be large
            reply = handler.response_serializer(handler.unary_unary(request, context))
            context.set_trailing_metadata(((_ANSWER, self._gate.answer(method, stamp, reply)),))
            return reply

        return call


def _request(handler: Any, stamp: Stamp, body: bytes) -> Any:
    """Parse the message in a body; raise Refused if it is not the signed one."""
    if not is_body(stamp, body):
        raise Refused("its body is not the signed one")
    try:
        request = handler.request_deserializer(body)
    except Exception:  # protobuf's own, which depends on its implementation
        raise Refused("not a message of the service") from None
    if request.executor_id != str(stamp.executor):
        raise Refused("signed by another executor than it names")
    return request


class SignedChannel:
    """A channel for FedScale's stub that signs requests and verifies replies."""

    def __init__(self, channel: Any, signer: Signer, executor: int, max_message_mb: int) -> None:
        self._channel, self._signer, self._executor, self._max_message_mb = channel, signer, executor, max_message_mb

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: Any,
    ) -> Callable[..., Any]:
        """Return the function that calls a method of the service; stubs call this once per method.

        The function raises ConnectionError if the aggregator refuses this executor, if its reply is not signed, or if a
        message is too large. Network errors stay ``grpc.RpcError``.
        """
        inner = self._channel.unary_unary(method, _identity, _identity)

        def call(request: Any, **options: Any) -> Any:
            body = request_serializer(request)
            stamp, nonce = self._signer.stamp(method, self._executor, body, int(1000 * time.time()))
            try:
                reply, ended = inner.with_call(body, metadata=((_STAMP, stamp),), **options)
            except grpc.RpcError as error:
                self._explain(error)
                raise
            mac = _value(ended.trailing_metadata(), _ANSWER)
            if mac is None or not self._signer.is_answer(mac, method, nonce, reply):
                raise ConnectionError(
                    "a reply was not signed with this job's token: what answers is not its aggregator"
                )
            return response_deserializer(reply)

        return call

    def _explain(self, error: Any) -> None:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise ConnectionError(
                "the aggregator does not accept this executor: its token, number, clock or version of fedscale_ext "
                "differs; the aggregator's log says which"
            ) from None
        if _DISTRUST in str(error.details()):
            raise ConnectionError(
                "the certificate of what answers was made with another token, or by another authority than tls_ca: it "
                "is not this job's aggregator"
            ) from None
        if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            logging.error(f"{error.details()}")
            raise ConnectionError(
                f"a message is larger than max_message_mb={self._max_message_mb}, or memory is short; "
                "raise max_message_mb"
            ) from None


def _value(metadata: Any, key: str) -> bytes | None:
    """Return the one value of a key; None if there is none, or several."""
    values = [value for name, value in metadata or () if name == key]
    return values[0] if len(values) == 1 and isinstance(values[0], bytes) else None
