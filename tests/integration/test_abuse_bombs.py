"""A few bytes that unpack to many cost little memory, wherever they are unpacked."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cramjam
import httpx
import pytest
from confluent_kafka.admin import AdminClient

from goqueue.model.batch import Record, build_batch, encode_batch, encode_records
from goqueue.model.compression import Compression, compress

from .abuse import MiB, bounded, receive
from .process import Broker
from .topics import create_topic
from .wire import PRODUCE, connect, produce_v3, produced_v3

pytestmark = pytest.mark.single_node("measures the memory of one process")

LARGEST = 31 * MiB  # just within what a batch may unpack to
BOMB = 48 * MiB  # beyond it
CODECS = [Compression.GZIP, Compression.LZ4, Compression.ZSTD]
MESSAGE_TOO_LARGE, INVALID_RECORD = 10, 87
PIPELINED = 12
NOW_MS = int(time.time() * 1000)
STORED = 8
PARTITIONS = 24


def _values(codec: Compression, size: int) -> bytes:
    """A batch whose one record has so many zeros as its value."""
    return bytes(encode_batch([Record(b"k", bytes(size), (), NOW_MS)], codec=codec))


def _packed(payload: bytes, count: int, codec: Compression) -> bytes:
    return bytes(
        build_batch(
            compress(codec, payload),
            record_count=count,
            attributes=codec,
            base_timestamp=NOW_MS,
            max_timestamp=NOW_MS,
        )
    )


def _stream_bomb(size: int) -> bytes:
    [record] = [Record(b"k", bytes(size), (), NOW_MS)]
    payload = encode_records([(0, record)], base_timestamp=record.timestamp_ms)
    compressor = cramjam.zstd.Compressor()
    compressor.compress(payload)
    return bytes(
        build_batch(
            bytes(compressor.finish()),
            record_count=1,
            attributes=Compression.ZSTD,
            base_timestamp=record.timestamp_ms,
            max_timestamp=record.timestamp_ms,
        )
    )


def _announcing(count: int) -> bytes:
    """A batch of one record of a few bytes that says it has so many."""
    payload = encode_records([(0, Record(None, b"", (), NOW_MS))], base_timestamp=NOW_MS)
    return _packed(payload, count, Compression.NONE)


def _plain(text: str) -> bytes:
    return bytes(encode_batch([Record(b"k", text.encode(), (), NOW_MS)]))


def _produce(node: Broker, topic: str, *batches: bytes, partition: int = 0) -> list[int]:
    """The error code of each batch, all of them sent at once."""
    with connect(node.bootstrap) as wire:
        for batch in batches:
            wire.request(PRODUCE, 3, produce_v3(topic, batch, partition=partition))
        return [produced_v3(wire.answer()[1])[0] for _ in batches]


def _create(node: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    create_topic(admin, topic, partitions=partitions, **config)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node on which an earlier one, with another bound, has stored what is too large."""
    directory: Path = tmp_path_factory.mktemp("bombed")
    node = Broker(directory, {"topics.unpacked_bytes_max": "1GiB"})
    try:
        node.start()
        _create(node, "stored")
        bombs = [_values(codec, BOMB) for codec in CODECS] + [_stream_bomb(BOMB)]
        batches = [_plain("before"), *bombs * (STORED // len(bombs)), _plain("after")]
        assert _produce(node, "stored", *batches) == [0] * len(batches)
        node.stop()
        node.settings = {"compaction.check_ms": 200}
        node.start()
        yield node
    finally:
        node.close()


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_producer_of_bombs_is_refused_and_told_that_they_are_too_large(
    node: Broker, codec: Compression
) -> None:
    _create(node, f"refused-{codec.name}")
    batch = _values(codec, BOMB)
    with bounded(node):
        answers = _produce(node, f"refused-{codec.name}", *[batch] * PIPELINED, _plain("good"))
    assert answers == [MESSAGE_TOO_LARGE] * PIPELINED + [0]


def test_a_bomb_that_does_not_say_how_large_it_is_is_refused(node: Broker) -> None:
    _create(node, "unannounced")
    batch = _stream_bomb(BOMB)
    with bounded(node):
        answers = _produce(node, "unannounced", *[batch] * PIPELINED, _plain("good"))
    assert answers == [MESSAGE_TOO_LARGE] * PIPELINED + [0]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_batches_that_are_just_small_enough_leave_time_to_others(
    node: Broker, codec: Compression
) -> None:
    _create(node, f"largest-{codec.name}")
    batch = _values(codec, LARGEST)
    with bounded(node):
        answers = _produce(node, f"largest-{codec.name}", *[batch] * PIPELINED)
    assert answers == [0] * PIPELINED


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 2])
def test_a_few_bytes_that_announce_more_records_than_they_have_are_refused(
    node: Broker, count: int
) -> None:
    topic, group = f"announced-{count}", f"workers-{count}"
    _create(node, topic)
    batch = _announcing(count)
    assert len(batch) < 75
    with bounded(node):
        answers = _produce(node, topic, *[batch] * 200, _plain("good"))
        [found] = receive(node, group, topic, 10)
    assert answers == [INVALID_RECORD] * 200 + [0]
    assert found["offset"] == 0


def _read_all(node: Broker, topic: str, query: str = "limit=1000") -> tuple[list[Any], list[Any]]:
    """All messages and all damages of a topic, a page at a time."""
    messages, damaged = [], []
    cursor = "from=earliest"
    while True:
        answer = httpx.get(f"{node.http}/v1/topics/{topic}/messages?{query}&{cursor}", timeout=60)
        assert answer.is_success, answer.text[:300]
        page = answer.json()
        messages += [
            (one["partition"], one["offset"], len(one["value"])) for one in page["messages"]
        ]
        damaged += page["damaged"]
        if cursor == f"cursor={page['cursor']}":
            return messages, damaged
        cursor = f"cursor={page['cursor']}"


def test_stored_bombs_are_named_to_http_readers_who_go_on_past_them(node: Broker) -> None:
    with bounded(node):
        messages, damaged = _read_all(node, "stored")
    assert [size for _, _, size in messages] == [len("before"), len("after")]
    assert [one["offset"] for one in damaged] == list(range(1, STORED + 1))
    assert all("topics.unpacked_bytes_max" in one["detail"] for one in damaged)


def test_stored_bombs_are_named_in_a_stream(node: Broker) -> None:
    with bounded(node):
        events = []
        url = f"{node.http}/v1/topics/stored/stream?from=earliest"
        with httpx.stream("GET", url, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                if events and events[-1].get("value") == "after":
                    break
    assert [one["value"] for one in events if "value" in one] == ["before", "after"]


def test_stored_bombs_are_passed_over_by_queue_groups(node: Broker) -> None:
    received: list[str] = []
    with bounded(node):
        while len(received) < 2:
            received += [one["value"] for one in receive(node, "eager", "stored", 100)]
    assert received == ["before", "after"]


def test_a_read_of_many_partitions_unpacks_only_so_much_at_once(node: Broker) -> None:
    _create(node, "wide", PARTITIONS)
    batch = _values(Compression.ZSTD, 3 * MiB)
    for partition in range(PARTITIONS):
        assert _produce(node, "wide", batch, partition=partition) == [0]
    with bounded(node):
        messages, _ = _read_all(node, "wide", "limit=1")
    assert sorted(partition for partition, _, _ in messages) == list(range(PARTITIONS))


def test_millions_of_tiny_records_in_a_batch_cost_little(node: Broker) -> None:
    _create(node, "tiny", **{"max.message.bytes": str(20 * MiB)})
    batch = _millions()
    with bounded(node):
        assert _produce(node, "tiny", *[batch] * 4) == [0] * 4
        answer = httpx.get(f"{node.http}/v1/topics/tiny/messages?limit=1000", timeout=60)
        assert len(answer.json()["messages"]) == 1000
        assert len(receive(node, "busy", "tiny", 100)) == 100


def _millions() -> bytes:
    """A batch of as many records as fit what it may unpack to."""
    pieces: list[bytes] = []
    numbered, size, chunk = 0, 0, 100_000
    empty = Record(None, None, (), NOW_MS)
    while size < 7 * MiB:
        piece = encode_records(
            ((number, empty) for number in range(numbered, numbered + chunk)),
            base_timestamp=NOW_MS,
        )
        pieces.append(piece)
        size += len(piece)
        numbered += chunk
    return _packed(b"".join(pieces), numbered, Compression.ZSTD)


def _peek(node: Broker, group: str, topic: str, query: str = "limit=100") -> list[Any]:
    answer = httpx.get(f"{node.http}/v1/groups/{group}/peek?topic={topic}&{query}", timeout=60)
    assert answer.is_success, answer.text[:300]
    return list(answer.json()["messages"])


@pytest.mark.parametrize("size", [LARGEST, 900_000], ids=["packed", "many"])
def test_a_peek_shows_only_so_much_at_once(node: Broker, size: int) -> None:
    """Twelve batches that unpack to 31 MiB each, or 300 of nearly a mebibyte."""
    topic, group = f"peeked-{size}", f"peeking-{size}"
    _create(node, topic, 3)
    stored = 4 if size == LARGEST else 100
    for partition in range(3):
        _produce(node, topic, *[_values(Compression.ZSTD, size)] * stored, partition=partition)
    assert receive(node, group, topic, 1)
    with bounded(node):
        seen = _peek(node, group, topic)
        assert seen
        # What comes after them is had by its offset.
        offsets: list[int] = []
        while len(offsets) < stored:
            query = f"partition=1&offset={len(offsets)}&limit=100"
            offsets += [one["offset"] for one in _peek(node, group, topic, query)]
    assert offsets == list(range(stored))
    assert [one["offset"] for one in seen] == list(range(len(seen)))


def test_many_peeks_at_once_cost_no_more_than_one(node: Broker) -> None:
    _create(node, "crowded")
    _produce(node, "crowded", *[_values(Compression.ZSTD, 3 * MiB)] * PIPELINED)
    assert receive(node, "crowd", "crowded", 1)
    host = node.http.removeprefix("http://")
    path = "/v1/groups/crowd/peek?topic=crowded&limit=100"
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    address, port = host.split(":")
    with bounded(node), ExitStack() as stack:
        for _ in range(PIPELINED):
            connection = stack.enter_context(socket.create_connection((address, int(port))))
            connection.sendall(request * PIPELINED)
        time.sleep(2)
