"""Changes of scheduled messages: cancelling them, and moving them to another time.

Cancel and release exclude each other: the first in the agenda wins. A message in flight can no
longer be cancelled, but its release is not certain: what was written for it may be lost with this
node, or refused, and then the message waits as before and can be cancelled. Until then, a caller
must not be answered that it was released. The call waits until the message is released, or can be
changed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.owners import NOBODY, Refused, ScheduleOwners, not_here
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise, promised
from goqueue.model.attributes import check_due
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    RequestTimedOut,
    ScheduleReleased,
    UnknownSchedule,
)

if TYPE_CHECKING:
    from goqueue.broker.schedules.shards import ScheduleShard

FLIGHT_MS_MAX = 5_000  # the longest wait, shorter than the timeout of calls between nodes

Outcomes = list[GoQueueError | None]  # the refusal of each change, if any


class ShardChanges:
    """Cancels messages of one log, and awaits the releases in progress that callers ask about."""

    def __init__(self, clock: Clock, log: ScheduleLog) -> None:
        self._clock = clock
        self._log = log
        self._cancelling: set[int] = set()
        self._cancels: Promise[None] = Promise()
        self._flights: dict[int, tuple[Promise[None], Handle]] = {}

    # Cancels

    def cancel(self, number: int) -> None:
        """Begin to cancel a message that can still be changed; `cancelled` resolves when it is
        done.
        """
        if not self._cancelling:
            self._clock.call_soon(self._write_cancels)
        self._cancelling.add(number)
        self._log.agenda.hold(number)

    def cancelled(self) -> Promise[None]:
        """Resolves when all cancels of this turn, which share one batch, are stored or have
        failed.
        """
        assert self._cancelling, "something is being cancelled"
        return self._cancels

    def is_being_cancelled(self, number: int) -> bool:
        return number in self._cancelling

    def _write_cancels(self) -> None:
        cancelling, self._cancelling = self._cancelling, set()
        promise, self._cancels = self._cancels, Promise()
        log = self._log
        try:
            last = log.end(sorted(cancelling), is_released=False)
        except GoQueueError as error:
            for number in cancelling:
                if log.agenda.is_waiting(number):
                    log.agenda.give_back(number, retry_ms=log.due_ms(number))
            promise.reject(error)
            return
        log.partition.when_committed(last, lambda error: promise.settle(None, error))

    # Releases in progress

    def flight_of(self, number: int) -> Promise[None] | None:
        """Resolves when a message is no longer in flight, or on timeout; None if it is not."""
        agenda = self._log.agenda
        if self.is_being_cancelled(number) or not agenda.is_in_flight(number):
            return None
        flight = self._flights.get(number)
        if flight is None:
            late = self._clock.call_later(FLIGHT_MS_MAX, partial(self._end_flight, number))
            flight = self._flights[number] = (Promise(), late)
            agenda.watch(number, partial(self._landed, number))
        return flight[0]

    def _landed(self, number: int) -> None:
        # Waiting callers change the agenda, which is in the middle of a change now.
        self._clock.call_soon(partial(self._end_flight, number))

    def _end_flight(self, number: int) -> None:
        flight = self._flights.pop(number, None)
        if flight is not None:
            promise, late = flight
            late.cancel()
            promise.resolve(None)

    def close(self) -> None:
        """End all waits, because the log has another owner."""
        for number in list(self._flights):
            self._landed(number)


class ScheduleChanges:
    """Cancels and moves messages, wherever they are owned."""

    def __init__(
        self,
        clock: Clock,
        owners: ScheduleOwners,
        find: Callable[[str], tuple[ScheduleShard, int]],
    ) -> None:
        """`find` returns the shard and the number of a message that this node owns."""
        self._clock = clock
        self._owners = owners
        self._find = find

    # Cancels

    async def cancel_many(self, schedule_ids: Sequence[str]) -> Outcomes:
        """Cancel messages at their owners; return the refusal of each, if any."""
        if self._owners.are_here:
            return await self.cancel_here(schedule_ids)
        outcomes: Outcomes = [None] * len(schedule_ids)
        by_node: dict[int, list[int]] = {}
        for index, schedule_id in enumerate(schedule_ids):
            try:
                by_node.setdefault(self._owners.owner_of(schedule_id), []).append(index)
            except GoQueueError as error:
                outcomes[index] = error
        asked = {
            node: self._cancel_at(node, [schedule_ids[index] for index in indexes])
            for node, indexes in by_node.items()
            if node != NOBODY
        }
        for node, indexes in by_node.items():
            try:
                if node == NOBODY:
                    raise not_here()
                found = await asked[node]
            except GoQueueError as error:
                found = [error] * len(indexes)
            for index, outcome in zip(indexes, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _cancel_at(self, node: int, some: list[str]) -> Promise[Outcomes]:
        if self._owners.is_here(node):
            return self.cancel_here(some)
        result: Promise[Outcomes] = Promise()

        def done(found: list[Refused] | None, error: Exception | None) -> None:
            if found is None:
                assert error is not None
                result.reject(error)
            else:
                result.resolve(
                    [_read_refused(one, text) for one, text in zip(found, some, strict=True)]
                )

        self._owners.cancel(node, some).then(done)
        return result

    def cancel_here(self, schedule_ids: Sequence[str]) -> Promise[Outcomes]:
        """The same, for messages that this node owns."""
        return promised(self._cancel_all(schedule_ids))

    async def _cancel_all(self, schedule_ids: Sequence[str]) -> Outcomes:
        outcomes: Outcomes = [None] * len(schedule_ids)
        flights = self._flights_of(schedule_ids)
        others = [index for index in range(len(schedule_ids)) if index not in flights]
        await self._cancel_some(schedule_ids, others, outcomes)
        for flight in flights.values():
            await flight
        await self._cancel_some(schedule_ids, list(flights), outcomes)
        return outcomes

    async def _cancel_some(
        self, schedule_ids: Sequence[str], some: list[int], outcomes: Outcomes
    ) -> None:
        by_shard: dict[ScheduleShard, list[int]] = {}
        for index in some:
            try:
                shard, number = self._find_changeable(schedule_ids[index])
            except GoQueueError as error:
                outcomes[index] = error
            else:
                shard.changes.cancel(number)
                by_shard.setdefault(shard, []).append(index)
        waits = [(shard.changes.cancelled(), indexes) for shard, indexes in by_shard.items()]
        for cancelled, indexes in waits:
            try:
                await cancelled
            except GoQueueError as error:
                for index in indexes:
                    outcomes[index] = error

    def _flights_of(self, schedule_ids: Sequence[str]) -> dict[int, Promise[None]]:
        """The releases to await before messages can be changed or refused, by position in the
        list.
        """
        flights: dict[int, Promise[None]] = {}
        for index, schedule_id in enumerate(schedule_ids):
            try:
                shard, number = self._find(schedule_id)
            except GoQueueError:
                continue  # The change itself reports the error.
            flight = shard.changes.flight_of(number)
            if flight is not None:
                flights[index] = flight
        return flights

    # Moves

    async def reschedule(self, schedule_id: str, due_ms: int) -> None:
        """Change the due time of a message that this node owns; refused if it has been released."""
        check_due(due_ms, now_ms=self._clock.wall_ms())
        for flight in self._flights_of([schedule_id]).values():
            await flight
        shard, number = self._find_changeable(schedule_id)
        offset = shard.log.move(number, due_ms)
        moved: Promise[None] = Promise()
        shard.log.partition.when_committed(offset, lambda error: moved.settle(None, error))
        await moved

    def _find_changeable(self, schedule_id: str) -> tuple[ScheduleShard, int]:
        shard, number = self._find(schedule_id)
        if shard.changes.is_being_cancelled(number):
            raise UnknownSchedule(schedule_id)
        if shard.log.agenda.is_in_flight(number):
            raise RequestTimedOut(
                f"The message scheduled as {schedule_id!r} is being released; its outcome is not "
                "certain yet; retry."
            )
        shard.log.agenda.check_changeable(number, schedule_id)
        return shard, number


def _read_refused(refused: Refused, schedule_id: str) -> GoQueueError | None:
    if refused is None:
        return None
    code, text = refused
    if code == ScheduleReleased.code:
        return ScheduleReleased(schedule_id)
    if code == UnknownSchedule.code:
        return UnknownSchedule(schedule_id)
    return CoordinatorNotAvailable(text)
