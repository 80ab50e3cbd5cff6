"""Transactions among crashes: each is there as a whole or not at all, whatever stops, and when."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from goqueue.broker.durability import flusher
from goqueue.loop.promise import Promise, start
from tests.simulation.disk import PowerLost
from tests.simulation.transactions_model import (
    INPUT,
    OUTPUTS,
    TIMEOUT_MS,
    Application,
    Instance,
    Stage,
)
from tests.simulation.world import World

POSITIONS = 12


def _stage(seed: int, *, survival: float = 0.5) -> Stage:
    world = World(seed, transactions__state_partitions="2", groups__offsets_partitions="2")
    world.disk.survival = survival
    world.create(INPUT)
    for topic in dict.fromkeys(name.topic for name in OUTPUTS):
        world.create(topic, 2)
    return Stage(world)


def _start_again(stage: Stage, *, is_power_cut: bool, crashes_again: bool = True) -> None:
    world = stage.world
    while True:
        if is_power_cut:
            world.crash()
        else:
            world.kill()
        stage.lose_connections()
        if crashes_again and is_power_cut and stage.random.random() < 0.3:
            world.disk.crash_at(stage.random.randint(0, 60))
        try:
            world.start()
            world.disk.crash_at(None)
            return
        except PowerLost:
            is_power_cut = True


def _run(stage: Stage, ms: float) -> None:
    """Let time go by; the power may go with it."""
    try:
        stage.world.run_for(ms)
    except PowerLost:
        _start_again(stage, is_power_cut=True)
    stage.check()


def _disturb(stage: Stage, applications: list[Application]) -> None:
    chance = stage.random.random()
    world = stage.world
    if chance < 0.04:
        _start_again(stage, is_power_cut=True)
    elif chance < 0.08:
        _start_again(stage, is_power_cut=False)
    elif chance < 0.12:
        world.disk.crash_at(stage.random.randint(0, 30))
    elif chance < 0.16:
        # A second instance, while the first may be alive and well.
        stage.random.choice(applications).start_instance()
    elif chance < 0.18:
        world.disk.fill_after(stage.random.randint(0, 4000))
        _run(stage, stage.random.uniform(0, 3000))
        world.disk.make_room()
    elif chance < 0.20:
        name = stage.random.choice(applications).name
        world.clock.call_soon(
            lambda: world.broker.transactions.abort(name).then(lambda _, error: None)
        )


def _settle(stage: Stage, applications: list[Application]) -> None:
    """No more disturbance: everybody comes to an end, and everything to rest."""
    stage.is_quiet = True
    stage.world.disk.crash_at(None)
    stage.world.disk.make_room()
    for _ in range(300):
        if all(one.is_done for one in applications):
            break
        for application in applications:
            if not application.alive and not application.is_done:
                application.start_instance()
        _run(stage, 200)
    _run(stage, 2 * TIMEOUT_MS)
    stage.check_settled(applications)


@pytest.fixture
def sync_each_log(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have logs synced one by one. The commit journal would make whole rounds durable at once."""
    return lambda: monkeypatch.setattr(flusher, "ROUND_BYTES_MAX", -1)


@pytest.mark.seeds(6)
def test_every_position_is_there_once_and_whole_whatever_crashes(
    seed: int, sync_each_log: Callable[[], None]
) -> None:
    if seed % 2:
        sync_each_log()
    stage = _stage(seed)
    applications = [
        Application(stage, f"app{number}", bumps_epoch=number % 2 == 1, positions=POSITIONS)
        for number in range(4)
    ]
    for _ in range(200):
        for application in applications:
            if not application.alive and not application.is_done:
                application.start_instance()
        _disturb(stage, applications)
        _run(stage, stage.random.uniform(0, 120))
    _settle(stage, applications)
    assert [one.committed_offset() for one in applications] == [POSITIONS] * len(applications)


class _Script:
    """One transaction over all outputs and the offsets of a group, with an end."""

    def __init__(
        self,
        *,
        seed: int = 0,
        is_commit: bool,
        bumps_epoch: bool,
        waits: bool = False,
        survival: float = 0.5,
    ) -> None:
        self.is_commit = is_commit
        self.stage = _stage(seed, survival=survival)
        self.stage.is_quiet = True
        self.application = Application(self.stage, "app", bumps_epoch=bumps_epoch, positions=1)
        self.instance = Instance(self.application, 1)
        self.instance.waits = waits
        self.application.newest = 1
        world = self.stage.world
        self.instance.identity = world.wait(
            world.broker.transactions.initialise("app", timeout_ms=TIMEOUT_MS)
        )
        world.wait(_promised(self.instance.transact(0, is_commit=False)))  # one before it
        world.run_for(200)

    def begin(self) -> Promise[None]:
        return _promised(self.instance.transact(0, is_commit=self.is_commit, places=OUTPUTS))

    def check(self) -> None:
        """After a restart, whatever was left is brought to an end that is whole."""
        self.stage.check()
        self.stage.world.run_for(2 * TIMEOUT_MS)
        self.stage.check_settled([self.application])
        transactions = self.stage.world.broker.transactions.all()
        assert [one.partitions for one in transactions] == [()], "a transaction was left behind"


def _promised(coroutine: Coroutine[Promise[Any], None, None]) -> Promise[None]:
    promise: Promise[None] = Promise()
    start(coroutine, promise.settle)
    return promise


VARIANTS = [
    pytest.param(is_commit, bumps_epoch, id=f"{name}-{'bumped' if bumps_epoch else 'plain'}")
    for is_commit, name in ((True, "commit"), (False, "abort"))
    for bumps_epoch in (False, True)
]


@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize("application", ["waits", "asks-again", "is-gone"])
@pytest.mark.parametrize(("is_commit", "bumps_epoch"), VARIANTS)
def test_a_power_cut_at_any_disk_operation_leaves_all_or_nothing(
    is_commit: bool,
    bumps_epoch: bool,
    application: str,
    has_journal: bool,
    sync_each_log: Callable[[], None],
) -> None:
    if not has_journal:
        sync_each_log()
    operation, is_over = 0, False
    while not is_over:
        script = _Script(
            seed=operation,  # each has another order of what happens at the same time
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            waits=application == "waits",
            survival=0.5 if has_journal else 0.25,
        )
        world = script.stage.world
        world.disk.crash_at(operation)
        script.begin()
        try:
            world.run_for(300)
            is_over = True
        except PowerLost:
            pass
        if application == "is-gone":
            script.stage.lose_applications()
        _start_again(script.stage, is_power_cut=True, crashes_again=False)
        script.check()
        operation += 1
    assert operation > 15
    assert bool(script.stage.committed) == is_commit


@pytest.mark.parametrize(("is_commit", "bumps_epoch"), VARIANTS)
def test_a_kill_after_any_step_leaves_all_or_nothing(is_commit: bool, bumps_epoch: bool) -> None:
    steps, steps_after_the_end = 0, 0
    # An application that asks again and one that is gone take turns.
    while steps_after_the_end < 25:  # until the transaction is complete, and some more
        script = _Script(is_commit=is_commit, bumps_epoch=bumps_epoch)
        ended = script.begin()
        _run_steps(script.stage.world, steps)
        steps_after_the_end += ended.is_done
        if steps % 2:
            script.stage.lose_applications()
        _start_again(script.stage, is_power_cut=False)
        script.check()
        steps += 1
    assert steps > 60
    assert bool(script.stage.committed) == is_commit


def _run_steps(world: World, count: int) -> None:
    """Let so many things happen."""
    left = count

    def is_reached() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    world.run_until(is_reached)
