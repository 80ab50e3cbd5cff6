"""A transaction as a block: what is sent when, and what happens when answers are lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from goqueue.client.errors import ConnectionLost
from goqueue.client.http.messages import Message, ReceivedMessage
from goqueue.client.http.settings import HttpSettings, RetrySettings
from goqueue.client.http.transactions import AsyncTransaction, Script, Transaction
from goqueue.client.http.transport import AsyncTransport, Transport
from goqueue.model.errors import (
    InvalidRequest,
    StaleReceipt,
    TransactionAbortable,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.carrier.problems import problem_of

SETTINGS = HttpSettings(retry=RetrySettings(backoff_ms_min=1, backoff_ms_max=1, retries_max=3))
LOST = httpx.ReadError("gone")
BEGUN = {
    "id": "T",
    "transactional_id": "writer",
    "producer_id": 1,
    "producer_epoch": 0,
    "timeout_ms": 5,
}


class Node:
    """Answers each kind of request as it is told, and well by default."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.seen: list[str] = []
        self.bodies: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        verb = request.url.path.rpartition("/")[2]
        self.seen.append(verb)
        self.bodies.append(json.loads(request.content or b"{}"))
        told = self.answers.get(verb, [])
        answer = told.pop(0) if told else self._good(verb)
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return httpx.Response(status, content=json.dumps(body).encode())

    def _good(self, verb: str) -> tuple[int, Any]:
        body = self.bodies[-1]
        if verb == "transactions":
            return 201, BEGUN
        if verb == "publish":
            stored = {"topic": "t", "id": "t:0:0", "partition": 0, "offset": 0, "timestamp": 1}
            results = [{"published": stored} for _ in body["messages"]]
            return 200, {"results": results, "failed": 0}
        if verb == "ack":
            results = [{"receipt": one} for one in body["receipts"]]
            return 200, {"results": results, "failed": 0}
        if verb == "offsets":
            places = [{"topic": one["topic"], "partition": 0} for one in body["offsets"]]
            return 200, {"results": places, "failed": 0}
        return 200, {"id": "T", "outcome": verb}

    def transaction(self) -> Transaction:
        transport = Transport(
            "h:1", SETTINGS, network=httpx.MockTransport(self), sleep=lambda _: None
        )
        return Transaction(transport, Script("writer", 5))


def message(offset: int, group: str = "g") -> ReceivedMessage:
    return ReceivedMessage(
        id=f"t:0:{offset}",
        topic="t",
        partition=0,
        offset=offset,
        timestamp_ms=0,
        key=None,
        value=b"v",
        receipt=f"r{offset}",
        group=group,
        priority="normal",
        attempt=1,
        lease_until_ms=0,
    )


def refusal(error: Exception) -> dict[str, Any]:
    told = problem_of(error)  # type: ignore[arg-type]
    return {
        "type": told.type,
        "title": told.title,
        "status": told.status,
        "detail": told.detail,
        "code": told.code,
        "retryable": told.retryable,
    }


def test_the_block_begins_works_and_commits() -> None:
    node = Node()
    with node.transaction() as transaction:
        assert (transaction.id, transaction.transactional_id) == ("T", "writer")
        transaction.publish("t", b"\xff", delay=1)
        transaction.ack(message(1), message(2, "h"), message(3))
        transaction.commit_offsets("g", [message(4), message(3)])
    assert node.seen == ["transactions", "publish", "ack", "ack", "offsets", "commit"]
    assert node.bodies[0] == {"transactional_id": "writer", "timeout_ms": 5000}
    assert node.bodies[1]["messages"][0]["topic"] == "t"
    assert [one["receipts"] for one in node.bodies[2:4]] == [["r1", "r3"], ["r2"]]
    assert node.bodies[4]["offsets"][0]["offset"] == 5


def test_an_error_aborts_and_is_not_hidden_by_another() -> None:
    node = Node(abort=[LOST] * 9)

    def fail() -> None:
        with node.transaction():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert node.seen == ["transactions"] + ["abort"] * 4


@pytest.mark.parametrize("verb", ["publish", "ack"])
def test_a_lost_answer_inside_is_not_asked_for_again(verb: str) -> None:
    node = Node(**{verb: [LOST]})

    def work() -> None:
        with node.transaction() as transaction:
            transaction.ack(message(1)) if verb == "ack" else transaction.publish("t", "v")

    with pytest.raises(ConnectionLost):
        work()
    assert node.seen == ["transactions", verb, "abort"]


def test_a_lost_commit_is_repeated_and_left_alone_when_that_does_not_help() -> None:
    node = Node(commit=[LOST, LOST])
    with node.transaction() as transaction:
        transaction.publish("t", "v")
    assert node.seen == ["transactions", "publish", "commit", "commit", "commit"]
    node = Node(commit=[LOST] * 9)
    with pytest.raises(ConnectionLost), node.transaction():
        pass
    assert node.seen == ["transactions"] + ["commit"] * 4


def test_refusals_of_single_items_abort() -> None:
    unknown = {"results": [{"problem": refusal(UnknownTopic("t"))}], "failed": 1}
    stale = {"results": [{"receipt": "r1", "problem": refusal(StaleReceipt())}], "failed": 1}
    node = Node(publish=[(200, unknown)], ack=[(200, stale)])
    with pytest.raises(UnknownTopic), node.transaction() as transaction:
        transaction.publish("t", "v")
    with pytest.raises(StaleReceipt), node.transaction() as transaction:
        transaction.ack(message(1))
    assert node.seen == ["transactions", "publish", "abort", "transactions", "ack", "abort"]


def test_what_can_only_be_aborted_is() -> None:
    node = Node(commit=[(409, refusal(TransactionAbortable("half")))])
    with pytest.raises(TransactionAbortable), node.transaction():
        pass
    assert node.seen == ["transactions", "commit", "abort"]


def test_an_end_inside_the_block_is_the_end() -> None:
    node = Node()
    with node.transaction() as transaction:
        transaction.commit()
        with pytest.raises(InvalidRequest, match="has ended"):
            transaction.publish("t", "v")
    with node.transaction() as transaction:
        transaction.abort()
        transaction.abort()
    assert node.seen == ["transactions", "commit", "transactions", "abort"]
    with pytest.raises(InvalidRequest, match="not begun"):
        node.transaction().publish("t", "v")
    with pytest.raises(InvalidRequest, match="used once"), transaction:
        pass


def test_coroutines_do_the_same() -> None:
    node = Node()

    async def run() -> None:
        transport = AsyncTransport("h:1", SETTINGS, network=httpx.MockTransport(node))
        async with AsyncTransaction(transport, Script(None, 5)) as transaction:
            await transaction.publish("t", "v")
            await transaction.publish_many("t", ["v"] * 3)
            await transaction.ack(message(1))
            await transaction.commit_offsets("g", {TopicPartition("t", 0): 3})
            await transaction.commit_offsets("g", _nothing())
        async with AsyncTransaction(transport, Script(None, 5)) as transaction:
            await transaction.abort()
        await transport.close()

    asyncio.run(run())
    first = ["transactions", "publish", "publish", "ack", "offsets", "commit"]
    assert node.seen == [*first, "transactions", "abort"]


def _nothing() -> list[Message]:
    return []
