"""The listener has an epoch acknowledged at its end, and knows which queries are queues."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.client import Unreachable
from goqueue.spark.queues import epochs
from goqueue.spark.queues.listener import QueueListener
from goqueue.spark.queues.offsets import before_all
from tests.unit.spark.queues.queue_world import QueueWorld


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> QueueWorld:
    world = QueueWorld()
    monkeypatch.setattr(epochs, "carrier", lambda *_: world.transport())
    return world


def event(end: str | None, latest: str | None) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    return SimpleNamespace(progress=SimpleNamespace(id="query", sources=[source]))


def an_epoch(world: QueueWorld) -> Any:
    """The progress that Spark reports when it has committed an epoch of three messages."""
    world.publish(3)
    driver = world.driver()
    end = driver.next_end(driver.initial, is_limited=True)
    assert end is not None
    driver.tasks(end)
    return event(json.dumps(end.to_json()), json.dumps(driver.report()))


def test_the_messages_of_an_epoch_are_done_at_its_end(world: QueueWorld) -> None:
    progress = an_epoch(world)
    assert world.open_count() == 3
    listener = QueueListener()
    listener.onQueryProgress(progress)
    assert world.open_count() == 0
    sent = len(world.requests)
    listener.onQueryProgress(progress)
    assert len(world.requests) == sent, "once is enough"


def test_an_epoch_that_cannot_be_committed_now_is_tried_again(
    world: QueueWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, listener = an_epoch(world), QueueListener()

    def refuse(*_: object) -> None:
        raise Unreachable("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "commit_epoch", refuse)
        listener.onQueryProgress(progress)
    assert world.open_count() == 3
    listener.onQueryProgress(progress)
    assert world.open_count() == 0


def test_other_sources_are_left_alone(world: QueueWorld) -> None:
    offset = json.dumps(before_all("workers").to_json())
    others = [(offset, None), ("17", "/a/path"), (offset, '{"source": "goqueue"}'), ("1", "[1]")]
    for end, latest in others:
        QueueListener().onQueryProgress(event(end, latest))
    QueueListener().onQueryProgress(event(None, '{"source": "goqueue-queue", "http": "h:1"}'))
    assert not any("commit" in one for one in world.requests)
