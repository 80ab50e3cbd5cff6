"""Topics written by the stock serializers of schema registries, in the three languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from tests.integration.process import Broker

Serialize = Callable[[Any, SerializationContext], bytes | None]


def registry_of(broker: Broker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": broker.registry})


def avro(broker: Broker, schema: object) -> Serialize:
    return AvroSerializer(registry_of(broker), json.dumps(schema))


def json_schema(broker: Broker, schema: object) -> Serialize:
    return JSONSerializer(json.dumps(schema), registry_of(broker))


def protobuf(broker: Broker, message: Any) -> Serialize:
    return ProtobufSerializer(message, registry_of(broker), {"use.deprecated.format": False})


def messages(folder: Path, text: str) -> dict[str, Any]:
    """The message classes of a .proto text, by their full names, as protoc compiles them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "typed.proto").write_text(text)
    out = folder / "typed.bin"
    known = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{folder}", f"-I{known}", "--include_imports"]
    assert protoc.main([*arguments, f"--descriptor_set_out={out}", "typed.proto"]) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name for file in files], pool)


def send(
    broker: Broker,
    topic: str,
    values: Iterable[Any],
    to_bytes: Serialize | None,
    *,
    key_to_bytes: Serialize | None = None,
    keys: Iterable[Any] | None = None,
    partition: int = 0,
) -> None:
    """Values to one partition in their order; without a serializer they are bytes already."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    value_context = SerializationContext(topic, MessageField.VALUE)
    key_context = SerializationContext(topic, MessageField.KEY)
    given = list(values)
    for value, key in zip(given, keys or [None] * len(given), strict=True):
        producer.produce(
            topic,
            value if to_bytes is None or value is None else to_bytes(value, value_context),
            key=key if key_to_bytes is None or key is None else key_to_bytes(key, key_context),
            partition=partition,
        )
    assert producer.flush(30) == 0
