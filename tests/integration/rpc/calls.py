"""Clients of the gRPC API: the stubs of all services over one channel."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2_grpc

from goqueue.wire.grpc.messages import (
    ack_service_pb2_grpc,
    admin_service_pb2_grpc,
    consume_service_pb2_grpc,
    dead_letter_service_pb2_grpc,
    group_service_pb2_grpc,
    offset_service_pb2_grpc,
    publish_service_pb2_grpc,
    schedule_service_pb2_grpc,
    topic_service_pb2_grpc,
    transaction_service_pb2_grpc,
)
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.grpc.messages import topic_service_pb2 as topics

LISTENER = {"listeners.grpc": "127.0.0.1:0"}
SECONDS = 30.0  # for any answer


class Rpc:
    """One client."""

    def __init__(
        self,
        address: str,
        *,
        tls: grpc.ChannelCredentials | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        # Otherwise all clients of one process share a connection.
        alone = [("grpc.use_local_subchannel_pool", 1)]
        if tls is None:
            self.channel = grpc.insecure_channel(address, alone)
        else:
            self.channel = grpc.secure_channel(address, tls, alone)
        self.metadata = tuple(metadata)
        self.topics = topic_service_pb2_grpc.TopicServiceStub(self.channel)
        self.publishing = publish_service_pb2_grpc.PublishServiceStub(self.channel)
        self.consuming = consume_service_pb2_grpc.ConsumeServiceStub(self.channel)
        self.acks = ack_service_pb2_grpc.AckServiceStub(self.channel)
        self.offsets = offset_service_pb2_grpc.OffsetServiceStub(self.channel)
        self.groups = group_service_pb2_grpc.GroupServiceStub(self.channel)
        self.schedules = schedule_service_pb2_grpc.ScheduleServiceStub(self.channel)
        self.letters = dead_letter_service_pb2_grpc.DeadLetterServiceStub(self.channel)
        self.transactions = transaction_service_pb2_grpc.TransactionServiceStub(self.channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: Any, request: Any) -> Any:
        """The response to one request."""
        return method(request, timeout=SECONDS, metadata=self.metadata, wait_for_ready=True)

    def create(self, topic: str, partitions: int = 1) -> None:
        self.call(
            self.topics.CreateTopic, topics.CreateTopicRequest(name=topic, partitions=partitions)
        )

    def publish(self, topic: str, *values: bytes) -> publishing.PublishReport:
        request = publishing.PublishRequest(topic=topic, messages=messages(*values))
        return self.call(self.publishing.Publish, request).report

    def pull(self, group: str, topic: str, count: int = 10, wait_ms: int = 5000) -> list[Any]:
        request = consuming.PullRequest(
            group=group, topic=topic, messages_max=count, wait_ms=wait_ms
        )
        return list(self.call(self.consuming.Pull, request).messages)

    def stream(self, method: Any, first: Any = None) -> Stream:
        return Stream(self, method, first)


class Stream:
    """A stream in both directions, whose requests are sent one by one."""

    def __init__(self, rpc: Rpc, method: Any, first: Any = None) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = method(
            iter(self._requests.get, None), metadata=rpc.metadata, timeout=4 * SECONDS
        )
        if first is not None:
            self.send(first)

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def half_close(self) -> None:
        self._requests.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.call)

    def next(self) -> Any:
        return next(self.call)

    def close(self) -> None:
        self.call.cancel()
        self.half_close()


def messages(*values: bytes) -> list[shared.OutgoingMessage]:
    return [shared.OutgoingMessage(value=value) for value in values]


def reason_of(error: grpc.RpcError) -> str:
    """The code of the error in the details of a status."""
    [info] = details_of(error, error_details_pb2.ErrorInfo)
    assert info.domain == "goqueue"
    return str(info.reason)


def details_of(error: grpc.RpcError, kind: Any) -> list[Any]:
    metadata = dict(error.trailing_metadata())  # type: ignore[attr-defined]
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    assert status.message == error.details()  # type: ignore[attr-defined]
    found = []
    for one in status.details:
        if one.Is(kind.DESCRIPTOR):
            detail = kind()
            one.Unpack(detail)
            found.append(detail)
    return found
