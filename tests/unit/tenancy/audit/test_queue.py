"""The queue of audit events: in order, bounded, and the most severe survive."""

from __future__ import annotations

import random

import pytest

from goqueue.tenancy.audit.events import Severity
from goqueue.tenancy.audit.queue import AuditQueue, QueueLimits

LOW, HIGH = Severity.LOW, Severity.HIGH


def everything(queue: AuditQueue) -> list[bytes]:
    return queue.take(events_max=1 << 30, bytes_max=1 << 30)


def test_events_leave_in_the_order_of_their_arrival() -> None:
    queue = AuditQueue()
    for number in range(10):
        queue.add(random.Random(number).choice(list(Severity)), b"%d" % number)
    assert queue.take(events_max=3, bytes_max=100) == [b"0", b"1", b"2"]
    assert queue.take(events_max=100, bytes_max=2) == [b"3", b"4"]
    assert queue.take(events_max=100, bytes_max=0) == [b"5"]
    assert len(queue) == 4
    assert everything(queue) == [b"6", b"7", b"8", b"9"]
    assert everything(queue) == []


def test_the_oldest_of_the_lowest_severity_is_dropped() -> None:
    queue = AuditQueue(QueueLimits(events_max=3))
    queue.add(HIGH, b"a")
    queue.add(LOW, b"b", count=7)
    queue.add(LOW, b"c")
    queue.add(HIGH, b"d")
    queue.add(Severity.INFORMATIONAL, b"e")
    assert queue.take_lost() == 8
    assert queue.take_lost() == 0
    assert everything(queue) == [b"a", b"c", b"d"]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_neither_taken_nor_waiting_is_counted(seed: int) -> None:
    random_ = random.Random(seed)
    limits = QueueLimits(events_max=20, bytes_max=300)
    queue, added, taken, lost = AuditQueue(limits), 0, 0, 0
    waiting: list[tuple[Severity, bytes]] = []
    for number in range(2_000):
        severity, text = random_.choice(list(Severity)), b"%05d" % number * random_.randint(1, 9)
        queue.add(severity, text)
        waiting.append((severity, text))
        added += 1
        assert len(queue) <= limits.events_max
        if random_.random() < 0.1:
            texts = queue.take(events_max=random_.randint(1, 9), bytes_max=100)
            taken += len(texts)
            assert texts == sorted(texts)
        lost += queue.take_lost()
    left = everything(queue)
    assert sum(map(len, left)) <= limits.bytes_max
    assert taken + len(left) + lost == added
