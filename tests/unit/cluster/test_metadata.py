"""The facts of a cluster: replaying their log gives the state that wrote it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.cluster import Fact, Metadata, NextProducerId, TopicFact
from goqueue.cluster.facts import Forget
from goqueue.cluster.metadata import change_record
from goqueue.model.batch import Record
from goqueue.model.errors import MalformedRequest, UnsupportedVersion

quickly = settings(max_examples=60, derandomize=True, deadline=None, database=None)

NAMES = st.sampled_from(["orders", "payments", "topic/with/slashes", "ü", "a.b"])
TOPICS = st.builds(
    TopicFact,
    id=st.binary(min_size=16, max_size=16),
    name=NAMES,
    partition_count=st.integers(1, 10),
    settings=st.dictionaries(st.sampled_from(["retention_ms", "é"]), st.text(max_size=5)),
    leader_epoch=st.integers(0, 5),
)
STEPS = st.lists(st.one_of(TOPICS, st.builds(NextProducerId, st.integers(0, 5000)), NAMES))


def topic(name: str = "orders", number: int = 1, **fields: int) -> TopicFact:
    return TopicFact(bytes([number]) * 16, name, fields.pop("partition_count", 1), **fields)


def replayed(records: list[Record]) -> Metadata:
    metadata = Metadata()
    for record in records:
        metadata.replay(record)
    return metadata


def state(metadata: Metadata) -> tuple[dict[str, TopicFact], int]:
    """All that can be seen, which must be the same by name and by id."""
    topics = {fact.name: fact for fact in metadata.topics()}
    for fact in topics.values():
        assert metadata.topic(fact.name) == metadata.topic_by_id(fact.id) == fact
    return topics, metadata.next_producer_id


@quickly
@given(steps=STEPS)
def test_replaying_the_log_gives_the_state_that_wrote_it(steps: list[Fact | str]) -> None:
    live, records = Metadata(), []
    for step in steps:
        if isinstance(step, str):
            known = live.topic(step)
            if known is not None:
                records.append(change_record(Forget(known.key), now_ms=1))
                live.forget_topic(step)
        elif not isinstance(step, TopicFact) or live.topic_by_id(step.id) is None:
            records.append(change_record(step, now_ms=1))
            live.apply(step)
    assert state(replayed(records)) == state(live)


@quickly
@given(steps=STEPS)
def test_replaying_only_the_last_record_of_each_key_gives_the_same(steps: list[Fact | str]) -> None:
    owners: dict[bytes, str] = {}  # An id is given once, and to one name.
    records = [
        Record(b"topic/" + step.encode(), None)
        if isinstance(step, str)
        else change_record(step, now_ms=1)
        for step in steps
        if not isinstance(step, NextProducerId)
        and (not isinstance(step, TopicFact) or owners.setdefault(step.id, step.name) == step.name)
    ]
    compacted = {record.key: record for record in records}
    assert {fact.name: fact for fact in replayed(records).topics()} == {
        fact.name: fact for fact in replayed(list(compacted.values())).topics()
    }


def test_a_later_fact_replaces_an_earlier_one() -> None:
    metadata = Metadata()
    metadata.apply(topic())
    metadata.apply(topic(partition_count=5))
    assert state(metadata)[0]["orders"].partition_count == 5


def test_a_topic_that_comes_again_under_its_name_is_not_found_by_its_old_id() -> None:
    metadata = Metadata()
    metadata.apply(topic(number=1))
    metadata.apply(topic(number=2))
    assert metadata.topic_by_id(bytes([1]) * 16) is None
    assert metadata.topic_by_id(bytes([2]) * 16) is not None


def test_forgetting_what_is_not_known_does_no_harm() -> None:
    metadata = Metadata()
    metadata.forget_topic("nowhere")
    assert state(metadata) == ({}, 0)


def test_producer_ids_only_grow() -> None:
    metadata = Metadata()
    for value in (1000, 3000, 2000):
        metadata.apply(NextProducerId(value))
    assert metadata.next_producer_id == 3000


def test_facts_may_be_listed_while_they_change() -> None:
    metadata = Metadata()
    for number, name in enumerate("abc", 1):
        metadata.apply(topic(name, number))
    for fact in metadata.topics():
        metadata.forget_topic(fact.name)
    assert state(metadata) == ({}, 0)


@pytest.mark.parametrize("value", [b"\x02whatever", b"\x00", b"", b"\xff" * 10])
def test_facts_of_versions_that_are_not_known_stop_the_start(value: bytes) -> None:
    records = [change_record(topic(), now_ms=1), Record(b"topic/new", value)]
    with pytest.raises(UnsupportedVersion, match=r"topic/new.*upgrade this node"):
        replayed(records)


def test_facts_of_kinds_that_are_not_known_stop_the_start() -> None:
    later = b"\x01" + msgspec.msgpack.encode({"type": "planet", "name": "Mars"})
    with pytest.raises(MalformedRequest, match=r"planet.*upgrade this node"):
        replayed([Record(b"planet/Mars", later)])


@pytest.mark.parametrize("key", [None, b"", b"producer-id", b"something-new"])
def test_forgetting_a_key_that_is_no_topic_changes_nothing(key: bytes | None) -> None:
    records = [change_record(topic(), now_ms=1), change_record(NextProducerId(7), now_ms=1)]
    assert state(replayed([*records, Record(key, None)])) == state(replayed(records))


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    fact = msgspec.to_builtins(topic(), builtin_types=(bytes,))
    body = msgspec.msgpack.encode({**fact, "replicas": [[1, 2, 3]]})
    metadata = replayed([Record(b"topic/orders", b"\x01" + body)])
    assert metadata.topic("orders") == topic()


def test_the_form_of_the_facts_on_disk_is_fixed() -> None:
    record = change_record(
        TopicFact(b"0123456789abcdef", "orders", 3, {"retention_ms": "1"}), now_ms=9
    )
    assert record.key == b"topic/orders"
    assert record.timestamp_ms == 9
    assert record.value is not None
    assert record.value[:1] == b"\x01"
    assert msgspec.msgpack.decode(record.value[1:]) == {
        "type": "topic",
        "id": b"0123456789abcdef",
        "name": "orders",
        "partition_count": 3,
        "settings": {"retention_ms": "1"},
        "leader_epoch": 0,
    }
    assert change_record(NextProducerId(5), now_ms=9).key == b"producer-id"
