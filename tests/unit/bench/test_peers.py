"""Runs of the peers' clients: what is asked of them, and which of their answers do not count."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from multiprocessing import RawArray, Value
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.clients.build import Toolbox
from bench.clients.sqs_bench import Share
from bench.peers import known
from bench.peers.load import (
    DEPTH,
    Queue,
    consume_from_peer,
    depth_for,
    fresh_queue,
    publish_to_peer,
)
from bench.processes import LoadFailed
from bench.rows.beside import with_same_promise
from bench.session import EVERY, NONE

TOOLS = Toolbox(Path())
WHOLE = {
    "seconds": 0.5,
    "acked": 1_100,
    "timed": 1_000,
    "failed": 0,
    "missing": 0,
    "first_error": "",
    "cpu_seconds": 0.1,
    "p50_ms": 1.0,
    "p99_ms": 2.0,
    "p999_ms": 3.0,
    "max_ms": 4.0,
}


@dataclass
class ToldPeer:
    """A peer whose client answers what it was told to, whatever it is asked."""

    answer: dict[str, Any]
    version: str = "1"
    settings: str = ""
    address: str = "127.0.0.1:1"
    asked: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return os.getpid()

    def client(self, tools: Toolbox, mode: str) -> list[str]:
        self.asked.append(mode)
        return ["sh", "-c", f"printf '%s' '{json.dumps(self.answer)}'", mode]

    def start(self) -> None: ...

    def close(self) -> None: ...


def test_a_run_that_lost_nothing_counts_and_its_queue_is_removed() -> None:
    peer = ToldPeer(WHOLE)
    outcome = publish_to_peer(TOOLS, peer, connections=1, depth=1, count=1_100)
    assert not outcome.void
    assert outcome.values["messages_per_s"] == 2_000
    assert peer.asked == ["publish", "remove"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"missing": 1}, "1 missing"),
        ({"failed": 1, "first_error": "acknowledged 9, stored 8"}, "stored 8"),
    ],
)
def test_a_run_that_lost_or_failed_anything_is_void(change: dict[str, Any], why: str) -> None:
    peer = ToldPeer(WHOLE | change)
    published = publish_to_peer(TOOLS, peer, connections=1, depth=1, count=1_100)
    assert why in published.void
    with pytest.raises(LoadFailed, match=why):
        consume_from_peer(TOOLS, peer, consumers=1, at_once=1, count=1_100, size=1000)
    assert peer.asked[-1] == "remove"


def test_a_run_in_which_nothing_was_timed_has_no_speed() -> None:
    peer = ToldPeer(WHOLE | {"timed": 0})
    with pytest.raises(LoadFailed, match="timed"):
        publish_to_peer(TOOLS, peer, connections=1, depth=1, count=100)


def test_a_queue_is_removed_when_its_run_fails() -> None:
    peer = ToldPeer(WHOLE)
    with pytest.raises(KeyError), fresh_queue(TOOLS, peer):
        raise KeyError
    assert peer.asked == ["remove"]


def test_all_clients_are_asked_in_the_same_words() -> None:
    queue = Queue(TOOLS, ToldPeer(WHOLE), "orders")
    command = queue.command("publish", 60, count=10, stop_after=2.5)
    assert command[-10:] == [
        *("--port", "1", "--queue", "orders", "--seconds-max", "60"),
        *("--count", "10", "--stop-after", "2.5"),
    ]


def test_large_messages_are_fewer_on_their_way() -> None:
    assert depth_for(100) == depth_for(1000) == DEPTH
    assert depth_for(65_536) * 65_536 <= 8_000_000
    assert depth_for(100_000_000) == 1


def test_every_peer_is_asked_for_by_one_word_and_has_a_place() -> None:
    names = [name for group in known.ASKED.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) == known.SYNCED | known.LOGS | known.QUEUES


def test_goqueue_stands_beside_peers_with_the_same_promise() -> None:
    assert with_same_promise(known.REDIS_SYNCED) == with_same_promise(known.RABBITMQ) == EVERY
    assert with_same_promise(known.REDIS) == with_same_promise(known.NATS) == NONE
    assert with_same_promise("Apache Kafka") == NONE


def test_a_message_that_is_deleted_twice_counts_once() -> None:
    share = Share(
        arguments=SimpleNamespace(),  # type: ignore[arg-type]
        index=0,
        next_number=Value("q", 0),
        deleted=Value("q", 0),
        seen=RawArray("b", 4),
        barrier=None,
    )
    share.note_deleted([0, 1])
    share.note_deleted([1, 2])
    assert share.deleted.value == 3
