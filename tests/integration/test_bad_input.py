"""Whatever one connection sends, the others are answered and the node keeps its size."""

from __future__ import annotations

import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from .clients import Confluent, Message
from .process import Broker
from .waiting import eventually
from .wire import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    NO_TAGS,
    PRODUCE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    Wire,
    api_versions,
    connect,
    fetch_v4,
    fetched_v4,
    frame,
    list_offsets_v1,
    metadata_v1,
    parse_api_versions_v0,
    request_header,
    string,
)

MiB = 1 << 20
GROWTH_BYTES_MAX = 200 * MiB  # far below what each offender below announces or asks for


@pytest.fixture
def others_are_served(bootstrap: str, new_topic: Callable[..., str]) -> Iterator[None]:
    """After a test, a well-behaved client finds the broker as it was."""
    topic = new_topic()
    yield
    client = Confluent(bootstrap)
    client.write(topic, [Message(b"still here")])
    assert [message.value for message in client.read(topic, 1)] == [b"still here"]


pytestmark = pytest.mark.usefixtures("others_are_served")


@contextmanager
def bounded_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """The node's memory grows no more than the bound over the block."""
    node: Broker = request.getfixturevalue("broker")
    before = node.rss_bytes
    yield
    assert node.rss_bytes - before < GROWTH_BYTES_MAX


# Frames


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_close_only_their_connection(seed: int, bootstrap: str) -> None:
    noise = random.Random(seed).randbytes(4_000)
    with connect(bootstrap) as wire:
        # The first four bytes announce a length; a short one makes the broker read on.
        wire.send(frame(noise))
        assert wire.is_closed()


def test_bytes_of_another_protocol_close_the_connection(bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert wire.is_closed()


@pytest.mark.parametrize("announced", [-1, -(2**31), 2**31 - 1, 101 * MiB])
def test_an_impossible_length_closes_the_connection(announced: int, bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.send(struct.pack(">i", announced) + b"x" * 100)
        assert wire.is_closed()


def test_an_empty_frame_closes_the_connection(bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.send(frame(b""))
        assert wire.is_closed()


@pytest.mark.parametrize("kept", [1, 3, 4, 7, 8, 9, 12])
def test_a_frame_cut_short_by_its_sender_harms_nobody(kept: int, bootstrap: str) -> None:
    whole = frame(request_header(METADATA, 1, 1) + metadata_v1())
    with connect(bootstrap) as wire:
        wire.send(whole[:kept])
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()


def test_a_body_shorter_than_it_says_closes_the_connection(bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.request(METADATA, 1, struct.pack(">i", 5) + string("only one"))
        assert wire.is_closed()


def test_an_array_of_two_billion_entries_closes_the_connection(bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.request(METADATA, 1, struct.pack(">i", 2**31 - 1))
        assert wire.is_closed()


def test_a_request_sent_byte_by_byte_is_answered(bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(request_header(API_VERSIONS, 0, 77)):
            wire.send(bytes([byte]))
        correlation, body = wire.answer()
    assert correlation == 77
    assert parse_api_versions_v0(body)[0] == 0


# APIs and versions


def test_the_versions_of_every_needed_api_are_told(bootstrap: str) -> None:
    told = api_versions(bootstrap)
    groups = {8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69}
    admin = {19, 20, 21, 22, 32, 33, 35, 37, 44, 60, 61, 75}
    assert {PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS} | groups | admin <= told.keys()
    assert all(0 <= lowest <= highest for lowest, highest in told.values())


def test_a_too_new_api_versions_request_is_answered_in_version_0(bootstrap: str) -> None:
    highest = api_versions(bootstrap)[API_VERSIONS][1]
    with connect(bootstrap) as wire:
        for version in (highest + 1, 100, 32767):
            wire.request(API_VERSIONS, version, NO_TAGS, correlation=version)
            correlation, body = wire.answer()
            assert correlation == version
            error, table = parse_api_versions_v0(body)
            assert error == UNSUPPORTED_VERSION
            assert table == {API_VERSIONS: (0, highest)}


def test_an_unsupported_version_of_any_api_closes_the_connection(bootstrap: str) -> None:
    for api, (lowest, highest) in api_versions(bootstrap).items():
        if api == API_VERSIONS:
            continue
        for version in {highest + 1, 999, lowest - 1}:
            with connect(bootstrap) as wire:
                wire.request(api, version)
                assert wire.is_closed(), f"api {api} version {version}"


@pytest.mark.parametrize("api", [-1, 999, 32767, -32768])
def test_an_unknown_api_closes_the_connection(api: int, bootstrap: str) -> None:
    with connect(bootstrap) as wire:
        wire.request(api, 0)
        assert wire.is_closed()


# Order and waiting


def test_pipelined_requests_are_answered_in_order(bootstrap: str, topic: str) -> None:
    requests = []
    for number in range(0, 300, 3):
        requests.append(frame(request_header(API_VERSIONS, 0, number)))
        fetch = fetch_v4(topic, wait_ms=1)
        requests.append(frame(request_header(FETCH, 4, number + 1) + fetch))
        requests.append(frame(request_header(METADATA, 1, number + 2) + metadata_v1(topic)))
    with connect(bootstrap) as wire:
        wire.send(b"".join(requests))
        assert [wire.answer()[0] for _ in requests] == list(range(300))


def test_a_waiting_fetch_holds_back_what_was_sent_after_it(bootstrap: str, topic: str) -> None:
    with connect(bootstrap) as wire:
        wire.request(FETCH, 4, fetch_v4(topic, wait_ms=300), correlation=1)
        wire.request(API_VERSIONS, 0, correlation=2)
        assert [wire.answer()[0] for _ in range(2)] == [1, 2]


def test_an_empty_long_poll_returns_when_its_time_is_over(bootstrap: str, topic: str) -> None:
    with connect(bootstrap) as wire:
        asked = time.monotonic()
        wire.request(FETCH, 4, fetch_v4(topic, wait_ms=500))
        _, body = wire.answer()
        assert fetched_v4(body) == (0, 0, 0)
        assert time.monotonic() - asked >= 0.45, "it waited as it was asked to"


def test_a_long_poll_is_answered_as_soon_as_there_is_a_message(bootstrap: str, topic: str) -> None:
    with connect(bootstrap) as wire:
        wire.request(FETCH, 4, fetch_v4(topic, wait_ms=600_000))
        Confluent(bootstrap).write(topic, [Message(b"here")])
        error, high_watermark, size = fetched_v4(wire.answer()[1])
        assert (error, high_watermark) == (0, 1)
        assert size > 60


def test_a_long_poll_whose_client_is_gone_harms_nobody(bootstrap: str, topic: str) -> None:
    for _ in range(50):
        with connect(bootstrap) as wire:
            wire.request(FETCH, 4, fetch_v4(topic, wait_ms=30_000))


def test_unknown_partitions_are_answered_with_an_error(bootstrap: str, topic: str) -> None:
    with connect(bootstrap) as wire:
        wire.request(LIST_OFFSETS, 1, list_offsets_v1(topic, 99, -1))
        _, body = wire.answer()
        (error,) = struct.unpack_from(">h", body, 4 + 2 + len(topic) + 4 + 4)
        assert error == UNKNOWN_TOPIC_OR_PARTITION
        wire.request(FETCH, 4, fetch_v4(topic, partition=99))
        assert fetched_v4(wire.answer()[1])[0] == UNKNOWN_TOPIC_OR_PARTITION


# Many, slow and greedy


def test_half_frames_on_many_connections_hold_up_nobody(
    bootstrap: str, request: pytest.FixtureRequest
) -> None:
    whole = frame(request_header(METADATA, 1, 9) + metadata_v1())
    with bounded_memory(request), ExitStack() as stack:
        wires = [stack.enter_context(connect(bootstrap)) for _ in range(200)]
        for wire in wires:
            wire.send(whole[:10])
        assert api_versions(bootstrap)
        for wire in wires:
            wire.send(whole[10:])
        assert {wire.answer()[0] for wire in wires} == {9}


def test_announced_but_unsent_megabytes_take_no_memory(
    bootstrap: str, request: pytest.FixtureRequest
) -> None:
    with bounded_memory(request), ExitStack() as stack:
        for _ in range(200):
            wire = stack.enter_context(connect(bootstrap))
            wire.send(struct.pack(">i", 90 * MiB) + b"\0" * 100)
        assert api_versions(bootstrap)


def test_idle_connections_hold_up_nobody(bootstrap: str, request: pytest.FixtureRequest) -> None:
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(5_000, soft_limit - 500)
    with bounded_memory(request), ExitStack() as stack:
        wires = [stack.enter_context(connect(bootstrap)) for _ in range(count)]
        assert api_versions(bootstrap)
        for wire in wires[:: count // 50]:
            wire.request(API_VERSIONS, 0, correlation=5)
            assert wire.answer()[0] == 5


def test_a_client_that_never_reads_its_answers_is_not_fed_for_ever(
    bootstrap: str, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    topic = new_topic()
    values = [random.Random(number).randbytes(500_000) for number in range(20)]
    Confluent(bootstrap).write(topic, [Message(value) for value in values])
    fetch = frame(request_header(FETCH, 4, 1) + fetch_v4(topic, bytes_max=50 * MiB))
    with bounded_memory(request), ExitStack() as stack:
        greedy = [stack.enter_context(connect(bootstrap, receive_buffer=4_096)) for _ in range(20)]
        for wire in greedy:
            flood(wire, fetch * 100)  # asks for one gigabyte
        for _ in range(20):
            assert api_versions(bootstrap)


def flood(wire: Wire, data: bytes) -> None:
    """Send what the broker takes, without waiting for it to take more."""
    wire.socket.setblocking(False)
    try:
        wire.socket.send(data)
    except BlockingIOError:
        pass


def test_a_flood_of_requests_is_answered_whole_when_it_is_read(bootstrap: str, topic: str) -> None:
    count = 2_000
    with connect(bootstrap) as wire:
        wire.send(
            b"".join(frame(request_header(API_VERSIONS, 0, number)) for number in range(count))
        )
        assert [wire.answer()[0] for _ in range(count)] == list(range(count))


def test_connections_beyond_the_limit_are_closed_and_the_others_stay(
    start_broker: Callable[..., Broker],
) -> None:
    node = start_broker({"listeners.connections_max": 20})
    with ExitStack() as stack:
        wires = [stack.enter_context(connect(node.bootstrap)) for _ in range(20)]
        for wire in wires:
            wire.request(API_VERSIONS, 0)
            wire.answer()
        with connect(node.bootstrap) as one_too_many:
            assert one_too_many.is_closed()
        wires[0].request(API_VERSIONS, 0, correlation=8)
        assert wires[0].answer()[0] == 8
        wires.pop().socket.close()

        def has_room() -> bool:
            try:
                return bool(api_versions(node.bootstrap))
            except ConnectionError:
                return False

        eventually(has_room, because="a closed connection makes room for another")


def test_idle_connections_are_closed_after_their_time(start_broker: Callable[..., Broker]) -> None:
    node = start_broker({"listeners.idle_timeout_ms": 200})
    with connect(node.bootstrap) as wire:
        wire.request(API_VERSIONS, 0)
        wire.answer()
        assert wire.is_closed()
