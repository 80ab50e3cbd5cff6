"""Counting the messages of a queue, also those that its owner has not heard of."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.broker.named_queues.counting import Counts, QueueCounting
from goqueue.loop.promise import Promise


def _kept(value: Any) -> Promise[Any]:
    promise: Promise[Any] = Promise()
    promise.resolve(value)
    return promise


def _count(heard: Sequence[int], stored: Sequence[int], *, delay_ms: int = 0) -> Counts:
    """A queue with 3 ready, 2 retrying, 1 parked, 4 out, 5 held back and 6 scheduled messages."""
    partitions = [
        SimpleNamespace(high_watermark=end, delayed=5 if number == 0 else 0)
        for number, end in enumerate(heard)
    ]
    stats = SimpleNamespace(
        ready=3, retrying=2, parked=1, in_flight=4, delayed=5, partitions=partitions
    )
    group = SimpleNamespace(settings=SimpleNamespace(delay_ms=delay_ms))
    queues = SimpleNamespace(
        positions=SimpleNamespace(begin=lambda *_: _kept(None)),
        inspection=SimpleNamespace(stats=lambda *_: stats),
        groups=SimpleNamespace(describe=lambda _: group),
    )
    topics = SimpleNamespace(get=lambda _: SimpleNamespace(partitions=list(stored)))
    scheduled = SimpleNamespace(count=lambda **_: _kept(6))

    async def look(*_: object) -> list[Any]:
        return [SimpleNamespace(last_stable_offset=end) for end in stored]

    counting = QueueCounting(cast(Any, topics), cast(Any, queues), scheduled, cast(Any, look))
    queue = SimpleNamespace(group="orders", topic="orders")
    found: list[Counts] = []
    counting.count(cast(Any, queue)).then(lambda counts, _: found.append(cast(Counts, counts)))
    return found[0]


@pytest.mark.parametrize(
    ("heard", "stored", "coming"),
    [((10, 20), (15, 20), 0), ((10, 20), (17, 23), 5), ((10, 20), (12, 19), 0)],
    ids=["all was heard of", "some was not", "the leader was asked before"],
)
def test_what_the_owner_has_not_heard_of_counts(
    heard: Sequence[int], stored: Sequence[int], coming: int
) -> None:
    """Of the first partition five messages are held back, beyond what may be received."""
    assert _count(heard, stored) == Counts(6 + coming, 4, 11)
    assert _count(heard, stored, delay_ms=1) == Counts(6, 4, 11 + coming)
