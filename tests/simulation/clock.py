"""Virtual time: everything that waits, in one thread, in an order that a seed decides.

A world has one `VirtualClock`; each of its nodes sees time through a `NodeClock`, which may be
wrong about the hour and which forgets all it was to do when the node dies. A node can be paused, as
by SIGSTOP: its timers fire late, and what is sent to it is processed after it is resumed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, Protocol

from goqueue.loop.clock import NANOSECONDS
from goqueue.runtime.clock import SteadyClock

START_MS = 1_700_000_000_000
STEPS_MAX = 10_000_000

Done = Callable[[Any, BaseException | None], None]


class Clock(Protocol):
    """What a node asks of time."""

    def now_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    def call_soon(self, action: Callable[[], None]) -> None: ...

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Timer: ...

    def run_blocking(self, work: Callable[[], Any], done: Done) -> object: ...


class Timer:
    """Something that will happen unless it is cancelled."""

    __slots__ = ("action", "at_us", "is_cancelled")

    def __init__(self, at_us: int, action: Callable[[], None]) -> None:
        self.at_us = at_us
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class NeverHappened(AssertionError):
    """The world came to rest, or ran out of time, before what was waited for."""


class VirtualClock:
    """Runs timers in the order of their times, those of one time in the order they were set."""

    def __init__(self, seed: int | random.Random = 0, *, start_ms: int = START_MS) -> None:
        self.random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self.blocking_ms_max = 5.0  # how long a call in a thread may take to begin
        self._now_us = start_ms * 1000
        self._timers: list[tuple[int, int, Timer]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._now_us // 1000

    def wall_ms(self) -> int:
        return self.now_ms()

    def monotonic_ms(self) -> int:
        return self.now_ms()

    def call_soon(self, action: Callable[[], None]) -> None:
        self.call_later(0, action)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        timer = Timer(self._now_us + max(0, round(delay_ms * 1000)), action)
        self._count += 1
        heapq.heappush(self._timers, (timer.at_us, self._count, timer))
        return timer

    def run_blocking(
        self,
        work: Callable[[], Any],
        done: Done,
        *,
        extra_ms: Callable[[], float] = lambda: 0.0,
    ) -> Timer:
        """Do `work` some time later, as a thread would, then call `done(result, error)`.

        Its effects come before its answer, so a crash may fall between the two. `extra_ms` is
        asked after the work how much longer it took (a disk's `take_delay_ms`, for instance).
        Cancelling drops whichever of the two has not happened yet.
        """
        handle = Timer(0, lambda: None)

        def begin() -> None:
            if handle.is_cancelled:
                return
            result, failure = None, None
            try:
                result = work()
            except Exception as error:
                failure = error
            answer_ms = extra_ms() + self.random.uniform(0, 0.2)
            self.call_later(
                answer_ms, lambda: None if handle.is_cancelled else done(result, failure)
            )

        self.call_later(self.random.uniform(0, self.blocking_ms_max), begin)
        return handle

    def run_for(self, ms: float) -> None:
        """Let so much time go by."""
        until = self._now_us + round(ms * 1000)
        while (timer := self._take_due(until)) is not None:
            timer.action()
        self._now_us = until

    def run_until(self, is_reached: Callable[[], bool], *, ms_max: float = 3_600_000) -> None:
        """Let time go by until something is so; `NeverHappened` when it never comes."""
        until = self._now_us + round(ms_max * 1000)
        for _ in range(STEPS_MAX):
            if is_reached():
                return
            timer = self._take_due(until)
            if timer is None:
                break
            timer.action()
        raise NeverHappened(f"Nothing left to do at {self.now_ms()} ms, or out of time.")

    def run_until_idle(self, *, ms_max: float = 3_600_000) -> None:
        """Let time go by until nothing is waiting any more."""
        self.run_until(lambda: not self.has_timers(), ms_max=ms_max)

    @property
    def steps(self) -> int:
        """How much was ever to be done."""
        return self._count

    def has_timers(self) -> bool:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return bool(self._timers)

    def node(self, *, skew_ms: int = 0) -> NodeClock:
        """This clock as one node sees it."""
        return NodeClock(self, skew_ms)

    def _take_due(self, until_us: int) -> Timer | None:
        if not self.has_timers() or self._timers[0][0] > until_us:
            return None
        timer = heapq.heappop(self._timers)[2]
        self._now_us = max(self._now_us, timer.at_us)
        return timer


class NodeClock:
    """One node's view: a wall clock that may be wrong, and timers that die with the node.

    `skew_ms` says by how much it is wrong, and can be changed while the node runs. `perform` calls
    whatever the node does: its timers, its input and the work of its threads.
    """

    def __init__(self, clock: VirtualClock, skew_ms: int) -> None:
        self.skew_ms = skew_ms
        self.extra_ms: Callable[[], float] = lambda: 0.0
        self.perform: Callable[[Callable[[], Any]], Any] = lambda action: action()
        self._clock = clock
        steady = SteadyClock(
            wall_ns=lambda: self.wall_ms() * NANOSECONDS,
            stopwatch_ns=lambda: clock.now_ms() * NANOSECONDS,
        )
        self.now_ms, self.monotonic_ms = steady.now_ms, steady.monotonic_ms
        self._timers: list[Timer] = []
        self._sweep_at = 64
        self.is_paused = False
        self._held: list[tuple[bool, Callable[[], None]]] = []  # input or a timer; what it does

    def wall_ms(self) -> int:
        return self._clock.now_ms() + self.skew_ms

    def call_soon(self, action: Callable[[], None]) -> None:
        self.call_later(0, action)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        def fire() -> None:
            if self.is_paused:
                self._held.append((False, lambda: None if timer.is_cancelled else action()))
            else:
                self.perform(action)

        timer = self._clock.call_later(delay_ms, fire)
        return self._remember(timer)

    def deliver(self, action: Callable[[], None]) -> None:
        """Process input that has arrived: at once, or when the node is resumed."""
        if self.is_paused:
            self._held.append((True, action))
        else:
            self.perform(action)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: it computes nothing until it is resumed."""
        self.is_paused = True

    def resume(self) -> None:
        """Let the process go on: with what it was sent meanwhile, or with its timers."""
        if not self.is_paused:
            return
        self.is_paused = False
        held, self._held = self._held, []
        first = self._clock.random.choice([True, False, None])
        if first is not None:
            held.sort(key=lambda one: one[0] is not first)
        for _, action in held:
            self.call_soon(action)

    def run_blocking(self, work: Callable[[], Any], done: Done) -> Timer:
        # The handle does not know when its work is over, so it unregisters itself in `done`.
        handle: Timer

        def finished(result: Any, error: BaseException | None) -> None:
            handle.cancel()
            self.deliver(lambda: done(result, error))

        handle = self._clock.run_blocking(
            lambda: self.perform(work), finished, extra_ms=lambda: self.extra_ms()
        )
        handle.at_us = 1 << 62  # it is due whenever it is, so no sweep may drop it
        return self._remember(handle)

    def die(self) -> None:
        """Drop everything this node still had to do."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._held.clear()

    def _remember(self, timer: Timer) -> Timer:
        self._timers.append(timer)
        if len(self._timers) >= self._sweep_at:
            now_us = self._clock.now_ms() * 1000
            self._timers = [
                one for one in self._timers if not one.is_cancelled and one.at_us >= now_us
            ]
            self._sweep_at = 64 + 2 * len(self._timers)
        return timer
