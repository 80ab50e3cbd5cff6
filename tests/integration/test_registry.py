"""Stock clients of schema registries, with their serializers, on a real node."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from .conftest import StartBroker
from .process import Broker
from .waiting import eventually

LEVELS = [
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]


@pytest.fixture
def registry(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry}) as client:
        yield client


def fresh(broker: Broker) -> SchemaRegistryClient:
    """A client that remembers nothing."""
    return SchemaRegistryClient({"url": broker.registry})


def avro(record: str = "User", /, **fields: Any) -> Schema:
    """A record; a field that is a pair has a default."""
    listed = [
        {"name": key, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": key, "type": kind}
        for key, kind in fields.items()
    ]
    return Schema(json.dumps({"type": "record", "name": record, "fields": listed}), "AVRO")


def through_a_topic(bootstrap: str, topic: str, payloads: list[bytes]) -> list[bytes]:
    """Produce payloads and consume them again."""
    producer = Producer({"bootstrap.servers": bootstrap})
    failures: list[object] = []
    for payload in payloads:
        producer.produce(topic, payload, on_delivery=lambda error, _: failures.append(error))
    producer.flush(30)
    assert failures == [None] * len(payloads)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < len(payloads):
            message = consumer.poll(10)
            assert message is not None, "the messages did not come back"
            assert message.error() is None
            found.append(message.value())
    finally:
        consumer.close()
    return found


def refused(call: Callable[[], object]) -> tuple[int, int]:
    """Status and number of a refusal."""
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return caught.value.http_status_code, caught.value.error_code


# Serializers


@pytest.mark.on_cluster
def test_avro_from_end_to_end(registry: SchemaRegistryClient, bootstrap: str, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    old = avro(name="string", age="int")
    new = avro(name="string", age="int", city=("string", "unknown"))
    write_old = AvroSerializer(registry, old.schema_str)
    write_new = AvroSerializer(registry, new.schema_str)
    payloads = [
        write_old({"name": "Ada", "age": 36}, context),
        write_new({"name": "Alan", "age": 41, "city": "London"}, context),
    ]
    read = AvroDeserializer(registry, new.schema_str)
    found = [read(one, context) for one in through_a_topic(bootstrap, topic, payloads)]
    assert found == [
        {"name": "Ada", "age": 36, "city": "unknown"},
        {"name": "Alan", "age": 41, "city": "London"},
    ]
    assert registry.get_versions(f"{topic}-value") == [1, 2]


def test_avro_with_references(registry: SchemaRegistryClient, bootstrap: str, topic: str) -> None:
    registry.register_schema(f"{topic}-user", avro(name="string"))
    order = Schema(
        json.dumps(
            {
                "type": "record",
                "name": "Order",
                "fields": [{"name": "buyer", "type": "User"}, {"name": "total", "type": "long"}],
            }
        ),
        "AVRO",
        [SchemaReference("User", f"{topic}-user", 1)],
    )
    context = SerializationContext(topic, MessageField.VALUE)
    write = AvroSerializer(registry, order)
    value = {"buyer": {"name": "Ada"}, "total": 7}
    payloads = through_a_topic(bootstrap, topic, [write(value, context)])
    assert AvroDeserializer(registry)(payloads[0], context) == value
    assert registry.get_latest_version(f"{topic}-value").schema.references[0].name == "User"
    assert len(registry.get_referenced_by(f"{topic}-user", 1)) == 1
    assert refused(lambda: registry.delete_subject(f"{topic}-user")) == (422, 42206)


def test_json_from_end_to_end(registry: SchemaRegistryClient, bootstrap: str, topic: str) -> None:
    address = Schema(
        json.dumps(
            {
                "$id": "https://example.com/address.json",
                "type": "object",
                "properties": {"street": {"type": "string"}},
                "required": ["street"],
            }
        ),
        "JSON",
    )
    registry.register_schema(f"{topic}-address", address)
    person = Schema(
        json.dumps(
            {
                "$id": "https://example.com/person.json",
                "title": "Person",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "home": {"$ref": "https://example.com/address.json"},
                },
                "required": ["name"],
            }
        ),
        "JSON",
        [SchemaReference("https://example.com/address.json", f"{topic}-address", 1)],
    )
    context = SerializationContext(topic, MessageField.VALUE)
    write = JSONSerializer(person, registry)
    value = {"name": "Ada", "home": {"street": "Main"}}
    payloads = through_a_topic(bootstrap, topic, [write(value, context)])
    read = JSONDeserializer(person, schema_registry_client=registry)
    assert read(payloads[0], context) == value


def test_protobuf_from_end_to_end(
    registry: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{topic}-money.proto", package="shop", syntax="proto3"
    )
    money = file.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=3, label=1)
    order_file = descriptor_pb2.FileDescriptorProto(
        name=f"{topic}-order.proto", package="shop", syntax="proto3", dependency=[file.name]
    )
    order = order_file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=9, label=1)
    order.field.add(name="total", number=2, type=11, label=1, type_name=".shop.Money")
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    pool.Add(order_file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    nested = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line"))
    options = {"use.deprecated.format": False}
    context = SerializationContext(topic, MessageField.VALUE)
    value = kind(id="a", total={"cents": 250})
    payloads = [
        ProtobufSerializer(kind, registry, options)(value, context),
        ProtobufSerializer(nested, registry, options)(nested(count=3), context),
    ]
    found = through_a_topic(bootstrap, topic, payloads)
    assert ProtobufDeserializer(kind, options, registry)(found[0], context) == value
    assert ProtobufDeserializer(nested, options, registry)(found[1], context).count == 3
    assert registry.get_versions(f"{topic}-value") == [1]
    registered = registry.get_latest_version(f"{topic}-value").schema
    assert registered.references[0].name == file.name
    assert "message Order" in registered.schema_str


def test_a_serializer_may_use_what_is_there(
    registry: SchemaRegistryClient, broker: Broker, topic: str
) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    strict = {"auto.register.schemas": False}
    write = AvroSerializer(fresh(broker), avro(name="string").schema_str, conf=strict)
    assert refused(lambda: write({"name": "Ada"}, context)) == (404, 40401)
    first = registry.register_schema(f"{topic}-value", avro(name="string"))
    assert write({"name": "Ada"}, context)[1:5] == first.to_bytes(4, "big")
    newer = registry.register_schema(f"{topic}-value", avro(name="string", age=("int", 0)))
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    write = AvroSerializer(fresh(broker), conf=latest)
    assert write({"name": "Ada", "age": 3}, context)[1:5] == newer.to_bytes(4, "big")


def test_a_record_may_name_its_subject(registry: SchemaRegistryClient, topic: str) -> None:
    name = f"R{topic[-10:-2]}"
    conf = {"subject.name.strategy": record_subject_name_strategy}
    write = AvroSerializer(registry, avro(name, a="int").schema_str, conf=conf)
    write({"a": 1}, SerializationContext(topic, MessageField.VALUE))
    assert registry.get_versions(name) == [1]


# Evolution


def json_schema(*required: str, **properties: str) -> Schema:
    """A closed object."""
    tree = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }
    return Schema(json.dumps(tree), "JSON")


def proto(*fields: str) -> Schema:
    body = "".join(f"  {one};\n" for one in fields)
    return Schema(f'syntax = "proto3";\nmessage User {{\n{body}}}\n', "PROTOBUF")


# The schema before and after, and whether that is backward and forward compatible.
CHANGES = {
    "avro, a field with a default": (avro(a="int"), avro(a="int", b=("int", 0)), True, True),
    "avro, a field without": (avro(a="int"), avro(a="int", b="int"), False, True),
    "avro, a field less": (avro(a="int", b="int"), avro(a="int"), True, False),
    "avro, a wider type": (avro(a="int"), avro(a="long"), True, False),
    "json, one more": (json_schema(a="integer"), json_schema(a="integer", b="string"), True, False),
    "json, one less": (json_schema(a="integer", b="string"), json_schema(a="integer"), False, True),
    "json, now required": (json_schema(a="integer"), json_schema("a", a="integer"), False, True),
    "json, another type": (json_schema(a="integer"), json_schema(a="string"), False, False),
    "protobuf, one more": (proto("int32 a = 1"), proto("int32 a = 1", "int32 b = 2"), True, True),
    "protobuf, another type": (proto("int32 a = 1"), proto("string a = 1"), False, False),
}


@pytest.mark.parametrize("level", LEVELS)
def test_evolution_is_accepted_and_refused_as_the_level_says(
    registry: SchemaRegistryClient, unique: str, level: str
) -> None:
    for change, (before, after, is_backward, is_forward) in CHANGES.items():
        subject = f"{unique}-{change}"
        registry.set_compatibility(subject, level)
        registry.register_schema(subject, before)
        needs_backward = level.startswith(("BACKWARD", "FULL"))
        needs_forward = level.startswith(("FORWARD", "FULL"))
        is_fine = (is_backward or not needs_backward) and (is_forward or not needs_forward)
        assert registry.test_compatibility(subject, after) == is_fine, change
        assert registry.test_compatibility_all_versions(subject, after) == is_fine
        if is_fine:
            registry.register_schema(subject, after)
        else:
            assert refused(lambda: registry.register_schema(subject, after)) == (409, 40901)  # noqa: B023
        assert len(registry.get_versions(subject)) == 1 + is_fine, change


# Administration


@pytest.mark.on_cluster
def test_everything_the_client_can_ask(
    registry: SchemaRegistryClient, broker: Broker, unique: str
) -> None:
    schema = avro(unique.replace("-", "_"), a="int")
    made = registry.register_schema_full_response(unique, schema)
    assert registry.register_schema(f"{unique}-2", schema) == made.schema_id
    other = fresh(broker)
    assert other.get_schema(made.schema_id).schema_str == schema.schema_str
    assert other.get_schema_by_guid(made.guid).schema_str == schema.schema_str
    assert other.lookup_schema(unique, schema).version == 1
    assert other.get_subjects_by_schema_id(made.schema_id) == [unique, f"{unique}-2"]
    assert [one.subject for one in other.get_schema_versions(made.schema_id)] == [
        unique,
        f"{unique}-2",
    ]
    assert other.get_subjects(subject_prefix=unique) == [unique, f"{unique}-2"]
    assert "." in other.get_contexts()
    assert set(other.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert other.get_config().compatibility_level == "BACKWARD"
    assert refused(lambda: other.get_compatibility(unique)) == (404, 40408)
    other.update_mode(unique, "READONLY")
    assert other.get_mode(unique) == "READONLY"
    changed = avro(unique.replace("-", "_"), a="int", b=("int", 1))
    assert refused(lambda: other.register_schema(unique, changed)) == (422, 42205)
    other.delete_mode(unique)
    assert other.delete_subject(unique) == [1]
    assert refused(lambda: fresh(broker).get_latest_version(unique)) == (404, 40401)
    assert other.delete_subject(unique, permanent=True) == [1]
    assert fresh(broker).get_schema(made.schema_id).schema_str == schema.schema_str


def test_the_asynchronous_client(broker: Broker, unique: str) -> None:
    async def work() -> None:
        client = AsyncSchemaRegistryClient({"url": broker.registry})
        made = await client.register_schema(unique, avro(a="int"))
        assert (await client.get_latest_version(unique)).schema_id == made
        assert await client.get_versions(unique) == [1]

    asyncio.run(work())


def test_the_same_registry_is_under_the_main_listener(broker: Broker, unique: str) -> None:
    made = fresh(broker).register_schema(unique, avro(a="int"))
    mounted = SchemaRegistryClient({"url": f"{broker.http}/registry"})
    assert mounted.get_latest_version(unique).schema_id == made


def test_a_client_of_one_context_sees_only_that(broker: Broker, unique: str) -> None:
    name = f".{unique[-8:]}"
    client = SchemaRegistryClient({"url": f"{broker.registry}/contexts/{name}"})
    assert client.register_schema("users", avro(a="int")) == 1
    assert client.get_versions("users") == [1]
    assert fresh(broker).get_latest_version(f":{name}:users").schema_id == 1
    assert name in fresh(broker).get_contexts()


# Crashes


def test_every_id_that_was_told_outlives_kill_9(start_broker: StartBroker) -> None:
    node = start_broker()
    told: dict[str, int] = {}
    stopped = threading.Event()

    def register(worker: int) -> None:
        chance = random.Random(worker)
        with httpx.Client(base_url=node.registry, timeout=5) as client:
            while not stopped.is_set():
                number = chance.randrange(400)
                body = {"schema": avro(f"R{number % 100}", a="int").schema_str}
                try:
                    answer = client.post(f"/subjects/s{number}/versions", json=body)
                except httpx.HTTPError:
                    stopped.wait(0.02)  # the node is down
                    continue
                if answer.status_code == httpx.codes.OK:
                    assert told.setdefault(f"s{number}", answer.json()["id"]) == answer.json()["id"]

    with ThreadPoolExecutor() as workers:
        working = [workers.submit(register, number) for number in range(4)]
        try:
            for _ in range(3):
                before = len(told)
                eventually(lambda: len(told) > before + 20, because="ids were told", within=30)  # noqa: B023
                node.kill()
                node.start()
        finally:
            stopped.set()
    assert [one.exception() for one in working] == [None] * 4
    node.kill()
    node.start()
    by_schema: dict[str, set[int]] = {}
    with httpx.Client(base_url=node.registry) as client:

        def latest(subject: str) -> dict[str, Any] | None:
            answer = client.get(f"/subjects/{subject}/versions/latest")
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                return None  # Nodes that have just started ask for a retry until one of them leads.
            return dict(answer.raise_for_status().json())

        for subject, schema_id in told.items():
            assert eventually(partial(latest, subject))["id"] == schema_id
            by_schema.setdefault(f"R{int(subject[1:]) % 100}", set()).add(schema_id)
    assert all(len(ids) == 1 for ids in by_schema.values()), "one schema has two ids"
    assert len(set.union(*by_schema.values())) == len(by_schema), "two schemas have one id"


def test_ids_outlive_compaction_and_a_restart(start_broker: StartBroker) -> None:
    node = start_broker({"compaction.check_ms": 200, "compaction.dirty_ratio_min": 0.01})
    client = fresh(node)
    kept = client.register_schema("kept", avro("Kept", a="int"))
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    small = [
        ConfigEntry("segment.bytes", "1024", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("segment.ms", "500", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ResourceType.TOPIC, "__schemas", incremental_configs=small)
    admin.incremental_alter_configs([resource])[resource].result()
    for number in range(100):
        client.set_compatibility("kept", LEVELS[number % len(LEVELS)])
    gone = client.register_schema("gone", avro("Gone", a="int"))
    client.delete_subject("gone")
    client.delete_subject("gone", permanent=True)
    folder = node.data_dir / "logs" / "__schemas" / "0"

    def size() -> int:
        total = 0
        for one in folder.glob("*.log"):
            with suppress(FileNotFoundError):  # Compaction replaces files at any time.
                total += one.stat().st_size
        return total

    before = size()
    client.set_compatibility("kept", "FULL")
    eventually(lambda: size() < before / 2, because="the topic was compacted", within=30)
    for end in (node.stop, node.kill):
        end()
        node.start()
        assert fresh(node).get_latest_version("kept").schema_id == kept
        assert fresh(node).get_compatibility("kept") == "FULL"
    assert fresh(node).register_schema("next", avro("Next", a="int")) == gone + 1
