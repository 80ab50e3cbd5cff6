"""`goqueue txn` against a real broker, as an operator types it."""

from __future__ import annotations

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException

from .test_cli import GoQueue, environment, goqueue
from .transacting import READ_COMMITTED, SENTINEL, Write, put, read_confluent, transactional
from .waiting import eventually

__all__ = ["environment", "goqueue"]


def test_transactions_are_listed_and_described(
    goqueue: GoQueue, bootstrap: str, topic: str, unique: str
) -> None:
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, b"open")])
    found = goqueue("txn", "list", "--pattern", unique).table
    assert [row[:2] for row in found] == [[unique, "Ongoing"]]
    producer_id = found[0][2]
    found = goqueue("txn", "list", "--state", "Ongoing", "--producer-id", producer_id).table
    assert [row[:3] for row in found] == [[unique, "Ongoing", producer_id]]
    assert goqueue("txn", "list", "--pattern", unique, "--older-than", "1h").out == (
        "No transaction matches.\n"
    )
    described = goqueue("txn", "describe", unique, "-o", "json").json
    assert described["state"] == "Ongoing"
    assert described["partitions"] == [f"{topic}/0"]
    assert described["timeout_ms"] == 30_000
    assert described["started"].endswith("Z")
    as_yaml = yaml.safe_load(goqueue("txn", "describe", unique, "-o", "yaml").out)
    assert as_yaml == described
    producer.commit_transaction(30)
    eventually(
        lambda: ["state", "CompleteCommit"] in goqueue("txn", "describe", unique).table,
        because="the markers are written",
    )


def test_an_operator_aborts_a_transaction_and_its_producer_is_fenced(
    goqueue: GoQueue, bootstrap: str, topic: str, unique: str
) -> None:
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, b"stuck")])
    refused = goqueue("txn", "abort", unique, stdin="n\n", code=1)
    assert f"Abort the transaction of {unique} (ongoing, 1 partition)" in refused.out
    done = goqueue("txn", "abort", unique, "--yes")
    assert done.out == f"The transaction of {unique} is aborted.\n"
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(30)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    after = transactional(bootstrap, unique)
    after.begin_transaction()
    put(after, [Write(topic, SENTINEL)])
    after.commit_transaction(30)
    assert read_confluent(bootstrap, topic, 0, READ_COMMITTED) == [SENTINEL]


def test_what_cannot_be_aborted_is_said(goqueue: GoQueue, bootstrap: str, unique: str) -> None:
    transactional(bootstrap, unique)
    idle = goqueue("txn", "abort", unique, "--yes", code=1)
    assert idle.err.endswith(f"{unique} has no open transaction (it is Empty).\n")
    unknown = goqueue("txn", "abort", f"{unique}-unknown", "--yes", code=1)
    assert f"There is no transactional id '{unique}-unknown'" in unknown.err
    assert "Give a transactional id" in goqueue("txn", "abort", code=1).err
    both = goqueue("txn", "abort", unique, "--topic", "orders", code=1)
    assert "not both" in both.err


def test_what_a_coordinator_knows_does_not_hang(
    goqueue: GoQueue, bootstrap: str, topic: str, unique: str
) -> None:
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, b"open")])
    found = goqueue("txn", "list", "--hanging", "--older-than", "0ms", "-o", "json").json
    assert [row for row in found if row["topic"] == topic] == []
    words = ("txn", "abort", "--topic", topic, "-p", "0", "--start-offset", "17", "--yes")
    refused = goqueue(*words, code=1)
    assert f"No open transaction begins at offset 17 of {topic}/0" in refused.err
    producer.abort_transaction(30)
