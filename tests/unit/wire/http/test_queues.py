"""Queue groups over HTTP."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.broker.queues.queues import Queues
from goqueue.broker.queues.records import ReceivedRun
from goqueue.delivery import LANE_NAMES, Unacked
from goqueue.delivery.leases import Leases, Receipts
from goqueue.loop.promise import Promise
from goqueue.model import decode_reference, decoding
from goqueue.model.batch import HEADER_BYTES, Record, encode_batch, read_header
from goqueue.model.columns import decode_columns
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.wire.http.bodies import queues as bodies
from goqueue.wire.http.fields import Encoding
from goqueue.wire.http.handlers import receiving
from goqueue.wire.http.handlers.receiving import all_settled_json, run_json
from goqueue.wire.http.messages import message_fields
from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request

GROUP = "/v1/groups/workers"


@pytest.fixture(autouse=True)
def _orders(world: World) -> None:
    world.create("orders", 2)


def receive(client: Client, count: int = 10, **more: Any) -> list[dict[str, Any]]:
    body = {"topic": "orders", "max_messages": count, **more}
    messages: list[dict[str, Any]] = client.post(f"{GROUP}/receive", body)["messages"]
    return messages


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [one["value"] for one in messages]


def receipts(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"receipts": [one["receipt"] for one in messages]}


def test_a_message_is_received_once_and_acknowledged(world: World, client: Client) -> None:
    world.produce("orders", ["a", "b"])
    messages = receive(client)
    assert values(messages) == ["a", "b"]
    first = messages[0]
    assert (first["id"], first["attempt"], first["priority"]) == ("orders:0:0", 1, "normal")
    assert first["leased_until"] > world.broker.clock.now_ms()
    assert receive(client) == []
    settled = client.post(f"{GROUP}/ack", receipts(messages))
    assert settled["failed"] == 0
    assert [set(one) for one in settled["results"]] == [{"receipt"}, {"receipt"}]
    world.run_for(60_000)
    assert receive(client) == []


contents = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode))
headers = st.lists(st.tuples(st.text(min_size=1, max_size=5), contents), max_size=2).map(tuple)


@pytest.mark.parametrize("decoder", [decode_reference, decoding.decoder])
@given(
    st.lists(st.builds(Record, contents, contents, headers, st.integers(0, 1 << 45)), min_size=1),
    st.sampled_from(["utf8", "base64"]),
    st.data(),
)
def test_messages_shown_together_are_what_each_is_alone(
    decoder: ModuleType, records: list[Record], encoding: Encoding, data: st.DataObject
) -> None:
    batch = encode_batch(records, base_offset=70)
    columns = decode_columns(read_header(batch), batch[HEADER_BYTES:])
    first = data.draw(st.integers(0, len(records) - 1))
    picked: range | list[int] = range(first, len(records))
    if data.draw(st.booleans()):
        picked = sorted(data.draw(st.sets(st.sampled_from(range(len(records))), min_size=1)))
    offsets = [70 + place for place in picked]
    lease, _ = Leases(Receipts(1), Unacked()).grant(
        "anna",
        3,
        [1, 2, *offsets],
        [1, 1, *range(2, 2 + len(offsets))],
        bytes(place % 5 for place in range(2 + len(offsets))),
        now_ms=4000,
        until_ms=5000,
    )
    run = ReceivedRun(columns, picked, lease, 2)
    with mock.patch.object(receiving, "decoder", decoder):
        shown = b"[%s]" % run_json(b'"orders"', run, encoding)
    alone = []
    for index, place in enumerate(picked, 2):
        delivery = lease.delivery(index)
        alone.append(
            bodies.ReceivedMessage(
                **message_fields("orders", 3, columns.record(place), encoding),
                receipt=delivery.receipt,
                priority=LANE_NAMES[delivery.lane],  # type: ignore[arg-type]
                attempt=delivery.attempt,
                leased_until=delivery.until_ms,
            )
        )
    assert shown == msgspec.json.encode(alone)


def test_messages_can_be_received_without_their_contents(world: World, client: Client) -> None:
    for body in ({"key": "k", "value": "a", "priority": "high"}, {"value": "b"}):
        headers = [{"name": "n", "value": "v"}]
        message = {**body, "partition": 1, "headers": headers}
        client.post("/v1/topics/orders/publish", message)
    messages = receive(client, bodies=False)
    assert [(one["id"], one["priority"], one["attempt"]) for one in messages] == [
        ("orders:1:0", "high", 1),
        ("orders:1:1", "normal", 1),
    ]
    contents = {(one["key"], one["value"], tuple(one["headers"])) for one in messages}
    assert contents == {(None, None, ())}
    for one in messages:
        msgspec.convert(one, bodies.ReceivedMessage)
    assert client.post(f"{GROUP}/nack", {**receipts(messages), "delay_ms": 0})["failed"] == 0
    again = receive(client)
    assert values(again) == ["a", "b"]
    assert set(again[0]) == set(messages[0])


@pytest.mark.parametrize("count", [1, 3])
def test_receipts_that_all_held_are_shown_as_a_body_would_be(count: int) -> None:
    receipts = [f"receipt-{number}_" for number in range(count)]
    results = [bodies.ReceiptResult(one) for one in receipts]
    expected = bodies.Settled(results=results, failed=0)
    assert all_settled_json(receipts) == msgspec.json.encode(expected)


def test_a_receipt_that_is_no_good_is_refused_alone(world: World, client: Client) -> None:
    world.produce("orders", ["a", "b"])
    one, two = receive(client)
    client.post(f"{GROUP}/ack", receipts([one]))
    sent = [one["receipt"], "nonsense", two["receipt"]]
    settled = client.post(f"{GROUP}/ack", {"receipts": sent})
    assert [one.get("problem", {}).get("code") for one in settled["results"]] == [
        None,  # It is done, by the same receipt.
        "invalid_receipt",
        None,
    ]
    assert settled["failed"] == 1


def test_a_message_comes_again_when_it_is_given_back_or_forgotten(
    world: World, client: Client
) -> None:
    world.produce("orders", ["a"])
    client.post(f"{GROUP}/nack", {**receipts(receive(client)), "delay_ms": 5_000})
    assert receive(client) == []
    world.run_for(5_100)
    (again,) = receive(client, visibility_ms=2_000)
    assert again["attempt"] == 2
    extended = client.post(f"{GROUP}/extend", {**receipts([again]), "visibility_ms": 20_000})
    assert extended["failed"] == 0
    world.run_for(10_000)
    assert receive(client) == []
    world.run_for(15_000)
    (last,) = receive(client)
    assert last["attempt"] == 3


def test_a_rejected_message_is_a_dead_letter(world: World, client: Client) -> None:
    world.produce("orders", ["bad"])
    client.post(f"{GROUP}/reject", {**receipts(receive(client)), "reason": "no such customer"})
    world.run_for(1_000)
    (dead,) = client.get("/v1/topics/orders.dlq/messages")["messages"]
    headers = {one["name"]: one["value"] for one in dead["headers"]}
    assert dead["value"] == "bad"
    assert headers["goqueue-dead-reason"] == "no such customer"


def test_a_receiver_waits_and_the_first_to_ask_is_the_first_served(
    world: World, client: Client
) -> None:
    wires = [client.wire(), client.wire()]
    body = {"topic": "orders", "max_messages": 1, "wait_ms": 20_000}
    for wire in wires:
        wire.feed(request("POST", f"{GROUP}/receive", body))
        world.run_for(100)
    world.produce("orders", ["a"])
    world.run_until(lambda: bool(wires[0].answers))
    assert values(wires[0].answers[0].json["messages"]) == ["a"]
    assert not wires[1].answers


def test_a_receiver_that_left_takes_nothing(world: World, client: Client) -> None:
    receive(client)
    wire = client.wire()
    wire.feed(request("POST", f"{GROUP}/receive", {"topic": "orders", "wait_ms": 20_000}))
    world.run_for(100)
    wire.close()
    world.produce("orders", ["a"])
    world.run_for(1)
    assert values(receive(client)) == ["a"]


def test_two_groups_do_not_know_of_one_another(world: World, client: Client) -> None:
    world.produce("orders", ["a"])
    client.post(f"{GROUP}/ack", receipts(receive(client)))
    other = client.post("/v1/groups/others/receive", {"topic": "orders"})
    assert values(other["messages"]) == ["a"]


def test_priorities_are_lanes(world: World, client: Client) -> None:
    for priority in ("background", "normal", "critical"):
        client.post("/v1/topics/orders/publish", {"value": priority, "priority": priority})
    assert receive(client, 1)[0]["priority"] == "critical"
    shown = client.get("/v1/topics/orders/lanes")
    assert {one["lane"]: one["stored"] for one in shown["lanes"]} == {
        "critical": 1,
        "high": 0,
        "normal": 1,
        "low": 0,
        "background": 1,
    }
    assert shown["groups"][0]["group"] == "workers"


def test_lanes_tell_how_fast_messages_come_and_go(world: World, client: Client) -> None:
    receive(client)
    for _ in range(60):
        client.post("/v1/topics/orders/publish", {"value": "x", "priority": "high"})
        client.post(f"{GROUP}/ack", receipts(receive(client)))
        world.run_for(500)
    for figures in (
        client.get("/v1/topics/orders/lanes")["groups"][0]["lanes"],
        client.get(f"{GROUP}/stats", topic="orders")["lanes"],
    ):
        rates = {one["lane"]: (one["in_per_second"], one["out_per_second"]) for one in figures}
        assert rates["high"] == (pytest.approx(2, rel=0.1), pytest.approx(2, rel=0.1))
        assert rates["normal"] == (0, 0)


def test_a_group_is_made_changed_described_and_deleted(client: Client) -> None:
    path = GROUP
    made = client.send("PUT", path, {"settings": {"visibility_ms": 5000}}).json
    assert (made["kind"], made["settings"]["visibility_ms"]) == ("queue", 5000)
    assert made["settings"]["deliveries_max"] == 3
    receive(client)
    assert client.get(path)["topics"] == ["orders"]
    assert client.get("/v1/groups", kind="queue")["groups"][0]["name"] == "workers"
    bad = client.refused("PUT", path, {"settings": {"visibility_ms": 0}})
    assert (bad.status, bad.json["field"]) == (400, "settings.visibility_ms")
    assert client.send("DELETE", path).status == 204
    assert client.refused("GET", path).status == 404


def test_a_name_is_of_one_kind(client: Client) -> None:
    stream = {"kind": "stream", "topics": ["orders"], "start": "latest"}
    made = client.send("PUT", "/v1/groups/readers", stream).json
    assert (made["kind"], made["state"]) == ("stream", "Empty")
    body = {"topic": "orders"}
    refused = client.refused("POST", "/v1/groups/readers/receive", body)
    assert (refused.status, refused.json["code"]) == (409, "group_kind_mismatch")
    receive(client)
    refused = client.refused("POST", f"{GROUP}/join", {"topics": ["orders"]})
    assert refused.json["code"] == "group_kind_mismatch"
    assert client.refused("PUT", GROUP, stream).json["code"] == "group_kind_mismatch"


def test_messages_are_looked_at_without_side_effects(world: World, client: Client) -> None:
    world.produce("orders", ["a", "b", "c"])
    one, two = receive(client, 2, consumer="worker-9")
    client.post(f"{GROUP}/ack", receipts([one]))
    for _ in range(2):
        peeked = client.get(f"{GROUP}/peek", topic="orders", partition=0, offset=0)["messages"]
        assert [message["state"] for message in peeked] == ["done", "leased", "ready"]
    held = peeked[1]
    assert (held["consumer"], held["attempts"]) == ("worker-9", 1)
    assert held["leased_until"] == two["leased_until"]
    assert client.get(f"{GROUP}/lag")["lag"] == 2


def test_a_queue_is_rewound_and_purged(world: World, client: Client) -> None:
    world.produce("orders", ["a", "b"])
    world.run_for(3_600_000)
    world.produce("orders", ["c"])
    client.post(f"{GROUP}/ack", receipts(receive(client)))
    client.post(f"{GROUP}/rewind", {"topic": "orders", "to": "30m"})
    again = receive(client)
    assert values(again) == ["c"]
    offsets = [{"partition": 0, "offset": 1}]
    client.post(f"{GROUP}/rewind", {"topic": "orders", "offsets": offsets})
    assert client.post(f"{GROUP}/ack", receipts(again))["failed"] == 1
    assert values(receive(client)) == ["b", "c"]
    client.post(f"{GROUP}/rewind", {"topic": "orders", "to": "earliest"})
    moved = client.post(f"{GROUP}/purge", {"topic": "orders"})
    assert moved["offsets"] == [
        {"partition": 0, "offset": 3},
        {"partition": 1, "offset": 0},
    ]
    assert receive(client) == []
    stats = client.get(f"{GROUP}/stats", topic="orders")
    assert (stats["ready"], stats["in_flight"], stats["totals"]["acked"]) == (0, 0, 3)


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("ack", {"receipts": []}, 400),
        ("ack", {"receipts": ["x"]}, 404),
        ("receive", {"topic": "no good"}, 400),
        ("receive", {"topic": "orders", "max_messages": 1001}, 400),
        ("receive", {"topic": "orders", "wait_ms": 60_001}, 400),
        ("receive", {"topic": "orders", "acks": "x"}, 400),
        ("receive", {"topic": "orders", "acks": ["x"] * 1001}, 400),
        ("receive", {"topic": "orders", "acks": ["x"]}, 404),
        ("rewind", {"topic": "orders"}, 400),
        ("purge", {"topic": "orders"}, 404),
    ],
)
def test_what_makes_no_sense_is_refused(
    client: Client, verb: str, body: dict[str, Any], status: int
) -> None:
    assert client.refused("POST", f"{GROUP}/{verb}", body).status == status


def test_an_ack_and_the_next_receive_may_come_in_one_piece(client: Client) -> None:
    client.world.produce("orders", ["a", "b"])
    held = receive(client, 1)
    wire = client.wire()
    wire.feed(
        request("POST", f"{GROUP}/ack", receipts(held))
        + request("POST", f"{GROUP}/receive", {"topic": "orders"})
    )
    client.world.run_until(lambda: len(wire.answers) == 2 and wire.answers[1].is_whole)
    acked, received_next = (answer.json for answer in wire.answers)
    assert (acked["failed"], values(received_next["messages"])) == (0, ["b"])


def test_acks_that_come_with_a_receive_count_before_it(world: World, client: Client) -> None:
    client.send("PUT", GROUP, {"settings": {"consumer_unacked_max": 1}})
    world.produce("orders", ["a", "b"])
    held = receive(client, consumer="one")
    assert values(held) == ["a"]
    body = {"topic": "orders", "consumer": "one", "acks": [held[0]["receipt"], "nonsense"]}
    answer = client.post(f"{GROUP}/receive", body)
    assert values(answer["messages"]) == ["b"]
    assert answer["acks"]["failed"] == 1
    fine, refused = answer["acks"]["results"]
    assert fine == {"receipt": held[0]["receipt"]}
    assert refused["problem"]["code"] == "invalid_receipt"
    last = answer["messages"][0]["receipt"]
    again = client.post(f"{GROUP}/receive", {**body, "acks": [last]})
    assert again == {"acks": {"results": [{"receipt": last}], "failed": 0}, "messages": []}
    world.run_for(60_000)
    assert receive(client) == []


def test_a_receive_that_cannot_be_acknowledges_nothing(world: World, client: Client) -> None:
    world.produce("orders", ["a"])
    (held,) = receive(client)
    body = {"topic": "__delivery", "acks": [held["receipt"]]}
    assert client.refused("POST", f"{GROUP}/receive", body).status in (403, 404)
    assert client.post(f"{GROUP}/ack", receipts([held]))["failed"] == 0


def test_messages_are_handed_out_though_the_acks_with_the_call_failed(
    world: World, client: Client
) -> None:
    world.produce("orders", ["a", "b"])
    (held,) = receive(client, 1)
    failed: Promise[list[GoQueueError | None]] = Promise()
    failed.reject(StorageFailed("the disk is full"))
    with mock.patch.object(Queues, "ack", return_value=failed):
        body = {"topic": "orders", "acks": [held["receipt"]]}
        answer = client.post(f"{GROUP}/receive", body)
    assert values(answer["messages"]) == ["b"]
    (result,) = answer["acks"]["results"]
    assert result["problem"]["code"] == "storage_failed"


def test_a_queue_group_without_share_consumers_has_no_members(client: Client) -> None:
    client.send("PUT", "/v1/groups/workers", {"kind": "queue"})
    found = client.get("/v1/groups/workers/share-members")
    assert (found["group"], found["state"], found["members"]) == ("workers", "Empty", [])
    assert client.refused("GET", "/v1/groups/nothing/share-members").status == 404
