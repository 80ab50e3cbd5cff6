"""The scheduler on a real event loop: order, threads, and errors that come back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from goqueue.runtime.clock import THREADS_MAX, LoopClock

PATIENCE_SECONDS = 60  # a busy machine may take its time to start a thread

Story = Callable[[LoopClock], Awaitable[None]]


def run(story: Story) -> None:
    async def main() -> None:
        clock = LoopClock(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(story(clock), timeout=PATIENCE_SECONDS)
        finally:
            clock.close()

    asyncio.run(main())


class Outcomes:
    """What was handed back from threads, and in which thread."""

    def __init__(self, expected: int = 1) -> None:
        self.all: list[tuple[Any, Exception | None]] = []
        self.threads: set[int] = set()
        self._expected = expected
        self._complete = asyncio.Event()

    def __call__(self, result: Any, error: Exception | None) -> None:
        self.all.append((result, error))
        self.threads.add(threading.get_ident())
        if len(self.all) == self._expected:
            self._complete.set()

    async def complete(self) -> list[tuple[Any, Exception | None]]:
        await self._complete.wait()
        return self.all


def test_blocking_work_is_done_in_a_thread_and_answered_in_the_loop() -> None:
    async def story(clock: LoopClock) -> None:
        outcomes = Outcomes()
        clock.run_blocking(threading.get_ident, outcomes)
        ((worker, error),) = await outcomes.complete()
        assert error is None
        assert worker != threading.get_ident()
        assert outcomes.threads == {threading.get_ident()}

    run(story)


def test_what_work_raises_comes_back_as_an_error() -> None:
    async def story(clock: LoopClock) -> None:
        def work() -> None:
            raise OSError(28, "No space left on device")

        outcomes = Outcomes(2)
        clock.run_blocking(work, outcomes)
        clock.run_blocking(lambda: "still working", outcomes)
        await outcomes.complete()
        results = sorted(outcomes.all, key=lambda one: one[0] is None)
        assert results[0] == ("still working", None)
        assert isinstance(results[1][1], OSError)

    run(story)


def test_the_answer_of_work_never_comes_before_the_call_returns() -> None:
    async def story(clock: LoopClock) -> None:
        outcomes = Outcomes()
        has_run = threading.Event()
        clock.run_blocking(has_run.set, outcomes)
        assert has_run.wait(PATIENCE_SECONDS)
        assert outcomes.all == []
        await outcomes.complete()

    run(story)


def test_work_runs_side_by_side_in_a_bounded_number_of_threads() -> None:
    async def story(clock: LoopClock) -> None:
        together = threading.Barrier(THREADS_MAX)
        outcomes = Outcomes(3 * THREADS_MAX)

        def work() -> int:
            together.wait(PATIENCE_SECONDS)  # breaks unless all threads are there at once
            return threading.get_ident()

        for _ in range(3 * THREADS_MAX):
            clock.run_blocking(work, outcomes)
        results = await outcomes.complete()
        assert [error for _, error in results if error] == []
        assert len({worker for worker, _ in results}) == THREADS_MAX

    run(story)


def test_one_thread_serves_work_that_comes_one_after_the_other() -> None:
    async def story(clock: LoopClock) -> None:
        workers = set()
        for _ in range(5):
            outcomes = Outcomes()
            clock.run_blocking(threading.get_ident, outcomes)
            ((worker, _),) = await outcomes.complete()
            workers.add(worker)
        assert len(workers) == 1

    run(story)


def test_soon_comes_after_this_turn_and_later_after_its_time() -> None:
    async def story(clock: LoopClock) -> None:
        order: list[str] = []
        done = asyncio.Event()
        clock.call_later(5, lambda: (order.append("later"), done.set()))
        clock.call_soon(lambda: order.append("soon"))
        order.append("now")
        await done.wait()
        assert order == ["now", "soon", "later"]

    run(story)


def test_a_cancelled_timer_does_not_ring() -> None:
    async def story(clock: LoopClock) -> None:
        rung: list[str] = []
        done = asyncio.Event()
        clock.call_later(1, lambda: rung.append("cancelled")).cancel()
        clock.call_later(2, done.set)
        await done.wait()
        assert rung == []

    run(story)


def test_both_clocks_show_the_time_of_day() -> None:
    async def story(clock: LoopClock) -> None:
        assert abs(clock.now_ms() - time.time() * 1000) < 5_000
        assert abs(clock.wall_ms() - time.time() * 1000) < 5_000

    run(story)


@pytest.mark.parametrize("step_s", [-86_400, 86_400])
def test_setting_the_wall_clock_moves_that_alone(
    step_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_ns, ahead_ns = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: read_ns() + ahead_ns)

    async def story(clock: LoopClock) -> None:
        nonlocal ahead_ns
        began_ms = clock.now_ms()
        ahead_ns = step_s * 1_000_000_000
        assert abs(clock.wall_ms() - began_ms - step_s * 1000) < 5_000
        assert 0 <= clock.now_ms() - began_ms < 5_000

    run(story)


def test_closing_waits_for_the_work_that_runs() -> None:
    finished: list[bool] = []

    async def story(clock: LoopClock) -> None:
        started = threading.Event()
        may_end = threading.Event()

        def work() -> None:
            started.set()
            may_end.wait(PATIENCE_SECONDS)
            finished.append(True)

        clock.run_blocking(work, lambda *_: None)
        assert started.wait(PATIENCE_SECONDS)
        threading.Timer(0.01, may_end.set).start()

    run(story)
    assert finished == [True]


def test_closing_waits_for_work_that_waits_for_a_thread() -> None:
    begun: list[int] = []
    held = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        held.wait(PATIENCE_SECONDS)

    async def main() -> None:
        clock = LoopClock(asyncio.get_running_loop())
        for number in range(2 * THREADS_MAX):
            clock.run_blocking(partial(work, number), lambda *_: None)
        held.set()
        clock.close()

    asyncio.run(main())
    assert sorted(begun) == list(range(2 * THREADS_MAX))


def test_work_goes_to_the_thread_that_was_busy_last() -> None:
    async def story(clock: LoopClock) -> None:
        gates = [threading.Event() for _ in range(3)]
        outcomes = [Outcomes() for _ in range(3)]

        def work(number: int) -> int:
            gates[number].wait(PATIENCE_SECONDS)
            return threading.get_ident()

        for number in range(3):
            clock.run_blocking(partial(work, number), outcomes[number])
        for number in (0, 2, 1):
            gates[number].set()
            ((last, _),) = await outcomes[number].complete()
        for _ in range(3):
            again = Outcomes()
            clock.run_blocking(threading.get_ident, again)
            assert await again.complete() == [(last, None)]

    run(story)
