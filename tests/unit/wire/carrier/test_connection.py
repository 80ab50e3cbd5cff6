"""Connections: framing, order, limits and what becomes of clients that misbehave."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.loop.promise import Promise
from goqueue.wire.carrier import connection as limits_of
from goqueue.wire.carrier.application import PATH_LENGTH_KNOWN_MAX, PATHS_KNOWN_MAX
from goqueue.wire.carrier.front_end import Limits
from tests.simulation.world import World
from tests.unit.wire.http.client import Client, Wire, request

LIMITS = Limits(body_bytes_max=1000, receiving_bytes_max=1500, receive_ms_max=2_000)
PUBLISH = "/v1/topics/orders/publish"


@pytest.fixture
def small(world: World) -> Client:
    """A node with small limits and a topic."""
    world.create("orders")
    return Client(world, LIMITS)


def whole(wire: Wire, count: int = 1) -> bool:
    return len([one for one in wire.answers if one.is_whole]) == count


def test_a_request_may_come_byte_by_byte(small: Client) -> None:
    wire = small.wire()
    for byte in request("POST", PUBLISH, {"value": "hello"}):
        wire.feed(bytes([byte]))
    small.world.run_until(lambda: whole(wire))
    assert wire.answers[0].json["offset"] == 0


def test_requests_that_come_together_are_answered_in_order(small: Client) -> None:
    wire = small.wire()
    bodies = [request("POST", PUBLISH, {"value": str(number)}) for number in range(10)]
    wire.feed(b"".join([*bodies, request("GET", "/livez"), request("GET", "/nothing")]))
    small.world.run_until(lambda: whole(wire, 12))
    assert [one.json["offset"] for one in wire.answers[:10]] == list(range(10))
    assert [one.status for one in wire.answers[10:]] == [200, 404]


def test_a_client_that_sends_too_many_at_once_is_not_read(small: Client) -> None:
    wire = small.wire()
    one = request("POST", PUBLISH, {"value": "x"})
    wire.feed(one * (limits_of.WAITING_MAX + 1))
    assert wire.connection.is_blocked
    small.world.run_until(lambda: whole(wire, limits_of.WAITING_MAX + 1))
    assert not wire.connection.is_blocked
    assert wire.unblocked > 0


def test_a_client_that_takes_nothing_has_no_further_request_handled(world: World) -> None:
    world.create("orders")
    client = Client(world)
    client.post(PUBLISH, {"value": "x" * 1_000_000})
    client.post(PUBLISH, {"value": "x" * 1_000_000})
    wire = client.wire()
    wire.is_stuck = True
    wire.feed(request("GET", "/v1/topics/orders/messages") * 5)
    world.run_until(lambda: whole(wire))
    world.run_for(1_000)
    assert len(wire.answers) == 1
    assert wire.connection.is_blocked
    wire.is_stuck = False
    wire.connection.unsent_bytes = 0
    world.run_until(lambda: whole(wire, 5))
    assert {one.status for one in wire.answers} == {200}


def test_large_pages_of_many_clients_leave_turns_to_others(world: World) -> None:
    world.create("orders")
    client = Client(world)
    client.post(PUBLISH, {"value": "x" * 1_000_000})
    client.post(PUBLISH, {"value": "x" * 1_000_000})
    wires = [client.wire() for _ in range(5)]
    for wire in wires:
        wire.feed(request("GET", "/v1/topics/orders/messages"))
    assert [len(wire.answers) for wire in wires] == [1, 0, 0, 0, 0]
    small = client.wire()
    small.feed(request("GET", "/livez"))
    assert whole(small), "it waits behind those who ask for much"
    world.run_until(lambda: all(whole(wire) for wire in wires))


def test_a_connection_that_is_closed_is_freed_at_once(world: World) -> None:
    world.create("orders")
    client = Client(world)
    client.post(PUBLISH, {"value": "x" * 1_000_000})
    gc.collect()
    gc.disable()
    try:
        for asked in (
            "/v1/topics/orders/messages?wait_ms=1000&from=latest",
            "/livez",
            "/v1/topics",
        ):
            wire = client.wire()
            wire.feed(request("GET", asked))
            seen = weakref.ref(wire.connection)
            wire.close()
            world.run_for(10)
            del wire
            assert seen() is None, f"after {asked} it waits for the garbage collector"
    finally:
        gc.enable()


def test_bodies_in_line_take_no_more_than_their_share(world: World) -> None:
    world.create("orders")
    wire = Client(world).wire()
    large = request("POST", PUBLISH, {"value": "x" * 600_000})
    wire.feed(large)
    wire.feed(large)
    assert not wire.connection.is_blocked
    wire.feed(large)
    assert wire.connection.is_blocked
    world.run_until(lambda: whole(wire, 3))
    assert not wire.connection.is_blocked
    assert wire.unblocked == 1


def test_a_chunked_body_is_read(small: Client) -> None:
    wire = small.wire()
    head = request("POST", PUBLISH, headers={"transfer-encoding": "chunked"})
    head = head.replace(b"host:", b"content-type: application/json\r\nhost:")
    body = json.dumps({"value": "in pieces"}).encode()
    wire.feed(head + b"5\r\n" + body[:5] + b"\r\n%x\r\n" % (len(body) - 5) + body[5:])
    wire.feed(b"\r\n0\r\n\r\n")
    small.world.run_until(lambda: whole(wire))
    assert wire.answers[0].status == 200


def test_a_body_over_the_limit_is_refused_and_the_connection_goes_on(small: Client) -> None:
    wire = small.wire()
    wire.feed(request("POST", PUBLISH, {"value": "x" * 2000}))
    assert wire.answers[0].status == 413
    assert wire.answers[0].json["code"] == "body_too_large"
    wire.feed(request("GET", "/livez"))
    assert wire.answers[1].status == 200


def test_a_body_without_end_is_hung_up_on(small: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_of, "DISCARD_BYTES_MAX", 5000)
    wire = small.wire()
    wire.feed(request("POST", PUBLISH, headers={"content-length": "1000000"}))
    for _ in range(10):
        if not wire.is_closed:
            wire.feed(b"x" * 1000)
    assert wire.answers[0].status == 413
    assert wire.is_closed


def test_who_asks_first_is_told_before_sending_a_large_body(small: Client) -> None:
    wire = small.wire()
    headers = {"expect": "100-continue", "content-length": "5000"}
    wire.feed(request("POST", PUBLISH, headers=headers))
    assert wire.answers[0].status == 413
    assert wire.is_closed


def test_who_asks_first_may_send_a_small_body(small: Client) -> None:
    wire = small.wire()
    body = b'{"value": "x"}'
    headers = {"expect": "100-continue", "content-length": str(len(body))}
    wire.feed(request("POST", PUBLISH, headers=headers | {"content-type": "application/json"}))
    assert bytes(wire.sent) == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.feed(body)
    small.world.run_until(lambda: wire.answers[-1].status == 200)


def test_a_head_without_end_is_refused(small: Client) -> None:
    wire = small.wire()
    wire.feed(b"GET /livez HTTP/1.1\r\n")
    while not wire.is_closed:
        wire.feed(b"x-more: " + b"y" * 1000 + b"\r\n")
    assert wire.answers[0].status == 431


def test_a_slow_request_is_given_up(small: Client) -> None:
    wire = small.wire()
    wire.feed(b"POST " + PUBLISH.encode() + b" HTTP/1.1\r\n")
    small.world.run_for(1_500)
    wire.feed(b"host: node\r\n")  # a little now and then does not help
    assert not wire.is_closed
    small.world.run_for(600)
    assert wire.answers[0].status == 408
    assert wire.is_closed


def test_memory_for_unfinished_bodies_is_shared_and_given_back(small: Client) -> None:
    first, second = small.wire(), small.wire()
    half = request("POST", PUBLISH, headers={"content-length": "990"})
    first.feed(half + b"x" * 900)
    second.feed(half + b"x" * 900)
    assert second.answers[0].status == 503
    assert second.answers[0].json["retryable"]
    first.close()
    assert small.application.receiving_bytes == 0


def test_a_client_that_asks_to_close_is_closed(small: Client) -> None:
    wire = small.wire()
    wire.feed(request("GET", "/livez", headers={"connection": "close"}))
    assert wire.answers[0].headers["connection"] == "close"
    assert wire.is_closed


def test_a_connection_is_closed_only_when_its_last_answer_is_taken(small: Client) -> None:
    wire = small.wire()
    wire.is_stuck = True
    wire.feed(request("GET", "/livez", headers={"connection": "close"}))
    small.world.run_for(10)
    assert not wire.is_closed
    wire.connection.unsent_bytes = 0
    small.world.run_for(10)
    assert wire.is_closed


def test_http_1_0_is_answered_and_closed(small: Client) -> None:
    wire = small.wire()
    wire.feed(b"GET /livez HTTP/1.0\r\n\r\n")
    assert wire.answers[0].status == 200
    assert wire.is_closed


def test_an_upgrade_is_passed_over(small: Client) -> None:
    wire = small.wire()
    headers = {"connection": "upgrade, http2-settings", "upgrade": "h2c"}
    wire.feed(request("GET", "/livez", headers=headers))
    assert wire.answers[0].status == 200
    assert wire.is_closed


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_is_refused(small: Client, data: bytes) -> None:
    wire = small.wire()
    wire.feed(data)
    assert wire.answers[0].status == 400
    assert wire.is_closed


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=80))
def test_random_bytes_are_answered_or_waited_for_but_never_raise(data: bytes) -> None:
    wire = _SMALL.wire()
    wire.feed(data)
    if not wire.is_closed:
        wire.feed(request("GET", "/livez"))
        wire.close()
    assert all(400 <= one.status < 500 or one.status == 200 for one in wire.answers)
    assert _SMALL.application.receiving_bytes == 0
    assert not _SMALL.application.busy


_SMALL = Client(World(), LIMITS)


def test_an_absolute_address_is_taken(small: Client) -> None:
    wire = small.wire()
    wire.feed(b"GET http://node:8080/livez?x=1 HTTP/1.1\r\nhost: node\r\n\r\n")
    assert wire.answers[0].json["field"] == "x"


def test_head_answers_without_a_body(small: Client) -> None:
    wire = small.wire()
    wire.feed(request("HEAD", "/livez"))
    head, _, body = bytes(wire.sent).partition(b"\r\n\r\n")
    assert b"content-length: 15" in head
    assert body == b""


def test_only_json_is_taken(small: Client) -> None:
    for media_type in ("text/plain", "multipart/form-data", "application/jsonx"):
        answer = small.send("POST", PUBLISH, b"{}", headers={"content-type": media_type})
        assert answer.status == 415
        assert "Content-Type: application/json" in answer.json["detail"]
    good = {"content-type": "Application/JSON; charset=utf-8"}
    assert small.send("POST", PUBLISH, {"value": "x"}, headers=good).status == 200


def test_what_curl_sends_by_default_is_taken_unless_a_browser_sends_it(small: Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert small.send("POST", PUBLISH, {"value": "x"}, headers=form).status == 200
    answer = small.send("POST", PUBLISH, b"{}", headers={**form, "origin": "http://node"})
    assert answer.status == 415


def test_a_page_of_another_site_changes_nothing(small: Client) -> None:
    foreign = {"origin": "https://evil.example"}
    answer = small.send("DELETE", "/v1/topics/orders", headers=foreign)
    assert (answer.status, answer.json["code"]) == (403, "foreign_origin")
    assert (
        small.send("DELETE", "/v1/topics/orders", headers={"origin": "http://node"}).status == 204
    )


def test_methods_that_a_path_does_not_have_are_named(small: Client) -> None:
    answer = small.refused("PUT", "/v1/topics")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"


def test_an_escaped_slash_is_part_of_a_name(small: Client) -> None:
    small.post("/v1/groups/a%2Fb/reset", {"topic": "orders", "to": "earliest"})
    assert small.get("/v1/groups/a%2Fb/offsets")["group"] == "a/b"
    assert small.refused("GET", "/v1/groups/a/b/offsets").json["code"] == "unknown_route"


def test_a_fault_of_ours_is_answered_without_details(
    small: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(small.world.broker, "node_id", object())  # cannot be written as JSON
    answer = small.send("GET", "/v1/topics/orders/partitions")
    assert (answer.status, answer.json["code"]) == (500, "internal_error")
    assert "object" not in answer.json["detail"]
    assert "/v1/topics/orders/partitions" in caplog.text


# Waiting


def test_a_client_that_leaves_is_waited_for_no_longer(small: Client) -> None:
    wire = small.wire()
    wire.feed(request("GET", "/v1/topics/orders/messages", wait_ms=30_000))
    partition = small.world.broker.topics.get("orders").partition(0)
    assert len(partition.watchers) == 1
    wire.close()
    assert not partition.watchers
    assert not small.application.busy


def test_stopping_ends_what_waits_and_finishes_what_does_not(small: Client) -> None:
    waiting, publishing, streaming = small.wire(), small.wire(), small.wire()
    waiting.feed(request("GET", "/v1/topics/orders/messages", wait_ms=30_000))
    streaming.feed(request("GET", "/v1/topics/orders/stream"))
    small.world.run_for(1)
    publishing.feed(request("POST", PUBLISH, {"value": "x"}))
    stopped: list[bool] = []
    small.application.stop(lambda: stopped.append(True))
    assert (waiting.answers[0].status, waiting.answers[0].json["code"]) == (503, "node_stopping")
    assert streaming.answers[0].is_whole
    assert not stopped
    small.world.run_until(lambda: bool(stopped))
    assert publishing.answers[0].status == 200
    publishing.feed(request("GET", "/livez"))
    assert publishing.answers[1].status == 503


def test_stopping_does_not_wait_for_ever(small: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small.world.broker, "publish", lambda *_, **__: Promise())
    wire = small.wire()
    wire.feed(request("POST", PUBLISH, {"value": "never answered"}))
    stopped: list[bool] = []
    small.application.stop(lambda: stopped.append(True))
    small.world.run_for(4_000)
    assert not stopped
    small.world.run_for(2_000)
    assert stopped


def test_paths_that_were_found_are_remembered_within_bounds(world: World) -> None:
    client = Client(world)
    for number in range(PATHS_KNOWN_MAX + 10):
        assert client.refused("GET", f"/v1/topics/t{number}").status == 404
    assert client.refused("GET", "/v1/topics/" + "x" * PATH_LENGTH_KNOWN_MAX).status >= 400
    found = client.application._found
    assert 0 < len(found) <= PATHS_KNOWN_MAX
    assert all(len(path) <= PATH_LENGTH_KNOWN_MAX for _, path in found)
    assert client.refused("GET", "/v1/topics/t5").json["code"] == "unknown_topic"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ("", 400, "missing_host"),
        ("host: x\r\ntransfer-encoding: foo, chunked", 501, "unsupported_transfer_encoding"),
        ("host: x\r\ntransfer-encoding: gzip, chunked", 501, "unsupported_transfer_encoding"),
        ("host: x\r\ncontent-encoding: gzip", 415, "unsupported_content_encoding"),
    ],
)
def test_what_a_proxy_would_read_otherwise_is_refused(
    small: Client, headers: str, status: int, code: str
) -> None:
    wire = small.wire()
    length = "" if "transfer" in headers else "content-length: 13\r\n"
    head = (
        f"POST {PUBLISH} HTTP/1.1\r\n{headers}\r\n" if headers else f"POST {PUBLISH} HTTP/1.1\r\n"
    )
    body = b'{"value":"x"}' if length else b'd\r\n{"value":"x"}\r\n0\r\n\r\n'
    wire.feed(f"{head}{length}\r\n".encode() + body)
    assert (wire.answers[0].status, wire.answers[0].json["code"]) == (status, code)
    assert wire.is_closed


def test_plain_codings_and_old_clients_are_served(small: Client) -> None:
    for version, headers in (
        ("1.0", ""),
        ("1.1", "host: x\r\nTransfer-Encoding: Chunked\r\n"),
        ("1.1", "host: x\r\ncontent-encoding: identity\r\n"),
    ):
        wire = small.wire()
        is_chunked = "Chunked" in headers
        body = 'd\r\n{"value":"x"}\r\n0\r\n\r\n' if is_chunked else '{"value":"x"}'
        length = "" if is_chunked else "content-length: 13\r\n"
        wire.feed(f"POST {PUBLISH} HTTP/{version}\r\n{headers}{length}\r\n{body}".encode())
        small.world.run_until(lambda wire=wire: whole(wire))
        assert wire.answers[0].status == 200
