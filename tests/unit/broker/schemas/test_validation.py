"""Topics whose records must obey schemas: what is refused, and with which words."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.broker.publishing.publisher import Outgoing, Published, PublishResult, Scheduled
from goqueue.broker.schemas.validation import FAULTS_MAX, Rules, Strategy, read_rules
from goqueue.broker.topics.topics import Topic
from goqueue.loop.promise import Promise, start
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Header, Record, encode_batch
from goqueue.model.compression import Compression
from goqueue.model.errors import CorruptBatch, InvalidTopicSetting, SchemaMismatch
from goqueue.schemas.catalog import Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.formats import SchemaKind
from goqueue.schemas.names import read_subject
from tests.simulation.world import World

USER = {
    "type": "record",
    "name": "shop.User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
PERSON = json.dumps(
    {
        "title": "Person",
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name"],
    }
)
ORDER = """syntax = "proto3";
package shop;
message Order {
  string id = 1;
  message Line { int32 count = 1; }
}
message Other { string a = 1; }
"""


@pytest.fixture
def world() -> World:
    return World()


def register(world: World, subject: str, text: str, kind: SchemaKind = SchemaKind.AVRO) -> Version:
    promise: Promise[Version] = Promise()
    work = world.broker.schemas.register(read_subject(subject), Request(text, kind))
    start(work, promise.settle)
    return world.wait(promise)


def delete(world: World, subject: str) -> None:
    promise: Promise[list[int]] = Promise()
    start(
        world.broker.schemas.delete_subject(read_subject(subject), permanent=False), promise.settle
    )
    world.wait(promise)


def framed(version: Version, payload: bytes) -> bytes:
    return b"\x00" + version.content.id.to_bytes(4, "big") + payload


def user(version: Version, **value: Any) -> bytes:
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(USER), value)
    return framed(version, out.getvalue())


def produce(world: World, topic: Topic, *values: bytes | None, **more: Any) -> dict[int, str]:
    """Send one batch as a producer does; what was wrong with which record."""
    now_ms = world.clock.now_ms()
    records = [Record(None, value, (), now_ms) for value in values]
    batch = memoryview(encode_batch(records, **more))
    try:
        world.broker.producing.produce(topic, topic.partition(0), batch)
    except SchemaMismatch as refused:
        return refused.faults
    return {}


def publish(world: World, topic: str, *outgoing: Record | Outgoing) -> list[PublishResult]:
    return world.wait(world.broker.publish(topic, outgoing))


def test_a_topic_asks_for_nothing_unless_told() -> None:
    settings = dict(World().broker.topics.defaults.values)
    assert read_rules(settings) == Rules(None, None)
    settings |= {"schema_validation": "both", "schema_key_subject_strategy": "record"}
    assert read_rules(settings) == Rules(Strategy.RECORD, Strategy.TOPIC)


def test_a_setting_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(InvalidTopicSetting):
        world.create("orders", schema_validation="sometimes")


def test_a_producers_batch_is_refused_whole_with_the_place_of_the_fault(world: World) -> None:
    topic = world.create("users", schema_validation="value")
    version = register(world, "users-value", json.dumps(USER))
    good, bad = user(version, name="Ada", age=36), framed(version, b"\x06Ada")
    assert produce(world, topic, good, good) == {}
    faults = produce(world, topic, good, bad, b"plain", good)
    assert list(faults) == [1, 2]
    assert "age" in faults[1]
    assert "does not begin with a zero byte" in faults[2]
    world.run_for(100)
    assert [one.value for one in world.consume("users")] == [good, good]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_compressed_batch_is_looked_into(world: World, codec: Compression) -> None:
    topic = world.create("users", schema_validation="value")
    version = register(world, "users-value", json.dumps(USER))
    good = user(version, name="Ada", age=36)
    assert produce(world, topic, good, codec=codec) == {}
    assert list(produce(world, topic, good, b"x", codec=codec)) == [1]


def test_json_faults_name_the_field(world: World) -> None:
    topic = world.create("people", schema_validation="value")
    version = register(world, "people-value", PERSON, SchemaKind.JSON)
    assert produce(world, topic, framed(version, b'{"name": "Ada"}')) == {}
    faults = produce(world, topic, framed(version, b'{"name": "Ada", "tags": ["a", 7]}'))
    assert "tags" in faults[0]
    assert "1" in faults[0]
    assert produce(world, topic, framed(version, b"{"))


def test_protobuf_messages_are_found_by_their_place(world: World) -> None:
    topic = world.create("orders", schema_validation="value")
    version = register(world, "orders-value", ORDER, SchemaKind.PROTOBUF)
    assert produce(world, topic, framed(version, b"\x00\x0a\x01a")) == {}
    assert produce(world, topic, framed(version, b"\x04\x00\x00\x08\x05")) == {}
    assert produce(world, topic, framed(version, b"\x02\x02\x0a\x01a")) == {}
    assert produce(world, topic, framed(version, b"\x02\x12\x0a\x01a")), "there is no tenth message"
    assert produce(world, topic, framed(version, b"\x00\x0a\x09a")), "a string that is cut off"
    assert produce(world, topic, framed(version, b"\xff\xff\xff\xff\xff\xff"))
    assert produce(world, topic, framed(version, b"")), "no place at all"


def test_an_id_must_be_registered_under_the_right_subject(world: World) -> None:
    topic = world.create("users", schema_validation="value")
    version = register(world, "people-value", json.dumps(USER))
    payload = user(version, name="Ada", age=36)
    faults = produce(world, topic, payload)
    assert "not registered under the subject 'users-value'" in faults[0]
    assert "not registered" in produce(world, topic, b"\x00\x00\x00\x00\x63x")[0]
    register(world, "users-value", json.dumps(USER))
    assert produce(world, topic, payload) == {}
    delete(world, "users-value")
    assert produce(world, topic, payload), "a deleted version is not one any more"


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic", "users-value"), ("record", "shop.User"), ("topic-record", "users-shop.User")],
)
def test_strategies_name_the_subject(world: World, strategy: str, subject: str) -> None:
    topic = world.create("users", schema_validation="value", schema_value_subject_strategy=strategy)
    elsewhere = register(world, "elsewhere", json.dumps(USER))
    payload = user(elsewhere, name="Ada", age=36)
    assert subject in produce(world, topic, payload)[0]
    register(world, subject, json.dumps(USER))
    assert produce(world, topic, payload) == {}


def test_record_strategies_of_protobuf_go_by_the_message(world: World) -> None:
    topic = world.create("t", schema_validation="value", schema_value_subject_strategy="record")
    version = register(world, "shop.Order", ORDER, SchemaKind.PROTOBUF)
    assert produce(world, topic, framed(version, b"\x00\x0a\x01a")) == {}
    assert "shop.Other" in produce(world, topic, framed(version, b"\x02\x02\x0a\x01a"))[0]


def test_keys_and_values_are_asked_for_apart(world: World) -> None:
    world.create("users", schema_validation="key")
    key = framed(register(world, "users-key", '"string"'), b"\x02a")
    outcomes = publish(world, "users", Record(key, b"anything"), Record(b"bare", b"anything"))
    assert isinstance(outcomes[0], Published)
    assert isinstance(outcomes[1], SchemaMismatch)
    assert str(outcomes[1]).startswith("The key does not begin")


def test_what_is_not_there_obeys_every_schema(world: World) -> None:
    topic = world.create("users", schema_validation="both")
    assert produce(world, topic, None) == {}


def test_published_records_have_a_result_each(world: World) -> None:
    world.create("users", schema_validation="value")
    version = register(world, "users-value", json.dumps(USER))
    good = Record(None, user(version, name="Ada", age=36))
    outcomes = publish(world, "users", good, Record(None, b"bad"), good)
    assert [type(one) for one in outcomes] == [Published, SchemaMismatch, Published]
    assert len(world.consume("users")) == 2


def test_a_delayed_record_is_checked_when_it_comes(world: World) -> None:
    topic = world.create("users", schema_validation="value")
    version = register(world, "users-value", json.dumps(USER))
    good, bad = user(version, name="Ada", age=36), b"bad"
    later = Attributes(delay_ms=60_000)
    outcomes = publish(
        world, "users", Outgoing(Record(None, good), later), Outgoing(Record(None, bad), later)
    )
    assert [type(one) for one in outcomes] == [Scheduled, SchemaMismatch]
    headers: tuple[Header, ...] = (("goqueue-delay-ms", b"60000"),)
    batch = encode_batch([Record(None, bad, headers, world.clock.now_ms())])
    with pytest.raises(SchemaMismatch):
        world.broker.producing.produce(topic, topic.partition(0), memoryview(batch))


def test_a_topic_may_change_its_mind(world: World) -> None:
    topic = world.create("users")
    assert produce(world, topic, b"anything") == {}
    world.wait(world.broker.topics.configure("users", {"schema_validation": "value"}))
    assert list(produce(world, topic, b"anything")) == [0]
    strategy = {"schema_validation": "value", "schema_value_subject_strategy": "record"}
    version = register(world, "shop.User", json.dumps(USER))
    payload = user(version, name="Ada", age=36)
    assert produce(world, topic, payload)
    world.wait(world.broker.topics.configure("users", strategy))
    assert produce(world, topic, payload) == {}
    world.wait(world.broker.topics.configure("users", {}))
    assert produce(world, topic, b"anything") == {}


def test_the_schema_may_be_named_in_a_header(world: World) -> None:
    world.create("users", schema_validation="value")
    version = register(world, "users-value", json.dumps(USER))
    from uuid import UUID

    guid = b"\x01" + UUID(version.content.guid).bytes
    payload = user(version, name="Ada", age=36)[5:]
    outcomes = publish(
        world,
        "users",
        Record(None, payload, (("__value_schema_id", guid),)),
        Record(None, b"\x01", (("__value_schema_id", guid),)),
        Record(None, payload, (("__value_schema_id", b"\x01" + bytes(16)),)),
    )
    assert [type(one) for one in outcomes] == [Published, SchemaMismatch, SchemaMismatch]


def test_faults_of_a_batch_are_counted_up_to_a_bound(world: World) -> None:
    topic = world.create("users", schema_validation="value")
    assert len(produce(world, topic, *[b"bad"] * (FAULTS_MAX + 50))) == FAULTS_MAX


def test_a_damaged_batch_is_called_damaged(world: World) -> None:
    topic = world.create("users", schema_validation="value")
    batch = encode_batch([Record(None, b"x", (), world.clock.now_ms())])
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        world.broker.producing.produce(topic, topic.partition(0), memoryview(batch))


def test_schemas_are_known_again_after_a_restart(world: World) -> None:
    world.create("users", schema_validation="value")
    version = register(world, "users-value", json.dumps(USER))
    payload = user(version, name="Ada", age=36)
    world.crash()
    world.start()
    topic = world.broker.topics.get("users")
    assert produce(world, topic, payload) == {}
    assert produce(world, topic, b"bad")


@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from(list(SchemaKind)))
@settings(max_examples=60, deadline=None)
def test_random_payloads_are_refused_and_nothing_else(
    payloads: list[bytes], kind: SchemaKind
) -> None:
    world = World()
    topic = world.create("t", schema_validation="value")
    text = {SchemaKind.AVRO: json.dumps(USER), SchemaKind.JSON: PERSON, SchemaKind.PROTOBUF: ORDER}
    version = register(world, "t-value", text[kind], kind)
    produce(world, topic, *payloads, *(framed(version, one) for one in payloads), b"last")
