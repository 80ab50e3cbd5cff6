"""Calls of the gRPC API as requests: the path of a method and the bytes of a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from goqueue.client.errors import BrokerRefused
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.steps import Steps
from goqueue.model.errors import GoQueueError

M = TypeVar("M", bound=Message)
T = TypeVar("T")

SERVICES = "/goqueue.v1."


class NotInGrpc(GoQueueError):
    """An operation that the gRPC API does not have."""

    code = "not_in_grpc"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not part of the gRPC API; use goqueue.Client, over HTTP.")


def call(
    method: str,
    message: Message,
    answer: type[M],
    read: Callable[[M], T],
    *,
    repeat: Repeat = Repeat.IDEMPOTENT,
    wait_ms: int = 0,
) -> Request[T]:
    """A call of a method such as `TopicService/GetTopic`."""

    def decode(data: bytes) -> T:
        try:
            return read(answer.FromString(data))
        except DecodeError as error:
            raise BrokerRefused(
                f"The response has an unexpected format ({error}); is this the address of a "
                "GoQueue broker of this version?"
            ) from error

    return Request(
        "POST",
        SERVICES + method,
        decode,
        body=message.SerializeToString(),
        repeat=repeat,
        wait_ms=wait_ms,
    )


def nothing(_: Message) -> None:
    """Decodes responses without content."""


@dataclass(frozen=True, slots=True)
class Series(Request[T]):
    """Several calls that a transport makes as if they were one request."""

    steps: Callable[[], Steps[Any]] = field(kw_only=True)


def series(steps: Callable[[], Steps[T]]) -> Request[T]:
    def unread(_: bytes) -> T:
        raise AssertionError("a series has no response of its own")

    return Series("POST", SERVICES, unread, steps=steps)
