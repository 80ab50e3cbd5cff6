"""Settling messages of a group: routes receipts to their queues and gathers the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.broker.queues.host import HostedQueue
from goqueue.delivery import HEAD_LENGTH, Queue, Settled, check_receipt
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, InvalidReceipt, StaleReceipt

Outcomes = list[GoQueueError | None]
Call = Callable[[Queue, Sequence[str]], list[Settled]]


def settle(queues: Sequence[HostedQueue], receipts: Sequence[str], call: Call) -> Promise[Outcomes]:
    """Call each queue with its own receipts; return the outcomes, in order.

    They are returned once they are durable.
    """
    if len(queues) == 1:  # All receipts belong to it, or to none.
        return queues[0].answer(call(queues[0].queue, receipts))
    outcomes: Outcomes = [None] * len(receipts)
    shares = route(queues, receipts, outcomes)
    promise: Promise[Outcomes] = Promise()
    if not shares:
        promise.resolve(outcomes)
        return promise
    gathering = _Gathering(promise, outcomes, len(shares))
    for hosted, places in shares.items():
        settled = call(hosted.queue, [receipts[place] for place in places])
        hosted.answer(settled).then(gathering.part(places))
    return promise


class _Gathering:
    """Gathers the results of several queues."""

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
    """Group receipts by the queue that they belong to; those of no queue get an error."""
    by_number: dict[int, list[HostedQueue]] = {}
    for hosted in queues:
        by_number.setdefault(hosted.queue.number, []).append(hosted)
    by_head: dict[str, HostedQueue | None] = {}
    shares: dict[HostedQueue, list[int]] = {}
    for place, text in enumerate(receipts):
        head = text[:HEAD_LENGTH]
        try:
            if head not in by_head:
                by_head[head] = _issuer(by_number.get(check_receipt(text).queue, []), text)
            found = by_head[head]
            if found is None:
                raise StaleReceipt()
            shares.setdefault(found, []).append(place)
        except (InvalidReceipt, StaleReceipt) as error:
            outcomes[place] = error
    return shares


def _issuer(queues: list[HostedQueue], receipt: str) -> HostedQueue | None:
    """Return the queue that issued a receipt; more than one candidate is very rare."""
    if len(queues) < 2:
        return queues[0] if queues else None
    return next((one for one in queues if one.queue.settling.has_issued(receipt)), queues[0])
