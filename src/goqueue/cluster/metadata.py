"""The metadata state machine: facts in, the current state out.

A fact states the whole of one thing (a topic, the next free producer id), under a key. A later
fact under the same key replaces it, and a key without a value forgets it. So the log of facts
can be compacted, and replaying it in order gives the same state on every node.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from goqueue.model.batch import Record

_TOPIC_PREFIX = b"topic/"
_PRODUCER_ID_KEY = b"producer-id"
_NAMED_PRODUCER_PREFIX = b"producer/"
_QUEUE_GROUP_PREFIX = b"queue-group/"
_JOB_PREFIX = b"job/"
_VERSION = b"\x01"


class TopicFact(msgspec.Struct, frozen=True, tag="topic"):
    """A topic exists, with this many partitions and these settings of its own."""

    id: bytes
    name: str
    partition_count: int
    settings: dict[str, str] = {}
    leader_epoch: int = 0

    @property
    def key(self) -> bytes:
        return _TOPIC_PREFIX + self.name.encode()


class NextProducerId(msgspec.Struct, frozen=True, tag="producer_id"):
    """Producer ids below this one may be in use."""

    value: int

    @property
    def key(self) -> bytes:
        return _PRODUCER_ID_KEY


class NamedProducer(msgspec.Struct, frozen=True, tag="named_producer"):
    """The producer that a part of the broker is, so that its batches are known after a restart."""

    name: str
    producer_id: int
    epoch: int
    producer_id_before: int = -1  # until its epochs were used up

    @property
    def key(self) -> bytes:
        return _NAMED_PRODUCER_PREFIX + self.name.encode()


class QueueGroupFact(msgspec.Struct, frozen=True, tag="queue_group"):
    """A queue group exists, with these settings. A group of that name made later has another id."""

    id: bytes
    name: str
    settings: dict[str, int | float | bool | str] = {}

    @property
    def key(self) -> bytes:
        return _QUEUE_GROUP_PREFIX + self.name.encode()


class JobFact(msgspec.Struct, frozen=True, tag="job"):
    """Long work that survives restarts; whoever does it knows what its body means."""

    kind: str
    id: str
    body: bytes

    @property
    def key(self) -> bytes:
        return _JOB_PREFIX + f"{self.kind}/{self.id}".encode()


Fact = TopicFact | NextProducerId | NamedProducer | QueueGroupFact | JobFact

_decoder = msgspec.msgpack.Decoder(Fact)
_encoder = msgspec.msgpack.Encoder()


class Metadata:
    """All facts that hold now."""

    __slots__ = (
        "_by_id",
        "_topics",
        "deleted",
        "jobs",
        "next_producer_id",
        "producers",
        "queue_groups",
    )

    def __init__(self) -> None:
        self._topics: dict[str, TopicFact] = {}
        self._by_id: dict[bytes, TopicFact] = {}
        self.next_producer_id = 0
        self.producers: dict[str, NamedProducer] = {}
        self.queue_groups: dict[str, QueueGroupFact] = {}
        self.jobs: dict[bytes, JobFact] = {}
        self.deleted: set[str] = set()  # names whose deletion the log still speaks of

    def topic(self, name: str) -> TopicFact | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicFact | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Iterator[TopicFact]:
        return iter(list(self._topics.values()))

    def apply(self, fact: Fact) -> None:
        if isinstance(fact, NextProducerId):
            self.next_producer_id = max(self.next_producer_id, fact.value)
            return
        if isinstance(fact, NamedProducer):
            self.producers[fact.name] = fact
            return
        if isinstance(fact, QueueGroupFact):
            self.queue_groups[fact.name] = fact
            return
        if isinstance(fact, JobFact):
            self.jobs[fact.key] = fact
            return
        self.forget_topic(fact.name)
        self.deleted.discard(fact.name)
        self._topics[fact.name] = fact
        self._by_id[fact.id] = fact

    def forget_topic(self, name: str) -> None:
        self.deleted.add(name)
        gone = self._topics.pop(name, None)
        if gone is not None:
            del self._by_id[gone.id]

    def replay(self, record: Record) -> None:
        """Apply one record of the log; keys of later versions are passed over."""
        key = record.key or b""
        if record.value is not None:
            if record.value[:1] == _VERSION:
                self.apply(_decoder.decode(record.value[1:]))
        elif key.startswith(_TOPIC_PREFIX):
            self.forget_topic(key[len(_TOPIC_PREFIX) :].decode())
        elif key.startswith(_QUEUE_GROUP_PREFIX):
            self.queue_groups.pop(key[len(_QUEUE_GROUP_PREFIX) :].decode(), None)
        elif key.startswith(_JOB_PREFIX):
            self.jobs.pop(key, None)


def fact_record(fact: Fact, *, now_ms: int) -> Record:
    return Record(fact.key, _VERSION + _encoder.encode(fact), timestamp_ms=now_ms)


def forget_record(gone: TopicFact | QueueGroupFact | JobFact, *, now_ms: int) -> Record:
    return Record(gone.key, None, timestamp_ms=now_ms)
