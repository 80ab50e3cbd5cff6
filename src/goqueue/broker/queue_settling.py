"""Settling messages of a group: every receipt finds its queue, and every one gets its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.broker.promise import Promise
from goqueue.broker.queue_host import HostedQueue
from goqueue.delivery import HEAD_LENGTH, Queue, Settled, check_receipt
from goqueue.model.errors import GoQueueError, InvalidReceipt, StaleReceipt

Outcomes = list[GoQueueError | None]
Call = Callable[[Queue, Sequence[str]], list[Settled]]


def settle(
    queues: Sequence[HostedQueue], receipts: Sequence[str], call: Call, *, is_durable: bool
) -> Promise[Outcomes]:
    """Make a call on each queue with the receipts that are its own; the outcomes, in order.

    With `is_durable` they are told when they are as durable as everything that is acknowledged.
    """
    if len(queues) == 1:
        return _settle_all(queues[0], receipts, call, is_durable=is_durable)
    outcomes: Outcomes = [None] * len(receipts)
    shares = route(queues, receipts, outcomes)
    promise: Promise[Outcomes] = Promise()
    if not shares:
        promise.resolve(outcomes)
        return promise
    gathering = _Gathering(promise, outcomes, len(shares))
    for hosted, places in shares.items():
        settled = call(hosted.queue, [receipts[place] for place in places])
        if is_durable:
            hosted.answer(settled).then(gathering.part(places))
        else:
            hosted.settle()
            gathering.part(places)([one.error for one in settled], None)
    return promise


def _settle_all(
    hosted: HostedQueue, receipts: Sequence[str], call: Call, *, is_durable: bool
) -> Promise[Outcomes]:
    """All receipts belong to one queue, or to none."""
    settled = call(hosted.queue, receipts)
    if is_durable:
        return hosted.answer(settled)
    hosted.settle()
    promise: Promise[Outcomes] = Promise()
    promise.resolve([one.error for one in settled])
    return promise


class _Gathering:
    """Puts the answers of several queues together."""

    def __init__(self, promise: Promise[Outcomes], outcomes: Outcomes, part_count: int) -> None:
        self._promise = promise
        self._outcomes = outcomes
        self._left = part_count
        self._failure: Exception | None = None

    def part(self, places: list[int]) -> Callable[[Outcomes | None, Exception | None], None]:
        def done(some: Outcomes | None, error: Exception | None) -> None:
            self._left -= 1
            if some is None:
                self._failure = error
            else:
                for place, outcome in zip(places, some, strict=True):
                    self._outcomes[place] = outcome
            if not self._left:
                answer = None if self._failure is not None else self._outcomes
                self._promise.settle(answer, self._failure)

        return done


def route(
    queues: Sequence[HostedQueue], receipts: Sequence[str], outcomes: Outcomes
) -> dict[HostedQueue, list[int]]:
    """Which receipts belong to which queue of the group; those of none are answered."""
    by_number = {hosted.queue.number: hosted for hosted in queues}
    by_head: dict[str, HostedQueue | None] = {}
    shares: dict[HostedQueue, list[int]] = {}
    for place, text in enumerate(receipts):
        head = text[:HEAD_LENGTH]
        try:
            if head not in by_head:
                by_head[head] = by_number.get(check_receipt(text).queue)
            hosted = by_head[head]
            if hosted is None:
                raise StaleReceipt()
            shares.setdefault(hosted, []).append(place)
        except (InvalidReceipt, StaleReceipt) as error:
            outcomes[place] = error
    return shares
