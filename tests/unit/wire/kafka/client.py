"""A client of a whole node without sockets, which knows what to expect of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from goqueue.model.batch import decode_batch, read_header
from goqueue.model.observer import Observer
from goqueue.wire.kafka.connection import Connection
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.kafka.messages import API_BY_NAME
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.broker.node import Node
from tests.unit.wire.kafka.requests import (
    Subject,
    commit_request,
    init_request,
    produce_request,
    records_for,
    request_of,
)
from tests.unit.wire.kafka.share_requests import share_beat_request, share_fetch_request

_SETTINGS = {
    "groups__initial_rebalance_delay_ms": "0",
    "groups__offsets_partitions": "1",
    "transactions__state_partitions": "1",
}


class Client:
    """One connection to a node with the topic `orders`, and the usual questions."""

    def __init__(
        self,
        *,
        partitions: int = 4,
        limits: Limits | None = None,
        observer: Observer | None = None,
        **settings: str,
    ) -> None:
        settings = {**_SETTINGS, **settings}
        self.node = Node(limits=limits, observer=observer, **settings)
        topic = self.node.create("orders", partitions)
        self.subject = Subject(topic_id=topic.id)
        self.peer: KafkaPeer = self.node.peer()

    def call(self, name: str, request: Any, version: int | None = None) -> Any:
        """Ask in a version, the newest unless told; every answer must be readable."""
        version = API_BY_NAME[name].version_stable_max if version is None else version
        return self.peer.call(name, version, request)

    def ask(self, name: str, version: int | None = None, **subject: Any) -> Any:
        """The usual request of an API about the usual things, some of them replaced."""
        version = API_BY_NAME[name].version_stable_max if version is None else version
        return self.call(name, request_of(name, version, about(self.subject, subject)), version)

    def produce(self, *values: bytes, partition: int = 0, timestamp_ms: int = 1) -> int:
        """Store one batch; its base offset."""
        version = API_BY_NAME["Produce"].version_stable_max
        records = records_for(version, *values, timestamp_ms=timestamp_ms)
        place = about(self.subject, {"partition": partition})
        answer = self.call("Produce", produce_request(version, place, records))
        assert error_codes(answer) == set()
        return int(answer.responses[0].partition_responses[0].base_offset)

    def have_groups(self) -> None:
        """A settled classic group, one of the newer protocol, and one that only has offsets."""
        self.node.host_groups()
        first = self.ask("JoinGroup")
        self.subject.member = first.member_id
        joined = self.ask("JoinGroup")
        self.subject.generation = joined.generation_id
        self.ask("SyncGroup")
        self.ask("ConsumerGroupHeartbeat")
        self.call("OffsetCommit", commit_request(Subject(group="idle")), 2)

    def have_share_groups(self) -> None:
        """A group with a member that has a session, and one whose member has left."""
        self.node.host_groups()
        for group, has_left in (("idle-share", True), (self.subject.share_group, False)):
            subject = about(self.subject, {"share_group": group})
            self.call("ShareGroupHeartbeat", share_beat_request(subject))
            self.call("ShareFetch", share_fetch_request(subject))
            if has_left:
                self.call("ShareGroupHeartbeat", share_beat_request(subject, epoch=-1))

    def have_transaction(self) -> None:
        """A transaction that has begun, with the usual partition and the usual group in it."""
        found = self.call("InitProducerId", init_request(self.subject))
        self.subject.producer_id = found.producer_id
        self.subject.producer_epoch = found.producer_epoch
        assert error_codes(self.ask("AddPartitionsToTxn", 3)) == set()
        assert error_codes(self.ask("AddOffsetsToTxn")) == set()


def about(subject: Subject, fields: dict[str, Any]) -> Subject:
    """The same subject with some things replaced."""
    return Subject(**{**vars(subject), **fields})


def error_codes(answer: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    return {code for code in _error_codes(answer) if code}


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for one in value:
            yield from _error_codes(one)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            content = getattr(value, name)
            if name.endswith("error_code"):
                yield content
            else:
                yield from _error_codes(content)


def records_in(data: bytes) -> list[bytes | None]:
    """The values of all records in fetched bytes."""
    values, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        values += [one.value for one in decode_batch(data[at : at + header.size])]
        at += header.size
    return values


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What handlers have failed with; a handler answers errors, so the list stays empty."""
    failed: list[Exception] = []
    original = Connection.fail

    def fail(connection: Connection, what: str, error: Exception) -> None:
        failed.append(error)
        original(connection, what, error)

    monkeypatch.setattr(Connection, "fail", fail)
    return failed
