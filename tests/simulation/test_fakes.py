"""The simulated clock, disk and nodes: what a crash may take, and that a seed replays it."""

from __future__ import annotations

import errno

import pytest

from tests.simulation.clock import NeverHappened, VirtualClock
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.disk import PAGE_BYTES, PowerLost, SimulatedDisk


def test_timers_run_in_the_order_of_their_times_and_then_of_their_making() -> None:
    clock, ran = VirtualClock(), []
    start = clock.now_ms()
    clock.call_later(20, lambda: ran.append("third"))
    clock.call_later(10, lambda: ran.append("first"))
    clock.call_later(10, lambda: ran.append("second"))
    clock.call_later(15, lambda: ran.append("never")).cancel()
    clock.run_for(15)
    assert ran == ["first", "second"]
    assert clock.now_ms() == start + 15
    clock.run_until_idle()
    assert ran == ["first", "second", "third"]
    with pytest.raises(NeverHappened):
        clock.run_until(lambda: False)


def test_blocking_work_answers_after_its_effect_and_reports_its_error() -> None:
    clock, events = VirtualClock(3), []

    def fail() -> None:
        events.append("worked")
        raise OSError(errno.EIO, "broken")

    clock.run_blocking(fail, lambda result, error: events.append(error))
    assert events == []
    clock.run_until(lambda: len(events) == 1)
    clock.run_until_idle()
    assert events[0] == "worked"
    assert isinstance(events[1], OSError)


def test_a_dead_node_does_nothing_more_and_a_skewed_one_is_wrong_about_the_hour() -> None:
    clock, ran = VirtualClock(), []
    node = clock.node(skew_ms=500)
    assert node.now_ms() == clock.now_ms() + 500
    node.call_later(5, lambda: ran.append("timer"))
    node.run_blocking(lambda: ran.append("work"), lambda result, error: ran.append("answer"))
    node.die()
    clock.run_for(1000)
    assert ran == []


def test_only_what_was_synced_is_sure_to_survive() -> None:
    disk = SimulatedDisk(survival=0.0)
    file = disk.create("folder/one")
    file.append(b"durable")
    file.sync()
    file.append(b" lost")
    disk.create("folder/two").append(b"never synced")
    disk.rename("folder/two", "folder/three")
    disk.crash()
    assert disk.list("folder") == ["one"]
    assert disk.read_whole("folder/one") == b"durable"
    with pytest.raises(AssertionError, match="after the crash"):
        file.read(0, 1)


def test_a_crash_loses_pages_one_by_one_and_leaves_zeros_between() -> None:
    outcomes = set()
    for seed in range(200):
        disk = SimulatedDisk(seed)
        file = disk.create("one")
        file.append(b"s" * 100)
        file.sync()
        file.append(b"u" * (4 * PAGE_BYTES))
        disk.crash()
        data = disk.read_whole("one")
        assert data.startswith(b"s" * 100)
        assert set(data[100:]) <= {0, ord("u")}
        outcomes.add((len(data) > 100, 0 in data, b"\0u" in data))
    assert {(False, False, False), (True, False, False), (True, True, True)} <= outcomes


def test_a_truncation_that_was_not_synced_may_be_undone_but_old_bytes_never_mix_in() -> None:
    found = set()
    for seed in range(100):
        disk = SimulatedDisk(seed)
        file = disk.create("one")
        file.append(b"old" * 100)
        file.sync()
        file.truncate(30)
        file.append(b"n" * 50)
        disk.crash()
        data = disk.read_whole("one")
        assert data == b"old" * 100 or (
            data[:30] == b"old" * 10 and set(data[30:]) <= {0, ord("n")}
        )
        found.add(len(data))
    assert {300, 30, 80} <= found


def test_names_survive_once_their_folder_is_synced() -> None:
    disk = SimulatedDisk(survival=0.0)
    disk.create("folder/one").sync()
    disk.rename("folder/one", "folder/two")
    disk.sync_folder("folder")
    disk.remove("folder/two")
    disk.crash()
    assert disk.list("folder") == ["two"]


def test_a_failed_sync_makes_nothing_durable_even_when_the_next_succeeds() -> None:
    disk = SimulatedDisk(survival=0.0)
    file = disk.create("one")
    file.sync()
    file.append(b"data")
    disk.fail_syncs()
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.read(0, 4) == b"data"
    disk.crash()
    assert disk.read_whole("one") == bytes(4)


def test_a_full_disk_writes_a_part_and_says_so() -> None:
    disk = SimulatedDisk()
    file = disk.create("one")
    disk.fill_after(3)
    with pytest.raises(OSError, match="No space"):
        file.append(b"12345")
    assert file.read(0, 9) == b"123"
    assert disk.free_bytes() == 0
    disk.make_room()
    file.append(b"45")
    assert file.size() == 5


def test_a_bad_sector_cannot_be_read_until_it_is_written() -> None:
    disk = SimulatedDisk()
    file = disk.create("one")
    file.append(b"a" * (2 * PAGE_BYTES))
    disk.spoil("one", PAGE_BYTES + 7)
    assert file.read(0, PAGE_BYTES) == b"a" * PAGE_BYTES
    for read in (lambda: file.read(PAGE_BYTES - 1, 2), lambda: disk.read_whole("one")):
        with pytest.raises(OSError, match="Input/output error"):
            read()
    file.truncate(PAGE_BYTES)
    file.append(b"b")
    assert file.read(PAGE_BYTES - 1, 2) == b"ab"


def test_power_is_lost_at_the_operation_asked_for() -> None:
    disk = SimulatedDisk()
    file = disk.create("one")
    disk.crash_at(1)
    file.append(b"a")
    with pytest.raises(PowerLost):
        file.append(b"b")
    assert file.read(0, 2) == b"a"


def test_slow_syncs_are_told_to_the_clock() -> None:
    disk, clock = SimulatedDisk(), VirtualClock()
    disk.sync_delay_ms = 700
    node, answered = clock.node(), []
    node.extra_ms = disk.take_delay_ms
    file = disk.create("one")
    start = clock.now_ms()
    node.run_blocking(file.sync, lambda result, error: answered.append(clock.now_ms()))
    clock.run_until_idle()
    assert 700 <= answered[0] - start < 710


def test_the_power_of_a_node_fails_between_two_operations_and_the_others_go_on() -> None:
    world = ClusterWorld(1)
    world.heal()
    node = world.nodes[1]
    done = node.disk.operations
    node.crash_after(5)
    world.nodes[2].broker.topics.create("orders", partition_count=3)
    world.run_until(lambda: not node.is_up)
    assert node.disk.operations == done + 5
    world.heal()
    assert node.is_up


def test_the_power_of_a_node_fails_while_it_starts() -> None:
    world = ClusterWorld(1)
    world.heal()
    node = world.nodes[1]
    node.kill()
    node.crash_after(0)
    node.start()
    assert not node.is_up
    world.heal()
    assert node.is_up
