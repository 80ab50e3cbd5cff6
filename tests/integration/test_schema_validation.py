"""Topics that ask for schemas, with a stock producer, over HTTP and from the command line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from goqueue import Client
from goqueue.client.http import Outgoing, PartlyPublished
from goqueue.model.errors import SchemaMismatch

from .conftest import NewTopicName
from .process import Broker
from .topics import watermarks

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
    }
)


@pytest.fixture
def registry(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry}) as client:
        yield client


@pytest.fixture
def strict(new_topic: NewTopicName) -> str:
    return new_topic(**{"schema.validation": "value"})


def outcomes(bootstrap: str, topic: str, *values: bytes) -> list[KafkaError | None]:
    """Produce all values in one batch; the error of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "retries": 0})
    found: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: found.append(error))
    producer.flush(30)
    assert len(found) == len(values)
    return found


@pytest.mark.on_cluster
def test_a_stock_producer_is_refused_what_does_not_obey(
    registry: SchemaRegistryClient, bootstrap: str, strict: str
) -> None:
    write = AvroSerializer(registry, USER)
    good = write({"name": "Ada", "age": 36}, SerializationContext(strict, MessageField.VALUE))
    assert outcomes(bootstrap, strict, good, good) == [None, None]
    refused = outcomes(bootstrap, strict, good, good[:6])
    assert all(one is not None for one in refused), "a batch is refused whole"
    assert {one.code() for one in refused if one} <= {
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
    assert any(one.code() == KafkaError.INVALID_RECORD for one in refused if one)
    assert outcomes(bootstrap, strict, b"bare")[0] is not None
    assert watermarks(bootstrap, strict)[1] == 2


def test_messages_over_http_are_judged_one_by_one(
    registry: SchemaRegistryClient, broker: Broker, strict: str
) -> None:
    write = AvroSerializer(registry, USER)
    good = write({"name": "Ada", "age": 36}, SerializationContext(strict, MessageField.VALUE))
    with Client(broker.http) as client:
        with pytest.raises(SchemaMismatch, match=r"\$\.age"):
            client.publish(strict, good[:-1])
        with pytest.raises(PartlyPublished) as partly:
            client.publish_many(strict, [Outgoing(good), Outgoing(b"bare"), Outgoing(good)])
        assert len([one for one in partly.value.outcomes if isinstance(one, SchemaMismatch)]) == 1
        assert [one.value for one in client.read(strict)] == [good, good]


def test_a_transaction_is_judged_too(
    registry: SchemaRegistryClient, broker: Broker, bootstrap: str, strict: str
) -> None:
    write = AvroSerializer(registry, USER)
    good = write({"name": "Ada", "age": 36}, SerializationContext(strict, MessageField.VALUE))
    told = {"topic": strict, "value": base64.b64encode(good).decode(), "value_encoding": "base64"}
    with httpx.Client(base_url=broker.http) as http:
        path = f"/v1/transactions/{http.post('/v1/transactions', json={}).json()['id']}"
        messages = [told, {"topic": strict, "value": "bare"}]
        refused = http.post(f"{path}/publish", json={"messages": messages}).json()
        assert refused["failed"] == 2
        assert refused["results"][1]["problem"]["code"] == "schema_mismatch"
        assert http.post(f"{path}/publish", json={"messages": [told]}).json()["failed"] == 0
        assert http.post(f"{path}/commit", json={}).status_code < 300
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": strict})
    producer.init_transactions(30)
    producer.begin_transaction()
    outcome: list[KafkaError | None] = []
    producer.produce(strict, b"bare", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(30)
    assert outcome[0] is not None
    assert outcome[0].code() == KafkaError.INVALID_RECORD
    producer.abort_transaction(30)
    with Client(broker.http) as client:
        assert [one.value for one in client.read(strict)] == [good]
