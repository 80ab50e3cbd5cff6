"""Transactions over HTTP and in the Python client, on a real node that is also killed."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import httpx
import pytest

from goqueue import AsyncClient, Client
from goqueue.client.http import AsyncTransaction, ReceivedMessage, Transaction
from goqueue.model.errors import FencedProducer, InvalidRequest, StaleReceipt
from goqueue.model.names import TopicPartition

from .conftest import NewTopicName, StartBroker
from .process import Broker
from .transacting import SECONDS_MAX, transactional
from .waiting import eventually


class Api:
    """A plain HTTP client, to see what is on the wire."""

    def __init__(self, node: Broker) -> None:
        self._http = httpx.Client(base_url=node.http, timeout=30)

    def post(self, path: str, body: dict[str, Any] | None = None, *, status: int = 200) -> Any:
        answer = self._http.post(path, json=body or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, *, status: int = 200, **query: Any) -> Any:
        answer = self._http.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def begin(self, **body: Any) -> str:
        begun: str = self.post("/v1/transactions", body, status=201)["id"]
        return f"/v1/transactions/{begun}"

    def publish(self, transaction: str, topic: str, *values: str, **fields: Any) -> Any:
        messages = [{"topic": topic, "value": value, **fields} for value in values]
        return self.post(f"{transaction}/publish", {"messages": messages})

    def receive(self, topic: str, group: str, **body: Any) -> list[dict[str, Any]]:
        path = f"/v1/groups/{group}/receive"
        # In a cluster the owner of a group may hear of a message a moment after it is stored.
        asked = {"topic": topic, "wait_ms": 5_000, **body}
        # After a restart of all its nodes, replicas catch up before a lease can be committed.
        answer = eventually(lambda: self._unless_retryable(path, asked), because="it is answered")
        found: list[dict[str, Any]] = answer["messages"]
        return found

    def _unless_retryable(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(path, json=body)
        if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE and answer.json()["retryable"]:
            return None
        assert answer.status_code == HTTPStatus.OK, answer.text
        return answer.json()

    def ack(self, transaction: str, group: str, messages: list[dict[str, Any]]) -> Any:
        receipts = [one["receipt"] for one in messages]
        return self.post(f"{transaction}/ack", {"group": group, "receipts": receipts})

    def values(self, topic: str, **query: Any) -> list[str]:
        found = self.get(f"/v1/topics/{topic}/messages", limit=1000, **query)
        return [one["value"] for one in found["messages"]]


@pytest.fixture
def api(broker: Broker) -> Api:
    return Api(broker)


# On the wire


@pytest.mark.on_cluster
def test_a_transaction_is_seen_with_its_commit(api: Api, new_topic: NewTopicName) -> None:
    first, second = new_topic(partitions=3), new_topic()
    transaction = api.begin(timeout_ms=30_000)
    assert api.publish(transaction, first, "a", "b")["failed"] == 0
    assert api.publish(transaction, second, "c")["results"][0]["published"]["topic"] == second
    assert api.values(first) + api.values(second) == []
    assert api.values(second, isolation="uncommitted") == ["c"]
    shown = api.get(transaction)
    assert (shown["state"], shown["superseded"]) == ("ongoing", False)
    assert {one["topic"] for one in shown["participants"]} == {first, second}
    for _ in range(2):
        assert api.post(f"{transaction}/commit")["outcome"] == "committed"
        assert sorted(api.values(first)) + api.values(second) == ["a", "b", "c"]
    assert api.get(transaction)["state"] == "complete_commit"
    problem = api.post(f"{transaction}/abort", status=409)
    assert problem["code"] == "invalid_transaction_state"


def test_an_abort_leaves_nothing_and_readers_go_on(api: Api, new_topic: NewTopicName) -> None:
    topic = new_topic()
    transaction = api.begin()
    api.publish(transaction, topic, "never")
    assert api.post(f"{transaction}/abort")["outcome"] == "aborted"
    assert api.post(f"{transaction}/abort")["outcome"] == "aborted"
    api.post(f"/v1/topics/{topic}/publish", {"value": "plain"})
    assert api.values(topic) == ["plain"]
    assert api.values(topic, isolation="uncommitted") == ["never", "plain"]
    messages = api.receive(topic, f"g-{topic}")
    assert [one["value"] for one in messages] == ["plain"]


def test_one_bad_message_refuses_the_call_and_says_which(api: Api, new_topic: NewTopicName) -> None:
    topic = new_topic()
    transaction = api.begin()
    messages = [{"topic": topic, "value": "a"}, {"topic": "__delivery", "value": "b"}]
    answer = api.post(f"{transaction}/publish", {"messages": messages})
    assert answer["failed"] == 2
    codes = [one["problem"]["code"] for one in answer["results"]]
    assert codes[0] == "invalid_request"
    assert codes[1] in ("internal_topic", "unknown_topic")
    assert "message 1 of the same call" in answer["results"][0]["problem"]["detail"]
    bad = [{"topic": topic, "value": "?", "value_encoding": "base64"}]
    assert api.post(f"{transaction}/publish", {"messages": bad})["failed"] == 1
    api.publish(transaction, topic, "good")
    api.post(f"{transaction}/commit")
    assert api.values(topic) == ["good"]


def test_refusals_are_clear(api: Api, new_topic: NewTopicName, unique: str) -> None:
    topic = new_topic()
    assert api.post("/v1/transactions/nonsense/commit", status=404)["code"] == "unknown_transaction"
    body = {"timeout_ms": 10_000_000}
    problem = api.post("/v1/transactions", body, status=400)
    assert problem["code"] == "invalid_transaction_timeout"
    old = api.begin(transactional_id=unique)
    api.publish(old, topic, "old")
    new = api.begin(transactional_id=unique)
    problem = api.post(f"{old}/commit", status=409)
    assert problem["code"] == "fenced_producer"
    assert "timed out, or another producer has taken over" in problem["detail"]
    assert api.get(old)["superseded"] is True
    api.publish(new, topic, "new")
    found = api.get("/v1/transactions", prefix=unique, state="ongoing")
    assert [one["transactional_id"] for one in found["transactions"]] == [unique]
    assert found["total"] == 1
    listed = found["transactions"][0]["id"]
    assert api.post(f"/v1/transactions/{listed}/abort")["outcome"] == "aborted"
    assert api.get("/v1/transactions", prefix=unique, state="ongoing")["total"] == 0
    assert api.values(topic) == []
    stale = {"group": "nobody-has-this", "receipts": ["x"]}
    assert api.post(f"{api.begin()}/ack", stale, status=404)["code"] == "unknown_group"


def test_a_transaction_that_is_left_open_times_out(api: Api, new_topic: NewTopicName) -> None:
    topic = new_topic()
    transaction = api.begin(timeout_ms=300)
    api.publish(transaction, topic, "a")
    eventually(lambda: api.get(transaction)["state"] == "complete_abort")
    assert api.post(f"{transaction}/commit", status=409)["code"] == "fenced_producer"
    assert api.values(topic) == []


def test_delayed_messages_are_scheduled_by_the_commit(api: Api, new_topic: NewTopicName) -> None:
    topic = new_topic()
    kept, dropped = api.begin(), api.begin()
    result = api.publish(kept, topic, "kept", delay_ms=300)["results"][0]["published"]
    api.publish(dropped, topic, "dropped", delay_ms=300)
    path = f"/v1/schedules/{result['schedule_id']}"
    assert api.get(path, status=404)["code"] == "unknown_schedule"
    assert api.get("/v1/schedules/count", topic=topic)["count"] == 0
    api.post(f"{kept}/commit")
    api.post(f"{dropped}/abort")
    eventually(lambda: api.values(topic) == ["kept"])
    eventually(lambda: api.get("/v1/schedules/count", topic=topic)["count"] == 0)


def test_kafka_producers_schedule_in_transactions_too(
    api: Api, bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    producer = transactional(bootstrap, unique, linger_ms=0)
    for name, is_commit in (("kept", True), ("dropped", False), ("more", True)):
        producer.begin_transaction()
        failures: list[object] = []
        for number in range(20):
            headers = [("goqueue-delay-ms", b"400")] if number % 2 else []
            producer.produce(
                topic,
                f"{name}-{number}".encode(),
                headers=headers,
                on_delivery=lambda error, _: failures.append(error) if error else None,  # noqa: B023
            )
            producer.poll(0)
        assert producer.flush(SECONDS_MAX) == 0
        assert not failures
        assert api.get("/v1/schedules/count", topic=topic)["count"] in (0, 10)
        if is_commit:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)
    wanted = [f"{name}-{number}" for name in ("kept", "more") for number in range(20)]
    eventually(lambda: len(api.values(topic)) == len(wanted))
    assert sorted(api.values(topic)) == sorted(wanted)
    now = [f"kept-{number}" for number in range(0, 20, 2)]
    assert [one for one in api.values(topic) if one in now] == now


# Killed


def test_an_ack_and_a_publish_are_done_together_although_the_node_is_killed(
    start_broker: StartBroker,
) -> None:
    node = start_broker()
    api = Api(node)
    for name in ("in", "out"):
        api.post("/v1/topics", {"name": name, "partitions": 1}, status=201)
    for value in ("a", "b", "c"):
        api.post("/v1/topics/in/publish", {"value": value})
    one, two = (api.receive("in", "g", max_messages=1, visibility_ms=60_000) for _ in range(2))
    committed, aborted = api.begin(transactional_id="one"), api.begin(transactional_id="two")
    for transaction, messages in ((committed, one), (aborted, two)):
        assert api.ack(transaction, "g", messages)["failed"] == 0
        api.publish(transaction, "out", f"out of {messages[0]['value']}")
        api.publish(transaction, "out", f"later of {messages[0]['value']}", delay_ms=100)
    node.kill()
    node.start()
    api = Api(node)
    [last] = api.receive("in", "g", visibility_ms=60_000)
    assert last["value"] == "c"
    stats = api.get("/v1/groups/g/stats", topic="in")
    assert (stats["prepared"], stats["in_flight"]) == (2, 3)
    states = [each["state"] for each in api.get("/v1/groups/g/peek", topic="in")["messages"]]
    assert states == ["prepared", "prepared", "leased"]
    assert api.ack(committed, "g", two)["results"][0]["problem"]["code"] == "stale_receipt"
    api.post(f"{committed}/commit")
    api.post(f"{aborted}/abort")
    again = api.receive("in", "g")
    assert [(each["value"], each["attempt"]) for each in again] == [("b", 2)]
    eventually(lambda: len(api.values("out")) == 2)
    node.kill()
    node.start()
    api = Api(node)
    api.post(f"{committed}/commit")
    assert sorted(api.values("out")) == ["later of a", "out of a"]
    assert api.receive("in", "g") == []
    held = [last["receipt"], again[0]["receipt"]]
    assert api.post("/v1/groups/g/nack", {"receipts": held, "delay_ms": 0})["failed"] == 0
    messages = api.receive("in", "g", wait_ms=2000)
    assert sorted(each["value"] for each in messages) == ["b", "c"]


# The Python client


def test_leaving_the_block_commits_and_an_error_aborts(
    broker: Broker, new_topic: NewTopicName, group: str
) -> None:
    source, target = new_topic(), new_topic()
    with Client(broker.http) as client:
        client.publish_many(source, ["1", "2"])
        queue = client.queue(source, group=group)
        with client.transaction() as transaction:
            (message,) = queue.receive(1, wait=5)
            published = transaction.publish(target, message.value, key="k", delay=0.05)
            assert published.is_scheduled
            assert len(transaction.publish_many(target, ["x"] * 1500)) == 1500
            transaction.ack(message)
        eventually(lambda: sum(1 for _ in client.read(target)) == 1501)
        (message,) = queue.receive(1, wait=5)
        with pytest.raises(ZeroDivisionError):
            _fail_in(client.transaction("named"), target, message)
        (again,) = queue.receive(1, wait=5)
        assert (again.text, again.attempt) == ("2", 2)
        with pytest.raises(StaleReceipt), client.transaction() as transaction:
            transaction.ack(message)
        with client.transaction() as transaction:
            transaction.ack(again)
            transaction.abort()
            with pytest.raises(InvalidRequest, match="has ended"):
                transaction.publish(target, "late")
        assert sum(1 for _ in client.read(target)) == 1501
        assert client.transactions.list_all(prefix="named")[0].state == "complete_abort"


def _fail_in(transaction: Transaction, target: str, message: ReceivedMessage) -> None:
    with transaction:
        transaction.publish(target, "never")
        transaction.ack(message)
        raise ZeroDivisionError


async def _fail_while(transaction: AsyncTransaction, target: str) -> None:
    async with transaction:
        await transaction.publish(target, "never")
        raise ZeroDivisionError


async def _be_overtaken(client: AsyncClient, target: str) -> None:
    async with client.transaction("a-writer") as old:
        await old.publish(target, "never either")
        async with client.transaction("a-writer") as new:
            await new.publish(target, "two")


@pytest.mark.on_cluster
def test_offsets_of_a_stream_group_count_with_the_commit(
    broker: Broker, new_topic: NewTopicName, group: str
) -> None:
    source, target = new_topic(), new_topic()
    with Client(broker.http) as client:
        client.publish_many(source, ["1", "2", "3"])
        with client.stream_consumer(source, group=group, auto_commit=False) as consumer:
            messages = consumer.poll(wait=20)
            with client.transaction() as transaction:
                for message in messages:
                    transaction.publish(target, message.text + "!")
                transaction.commit_offsets(consumer, messages)
                assert client.groups.offsets(group) == []
            assert [one.offset for one in client.groups.offsets(group)] == [3]
        with client.transaction() as transaction:
            transaction.commit_offsets(group, {TopicPartition(source, 0): 1})
            transaction.abort()
        assert [one.offset for one in client.groups.offsets(group)] == [3]
        assert [one.text for one in client.read(target)] == ["1!", "2!", "3!"]


def test_coroutines_have_the_same(broker: Broker, new_topic: NewTopicName, group: str) -> None:
    source, target = new_topic(), new_topic()

    async def run() -> None:
        async with AsyncClient(broker.http) as client:
            await client.publish(source, "one")
            queue = client.queue(source, group=group)
            (message,) = await queue.receive(1, wait=5)
            async with client.transaction(timeout=20) as transaction:
                await transaction.publish(target, message.value)
                await transaction.ack(message)
                await transaction.commit_offsets(f"{group}-stream", {TopicPartition(source, 0): 1})
            assert [one.text async for one in client.read(target)] == ["one"]
            assert (await queue.stats()).totals.acked == 1
            assert [one.offset for one in await client.groups.offsets(f"{group}-stream")] == [1]
            with pytest.raises(ZeroDivisionError):
                await _fail_while(client.transaction("a-writer"), target)
            with pytest.raises(FencedProducer):
                await _be_overtaken(client, target)
            assert [one.text async for one in client.read(target)] == ["one", "two"]

    asyncio.run(run())
