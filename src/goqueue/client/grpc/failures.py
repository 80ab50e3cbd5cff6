"""Maps failed calls to the exceptions that the broker itself raises.

The details of a status contain the code of the error; the class with that code is raised with the
broker's message, as by the HTTP client. Statuses without details come from the library, or from
something else than a broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from goqueue.client.errors import BrokerRefused, BrokerUnready, TlsFailed
from goqueue.client.http.failures import (
    RETRY_AFTER_SECONDS_MAX,
    Failure,
    answer_late,
    answer_lost,
    error_of_code,
    unreachable,
)
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.grpc.messages import messages_pb2

DETAILS_KEY = "grpc-status-details-bin"
# Values of google.rpc.Code. The library's own enumeration is not imported here.
CANCELLED, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 1, 4, 12, 13, 14
RESOURCE_EXHAUSTED, UNAUTHENTICATED, PERMISSION_DENIED = 8, 16, 7
# What was refused with one of these was not executed, and may succeed later.
_PASSING = frozenset({RESOURCE_EXHAUSTED, UNAVAILABLE})
_UNCERTAIN_CODES = frozenset(
    {errors.RequestTimedOut.code, errors.StorageFailed.code, errors.NotEnoughReplicas.code}
)
# How the library says that it has no connection, so that nothing was sent.
_NOT_SENT = ("failed to connect", "connections to all backends failing", "dns resolution failed",
             "connection refused", "name resolution", "connection attempt timed out")  # fmt: skip
_TLS = ("ssl_error", "certificate_verify_failed", "certificate verify failed", "tls handshake",
        "handshake failed", "handshaker", "peer name", "no match found for server")  # fmt: skip
# A passing state of a handshake: the broker restarts.
_TLS_PASSING = ("connection reset", "socket closed", "connection refused", "handshake timed out")


class Ended(NamedTuple):
    """How a call ended: the number of its status, its text, and the bytes of its details."""

    code: int
    text: str
    details: bytes | None = None


def details_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> bytes | None:
    """The details in the metadata at the end of a call."""
    for key, value in metadata or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            return value
    return None


def failure_of(ended: Ended, address: str, seconds: float | None) -> Failure:
    """The failure that the end of a call means; `seconds` was its deadline."""
    status = status_pb2.Status()
    try:
        status.ParseFromString(ended.details or b"")
    except DecodeError:
        status.Clear()
    info, wait_seconds = error_details_pb2.ErrorInfo(), 0.0
    for detail in status.details:
        retry = error_details_pb2.RetryInfo()
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            wait_seconds = retry.retry_delay.ToMilliseconds() / 1000
    if not info.reason:
        return _failure_of_library(ended, address, seconds)
    is_passing = ended.code in _PASSING
    error = error_of_code(
        info.reason,
        status.message or ended.text,
        is_retryable=is_passing or info.metadata.get("retryable") == "true",
    )
    return Failure(
        error,
        is_passing=is_passing or info.reason in _UNCERTAIN_CODES,
        is_uncertain=info.reason in _UNCERTAIN_CODES,
        wait_seconds_min=min(wait_seconds, RETRY_AFTER_SECONDS_MAX),
    )


def error_of(part: messages_pb2.Error) -> GoQueueError:
    """The exception for a part of a request."""
    return error_of_code(part.reason, part.message, is_retryable=part.retryable)


def _failure_of_library(ended: Ended, address: str, seconds: float | None) -> Failure:
    """The failure of a call that no broker has answered."""
    text = ended.text.lower()
    if ended.code == UNAVAILABLE:
        if any(one in text for one in _TLS) and not any(one in text for one in _TLS_PASSING):
            failed = TlsFailed(
                f"The TLS handshake with {address} failed ({_short(ended.text)}). Check the name "
                "and the certificate of its authority (ca_file), and whether it requires a "
                "certificate of the client."
            )
            return Failure(failed, is_passing=False)
        if any(one in text for one in _NOT_SENT):
            return unreachable(address, _short(ended.text))
        return answer_lost(address, _short(ended.text))
    if ended.code == DEADLINE_EXCEEDED:
        return answer_late(address, seconds or 0)
    if ended.code == CANCELLED:
        return answer_lost(address, "the call was cancelled")
    if ended.code == UNIMPLEMENTED:
        refused = BrokerRefused(
            f"{address} does not know this call ({_short(ended.text)}); is it the gRPC address of "
            "a GoQueue broker of this version?"
        )
        return Failure(refused, is_passing=False)
    if ended.code == RESOURCE_EXHAUSTED:  # a response that is too large, or a limit of a proxy
        return Failure(BrokerRefused(f"{address}: {_short(ended.text)}."), is_passing=False)
    if ended.code == INTERNAL:
        return Failure(
            BrokerUnready(f"{address} failed: {_short(ended.text)}."),
            is_passing=True,
            is_uncertain=True,
        )
    refused = BrokerRefused(
        f"{address} refused the call with status {ended.code}: {_short(ended.text)}."
    )
    return Failure(refused, is_passing=False)


def _short(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:300] or "no reason given"
