"""A connection without its socket: any bytes in, in any pieces; answers out, in order."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTooLarge
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.wire.kafka.connection import SMALL_REQUEST_BYTES_MAX
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.kafka.messages import API_BY_NAME, api_versions
from goqueue.wire.kafka.messages.api_versions import ApiVersionsRequest
from goqueue.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.wire.kafka.client import Client, about, failures
from tests.unit.wire.kafka.reference import Message
from tests.unit.wire.kafka.requests import (
    EVERY_VERSION,
    SERVED,
    fetch_request,
    produce_request,
    records_for,
    request_of,
)

__all__ = ["failures"]

quickly = settings(max_examples=25, derandomize=True, deadline=None, database=None)
NAMES = [api.name for api in SERVED]
# These may wait for others, for longer than a test does.
MAY_WAIT = {"Fetch", "JoinGroup", "SyncGroup"}
API_VERSIONS = API_BY_NAME["ApiVersions"]
HELLO = ApiVersionsRequest(client_software_name="peer", client_software_version="1")


class Wire:
    """The bytes of a client, kept the way the owner of a socket keeps them."""

    def __init__(self, peer: KafkaPeer) -> None:
        self.peer = peer
        self._kept = b""

    def receive(self, data: bytes) -> None:
        self._kept += data
        used = self.peer.send(self._kept)
        assert 0 <= used <= len(self._kept)
        self._kept = self._kept[used:]
        if self._kept:
            assert self.peer.connection.wanted_bytes(memoryview(self._kept)) >= 4

    @property
    def kept_bytes(self) -> int:
        return len(self._kept)


def conversation(client: Client) -> bytes:
    """One request of every API that changes nothing, in every version, one after the other."""
    names = {"ApiVersions", "Fetch", "ListOffsets", "DescribeConfigs", "ListGroups", "Metadata"}
    return b"".join(
        client.peer.frame(API_BY_NAME[name], version, request_of(name, version, client.subject))
        for name, version in EVERY_VERSION
        if name in names
    )


def answers_in(received: bytes) -> list[int]:
    """The correlation ids of all answers, which must be whole."""
    ids, at = [], 0
    while at < len(received):
        length, correlation_id = struct.unpack_from(">ii", received, at)
        ids.append(correlation_id)
        at += 4 + length
    assert at == len(received)
    return ids


# Pieces


@pytest.mark.parametrize("piece", [1, 2, 7, 64, 1000])
def test_requests_in_pieces_are_answered_as_requests_in_one_piece(piece: int) -> None:
    received = []
    for size in (1 << 20, piece):
        client = Client(limits=Limits(requests_in_flight_max=1000))
        wire = Wire(client.peer)
        data = conversation(client)
        for at in range(0, len(data), size):
            wire.receive(data[at : at + size])
        client.node.run_for(10)
        assert wire.kept_bytes == 0
        received.append(client.peer.received)
    ids = answers_in(received[0])
    assert ids == list(range(1, len(ids) + 1))
    assert received[0] == received[1]


def test_half_a_request_is_left_where_it_is() -> None:
    client = Client()
    frame = client.peer.frame(API_VERSIONS, 3, HELLO)
    assert client.peer.send(frame + frame[:10]) == len(frame)
    assert client.peer.send(frame[:3]) == 0
    assert client.peer.connection.wanted_bytes(memoryview(frame[:3])) == 4
    assert client.peer.connection.wanted_bytes(memoryview(frame[:10])) == len(frame)


# Bytes that are not what they should be


@quickly
@given(data=st.binary(max_size=200))
def test_random_bytes_raise_malformed_request_and_nothing_else(data: bytes) -> None:
    client = Client()
    try:
        used = client.peer.send(data)
    except MalformedRequest:
        return
    assert 0 <= used <= len(data)


@quickly
@given(
    key=st.sampled_from([api.key for api in SERVED]),
    version=st.integers(-1, 19),
    body=st.binary(max_size=80),
)
def test_a_random_body_after_a_good_header_raises_malformed_request_and_nothing_else(
    key: int, version: int, body: bytes
) -> None:
    client = Client()
    frame = struct.pack(">hhi", key, version, 1) + b"\x00\x04peer" + body
    try:
        client.peer.send(struct.pack(">i", len(frame)) + frame)
    except MalformedRequest:
        return
    client.node.run_for(10)


@pytest.mark.parametrize("name", NAMES)
def test_a_mutated_request_is_refused_or_answered(
    name: str, failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goqueue.broker.topics.topics.PARTITIONS_MAX", 12)
    api = API_BY_NAME[name]
    client = Client(partitions=2)
    client.have_groups()
    chance = random.Random(name)
    for _ in range(60):
        version = chance.randint(api.version_min, api.version_stable_max)
        frame = client.peer.frame(api, version, request_of(name, version, client.subject))
        _expect_answer(client, name, _mutated(frame, chance), failures)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_of_random_values_is_answered(
    name: str, failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goqueue.broker.topics.topics.PARTITIONS_MAX", 12)
    message = Message(f"{name}Request")
    client = Client(partitions=2)
    client.have_groups()
    chance = random.Random(name)
    for number in range(30):
        version = chance.randint(message.api.version_min, message.api.version_stable_max)
        request = message.random(version, chance, items_max=2, is_modest=number % 2 == 0)
        frame = client.peer.frame(message.api, version, request)
        _expect_answer(client, name, frame, failures)


def _mutated(frame: bytes, chance: random.Random) -> bytes:
    """The same request with a few bytes of its body changed, taken away or added."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(8, len(body))
        what = chance.random()
        if what < 0.6 and at < len(body):
            body[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif what < 0.8:
            del body[at : at + chance.randint(1, 4)]
        else:
            body[at:at] = chance.randbytes(chance.randint(1, 4))
    return struct.pack(">i", len(body)) + bytes(body)


def _expect_answer(client: Client, name: str, frame: bytes, failures: list[Exception]) -> None:
    """A request is malformed or is answered; a handler never fails, and the node goes on."""
    peer = client.node.peer()
    try:
        used = peer.send(frame)
    except MalformedRequest:
        return
    assert used in (0, len(frame)), "a request is taken as a whole"
    client.node.run_for(100)
    assert failures == []
    is_silenced = name == "Produce"  # acks=0 wants no answer
    if used and not peer.is_closed and not is_silenced and name not in MAY_WAIT:
        assert peer.has_answer
    peer.connection.closed()
    assert peer.connection.cancellations == {}
    assert client.node.peer().call("ApiVersions", 3, HELLO).error_code == 0


def test_after_hanging_up_nobody_waits_for_records_any_more() -> None:
    client = Client()
    request = fetch_request(client.subject, wait_ms=10_000)
    client.peer.send(client.peer.frame(API_BY_NAME["Fetch"], 12, request))
    partition = client.node.broker.topics.get("orders").partition(0)
    assert len(partition.watchers) == 1
    client.peer.connection.closed()
    assert partition.watchers == {}
    client.node.run_for(20_000)
    assert client.peer.received == b""


@pytest.mark.parametrize("length", [-1, 0, 7])
def test_a_request_that_is_too_short_for_its_header_is_malformed(length: int) -> None:
    with pytest.raises(MalformedRequest, match=f"{length} bytes"):
        Client().peer.send(struct.pack(">i", length) + bytes(8))


def test_an_announced_length_over_the_limit_is_refused_before_it_has_come() -> None:
    client = Client(limits=Limits(request_bytes_max=1000))
    with pytest.raises(RequestTooLarge, match="1001 bytes is over the limit of 1000"):
        client.peer.send(struct.pack(">i", 1001))


def test_only_produce_requests_may_be_very_large() -> None:
    """The others are decoded item by item, while nobody else is served."""
    client = Client()
    length, produce, fetch = SMALL_REQUEST_BYTES_MAX + 1, 0, 1
    client.peer.send(struct.pack(">ihhi", length, produce, 13, 1))
    with pytest.raises(RequestTooLarge, match=f"{length} bytes is over the limit"):
        client.node.peer().send(struct.pack(">ihhi", length, fetch, 17, 1))
    client.node.peer().send(struct.pack(">ihhi", length - 1, fetch, 17, 1))


@pytest.mark.parametrize(
    ("key", "text"),
    [(999, "API 999"), (88, "API 88 .*group.protocol=classic"), (89, "group.protocol=classic")],
)
def test_an_api_that_is_not_served_is_malformed(key: int, text: str) -> None:
    client = Client()
    frame = struct.pack(">hhi", key, 0, 1) + b"\x00\x00"
    with pytest.raises(MalformedRequest, match=text):
        client.peer.send(struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize("version", [-1, 99])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ApiVersions"])
def test_a_version_that_is_not_served_is_malformed(name: str, version: int) -> None:
    frame = struct.pack(">hhi", API_BY_NAME[name].key, version, 1) + b"\x00\x00"
    with pytest.raises(MalformedRequest, match=f"{name} version {version}"):
        Client().peer.send(struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_a_client_from_the_future_is_told_the_versions_in_the_oldest_form(version: int) -> None:
    client = Client()
    frame = struct.pack(">hhi", API_VERSIONS.key, version, 77) + b"whatever that may mean"
    client.peer.send(struct.pack(">i", len(frame)) + frame)
    client.node.run_for(1)
    length, correlation_id = struct.unpack_from(">ii", client.peer.received)
    assert (length + 4, correlation_id) == (len(client.peer.received), 77)
    answer = api_versions.decode_response(client.peer.received, 0, 8)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert API_VERSIONS.key in {one.api_key for one in answer.api_keys}


def test_what_fails_in_a_handler_ends_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    other = client.node.peer()
    served = client.node.front.served[API_BY_NAME["ListGroups"].key]

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(served, "handler", broken)
    client.peer.send(client.peer.frame(API_BY_NAME["ListGroups"], 0, _list_groups(client)))
    assert client.peer.is_closed
    assert other.call("ApiVersions", 3, HELLO).error_code == 0


def test_an_answer_that_cannot_be_encoded_ends_its_connection_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    served = client.node.front.served[API_BY_NAME["ListGroups"].key]
    impossible = served.response_type(error_code="not a number")
    monkeypatch.setattr(served, "handler", lambda *_: impossible)
    client.peer.send(client.peer.frame(API_BY_NAME["ListGroups"], 0, _list_groups(client)))
    assert client.peer.is_closed


def _list_groups(client: Client) -> object:
    return request_of("ListGroups", 0, client.subject)


# The line


def test_answers_keep_the_order_of_their_requests_though_they_are_ready_out_of_turn() -> None:
    client = Client()
    peer, fetch, produce = client.peer, API_BY_NAME["Fetch"], API_BY_NAME["Produce"]
    peer.send(peer.frame(fetch, 12, fetch_request(client.subject, wait_ms=5_000)))
    stored = produce_request(9, about(client.subject, {"partition": 1}), records_for(9, b"v"))
    peer.send(peer.frame(produce, 9, stored))
    peer.send(peer.frame(API_VERSIONS, 3, HELLO))
    client.node.run_for(1_000)
    assert peer.received == b"", "the later two are ready, but it is not their turn"
    client.node.run_for(5_000)
    assert answers_in(peer.received) == [1, 2, 3]


def test_answers_of_one_turn_leave_together() -> None:
    client = Client()
    sendings: list[int] = []
    connection = client.node.front.connect(
        ConnectedClient("192.0.2.1", ListenerRules("kafka")),
        send=lambda parts: sendings.append(len(parts)),
        close=lambda: None,
        unblock=lambda: None,
    )
    frames = b"".join(client.peer.frame(API_VERSIONS, 3, HELLO) for _ in range(10))
    connection.receive(memoryview(bytearray(frames)))
    assert sendings == []
    client.node.run_for(1)
    assert len(sendings) == 1


def test_too_many_waiting_requests_block_the_connection_until_one_is_answered() -> None:
    client = Client(limits=Limits(requests_in_flight_max=3))
    peer, fetch = client.peer, API_BY_NAME["Fetch"]
    frames = [
        peer.frame(fetch, 12, fetch_request(client.subject, wait_ms=wait_ms))
        for wait_ms in (100, 200, 300, 400)
    ]
    used = peer.send(b"".join(frames))
    assert used == sum(map(len, frames[:3])), "the fourth is left to its owner"
    assert peer.connection.is_blocked
    assert peer.send(frames[3]) == 0
    client.node.run_for(150)
    assert peer.is_unblocked
    assert not peer.connection.is_blocked
    assert peer.send(frames[3]) == len(frames[3])
    client.node.run_for(1_000)
    assert answers_in(peer.received) == [1, 2, 3, 4]


def test_answers_that_are_not_taken_block_the_connection() -> None:
    client = Client(limits=Limits(unsent_bytes_max=100))
    client.peer.connection.unsent_bytes = 101
    assert client.peer.connection.is_blocked
    assert client.peer.send(client.peer.frame(API_VERSIONS, 3, HELLO)) == 0
    client.peer.connection.unsent_bytes = 100
    assert not client.peer.connection.is_blocked


def test_requests_answered_at_once_never_block() -> None:
    client = Client(limits=Limits(requests_in_flight_max=1))
    frames = [client.peer.frame(API_VERSIONS, 3, HELLO) for _ in range(20)]
    assert client.peer.send(b"".join(frames)) == sum(map(len, frames))
    client.node.run_for(1)
    assert answers_in(client.peer.received) == list(range(1, 21))


# acks=0


@pytest.mark.parametrize("version", range(14))
def test_a_producer_that_wants_no_answer_gets_none_but_the_others_get_theirs(version: int) -> None:
    client = Client()
    records = records_for(version, b"quiet")
    request = produce_request(version, client.subject, records, acks=0)
    client.peer.send(client.peer.frame(API_BY_NAME["Produce"], version, request))
    client.peer.send(client.peer.frame(API_VERSIONS, 3, HELLO))
    client.node.run_for(100)
    assert answers_in(client.peer.received) == [2]
    assert client.node.values("orders") == [b"quiet"]


def test_a_producer_that_wants_no_answer_is_hung_up_on_when_its_batch_is_refused() -> None:
    client = Client()
    request = produce_request(9, about(client.subject, {"topic": "nowhere"}), records_for(9, b"v"))
    request.acks = 0
    client.peer.send(client.peer.frame(API_BY_NAME["Produce"], 9, request))
    assert client.peer.is_closed


# Client ids


def header(key: int, version: int, client_id: str | None, *, tags: bytes = b"") -> bytes:
    name = (
        b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    )
    return struct.pack(">hhi", key, version, 1) + name + tags


@pytest.mark.parametrize("client_id", [None, "", "peer", "a" * 300])
@pytest.mark.parametrize("versions", [(0, 3, 0, 3, 3), (3, 0, 0, 3), (2, 2, 4, 4)])
def test_a_repeated_client_id_is_read_in_every_form_of_the_header(
    client_id: str | None, versions: tuple[int, ...]
) -> None:
    client = Client()
    for version in versions:
        is_flexible = version >= 3
        body = b"\x02p\x021\x00" if is_flexible else b""
        tags = b"\x00" if is_flexible else b""
        frame = header(API_VERSIONS.key, version, client_id, tags=tags) + body
        client.peer.send(struct.pack(">i", len(frame)) + frame)
    client.node.run_for(1)
    assert len(answers_in(client.peer.received)) == len(versions)


def test_a_header_with_tags_is_read_though_the_client_id_is_known() -> None:
    client = Client()
    for tags in (b"\x00", b"\x01\x07\x02ab", b"\x00"):
        frame = header(API_VERSIONS.key, 3, "peer", tags=tags) + b"\x02p\x021\x00"
        client.peer.send(struct.pack(">i", len(frame)) + frame)
    client.node.run_for(1)
    assert len(answers_in(client.peer.received)) == 3


def test_a_changed_client_id_is_noticed() -> None:
    client = Client()
    client.node.host_groups()
    for client_id in ("first", "second", "first-and-longer", "first"):
        client.peer.client_id = client_id
        answer = client.ask("JoinGroup", 4, group=f"of-{client_id}")
        assert answer.member_id.startswith(f"{client_id}-")


@quickly
@given(names=st.lists(st.sampled_from(["", "a", "ab", "é", "漢字"]), min_size=1, max_size=6))
def test_client_ids_of_any_length_lead_to_the_body(names: list[str]) -> None:
    client = Client()
    for number, name in enumerate(names):
        client.peer.client_id = name
        assert client.call("ApiVersions", HELLO, version=number % 6).error_code == 0


def test_a_client_id_that_is_no_text_is_malformed() -> None:
    frame = struct.pack(">hhi", API_VERSIONS.key, 0, 1) + b"\x00\x02\xff\xfe"
    with pytest.raises(GoQueueError) as refusal:
        Client().peer.send(struct.pack(">i", len(frame)) + frame)
    assert isinstance(refusal.value, MalformedRequest)


def test_a_node_that_is_not_ready_tells_where_to_go_and_hears_the_rest_later() -> None:
    client = Client()
    front = client.node.front
    front.is_ready = False
    assert client.call("ApiVersions", HELLO).error_code == 0
    assert [one.name for one in client.ask("Metadata").topics] == ["orders"]
    nobody_knows = MetadataRequest(topics=[MetadataRequestTopic(name="nobody-knows")])
    unknown = client.call("Metadata", nobody_knows)
    assert unknown.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    version = API_BY_NAME["ListOffsets"].version_stable_max
    api = API_BY_NAME["ListOffsets"]
    question = client.peer.frame(api, version, request_of("ListOffsets", version, client.subject))
    assert client.peer.send(question) == 0
    assert client.peer.connection.is_blocked
    client.node.run_for(60_000)
    assert not client.peer.received
    gone = client.node.peer()
    gone.send(question)
    gone._close()
    assert len(front._held) == 1, "whoever has gone is not kept"
    front.become_ready()
    assert client.peer.is_unblocked
    assert not client.peer.connection.is_blocked
    assert client.peer.send(question) == len(question)
    client.node.run_until(lambda: client.peer.has_answer)
