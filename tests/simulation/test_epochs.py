"""Whole epochs among crashes: each is visible once, from one try, whatever stops, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.broker.durability import flusher
from goqueue.loop.promise import Promise
from goqueue.model.queries import PREFIX
from goqueue.transactions import EpochOutcome
from tests.simulation.disk import PowerLost
from tests.simulation.epochs_model import (
    NUMBERS,
    PREPARED_TIMEOUT_MS,
    QUERY,
    Driver,
    Query,
    promised,
)
from tests.simulation.transactions_model import OUTPUTS, Stage
from tests.simulation.world import World

EPOCHS = 12


def _query(seed: int, *, survival: float = 0.5, epochs: int = EPOCHS) -> Query:
    world = World(seed, transactions__state_partitions="2")
    world.disk.survival = survival
    for topic in dict.fromkeys(name.topic for name in OUTPUTS):
        world.create(topic, 2)
    return Query(Stage(world), epochs=epochs)


def _start_again(query: Query, *, is_power_cut: bool, crashes_again: bool = True) -> None:
    stage = query.stage
    while True:
        if is_power_cut:
            stage.world.crash()
        else:
            stage.world.kill()
        stage.lose_connections()
        if crashes_again and is_power_cut and query.random.random() < 0.3:
            stage.world.disk.crash_at(query.random.randint(0, 60))
        try:
            stage.world.start()
            stage.world.disk.crash_at(None)
            return
        except PowerLost:
            is_power_cut = True


def _run(query: Query, ms: float) -> None:
    """Let time go by; the power may go with it."""
    try:
        query.stage.world.run_for(ms)
    except PowerLost:
        _start_again(query, is_power_cut=True)
    query.check()


def _disturb(query: Query) -> None:
    chance, world = query.random.random(), query.stage.world
    if chance < 0.04:
        _start_again(query, is_power_cut=True)
    elif chance < 0.08:
        _start_again(query, is_power_cut=False)
    elif chance < 0.12:
        world.disk.crash_at(query.random.randint(0, 30))
    elif chance < 0.17:
        query.start_driver()  # while another may be alive and well
    elif chance < 0.19:
        world.disk.fill_after(query.random.randint(0, 4000))
        _run(query, query.random.uniform(0, 3000))
        world.disk.make_room()


def _settle(query: Query) -> None:
    """No more disturbance: the query comes to its end, and everything to rest."""
    query.stage.is_quiet = True
    query.stage.world.disk.crash_at(None)
    query.stage.world.disk.make_room()
    for _ in range(300):
        if query.is_done:
            break
        if not query.alive:
            query.start_driver()
        _run(query, 200)
    _run(query, 2 * PREPARED_TIMEOUT_MS)
    query.check_settled()


@pytest.fixture
def sync_each_log(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have logs synced one by one. The commit journal would make whole rounds durable at once."""
    return lambda: monkeypatch.setattr(flusher, "ROUND_BYTES_MAX", -1)


@pytest.mark.seeds(8)
def test_every_epoch_is_there_once_and_whole_whatever_crashes(
    seed: int, sync_each_log: Callable[[], None]
) -> None:
    if seed % 2:
        sync_each_log()
    query = _query(seed)
    for _ in range(200):
        if not query.alive and not query.is_done:
            query.start_driver()
        _disturb(query)
        _run(query, query.random.uniform(0, 120))
    _settle(query)
    assert query.is_done


class _Script:
    """Three epochs: one that is committed, one under way, and the next."""

    def __init__(self, seed: int, *, survival: float = 0.5) -> None:
        self.query = _query(seed, survival=survival, epochs=3)
        self.query.stage.is_quiet = True
        world = self.query.stage.world
        self.driver = self.new_driver("first")
        world.wait(promised(self.driver.write_epoch(0)))
        self.query.checkpoint = 1
        world.run_for(200)

    def new_driver(self, name: str) -> Driver:
        world = self.query.stage.world
        driver = Driver(self.query, name)
        driver.run = world.wait(world.broker.epochs.open(QUERY, name)).run
        return driver

    def begin(self) -> Promise[None]:
        return promised(self.driver.write_epoch(1))

    def check(self, *, is_same_driver: bool) -> None:
        """The epoch is written again, cut in other parts, by the same driver or its successor."""
        query, world = self.query, self.query.stage.world
        query.check()
        if not is_same_driver:
            self.driver = self.new_driver("second")
            world.wait(promised(self.driver.write_epoch(1)))
        query.checkpoint = 2
        world.run_for(1000)
        query.check()
        world.wait(promised(self.driver.write_epoch(2)))
        query.checkpoint = 3
        world.run_for(2 * PREPARED_TIMEOUT_MS)
        query.check_settled()


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_power_cut_at_any_disk_operation_leaves_an_epoch_whole_or_absent(
    has_journal: bool, sync_each_log: Callable[[], None]
) -> None:
    if not has_journal:
        sync_each_log()
    operation, is_over = 0, False
    outcomes: set[bool] = set()
    while not is_over:
        script = _Script(seed=operation, survival=0.5 if has_journal else 0.25)
        query, world = script.query, script.query.stage.world
        world.disk.crash_at(operation)
        script.begin()
        try:
            world.run_for(300)
            is_over = True
        except PowerLost:
            pass
        query.stage.lose_applications()
        _start_again(query, is_power_cut=True, crashes_again=False)
        world.run_for(1000)
        query.check()
        outcomes.add(1 in query.shown)
        script.check(is_same_driver=False)
        operation += 1
    assert operation > 15
    assert outcomes == {True, False}


def test_a_kill_after_any_step_leaves_an_epoch_whole_or_absent() -> None:
    steps, steps_after_the_end = 0, 0
    while steps_after_the_end < 25:  # until the epoch is complete, and some more
        script = _Script(seed=steps)
        written = script.begin()
        _run_steps(script.query.stage.world, steps)
        steps_after_the_end += written.is_done
        is_same_driver = steps % 2 == 0
        if not is_same_driver:
            script.query.stage.lose_applications()
        _start_again(script.query, is_power_cut=False)
        if is_same_driver:
            script.query.stage.world.wait(written)
        script.check(is_same_driver=is_same_driver)
        steps += 1
    assert steps > 60


def _run_steps(world: World, count: int) -> None:
    """Let so many things happen."""
    left = count

    def is_reached() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    world.run_until(is_reached)


def test_a_driver_that_only_seemed_dead_commits_nothing() -> None:
    script = _Script(seed=1)
    world = script.query.stage.world
    zombie, script.driver = script.driver, script.new_driver("second")
    refused = promised(zombie.write_epoch(1))
    world.run_for(1000)
    assert refused.is_done
    assert 1 not in script.query.shown
    script.check(is_same_driver=False)


def test_all_transactions_of_a_query_have_one_coordinator() -> None:
    world = _query(0).stage.world
    wanted = world.broker.transactions.partition_of(PREFIX + QUERY)
    names = [f"{PREFIX}{QUERY}~{run}~7~task-{run}" for run in range(50)]
    assert {world.broker.transactions.partition_of(name) for name in names} == {wanted}


def test_an_epoch_of_many_tasks_is_committed() -> None:
    query = _query(0)
    query.stage.is_quiet = True
    world = query.stage.world
    driver = Driver(query, "driver")
    driver.run = world.wait(world.broker.epochs.open(QUERY)).run
    parts = [[f"0:{number}@1"] for number in range(NUMBERS * 20)]
    tasks = [promised(driver.write_part(0, part)) for part in parts]
    prepared = [world.wait(task) for task in tasks]
    committing = world.broker.epochs.commit(QUERY, run=driver.run, epoch=0, prepared=prepared)
    assert world.wait(committing) == EpochOutcome(0, is_repeated=False)
    values = [value for name in OUTPUTS for value in query.stage.read(name)]
    assert sorted(values) == sorted(part[0] for part in parts)
