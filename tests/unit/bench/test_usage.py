from __future__ import annotations

import os
import sys

import pytest

from bench.processes import (
    LoadFailed,
    cpu_seconds,
    finish_load,
    peak_bytes,
    run_load,
    start_load,
)
from bench.usage import Meter

PRINTS = "import sys; print('{\"acked\": %d}' % int(sys.argv[2]))"


class _Server:
    def __init__(self, pid: int) -> None:
        self.pid = pid


def _load(mode: str, acked: int) -> list[str]:
    return [sys.executable, "-c", PRINTS, mode, str(acked)]


def test_a_load_generator_tells_its_result_and_what_it_took() -> None:
    meter = Meter()
    with meter.run():
        assert run_load(_load("produce", 5), seconds_max=30) == {"acked": 5}
    (usage,) = meter.usages()
    assert (usage.what, usage.messages) == ("produce", 5)
    assert usage.client_cpu_s > 0
    assert usage.server_cpu_s == 0


def test_of_equal_stretches_the_last_counts_and_comes_last() -> None:
    meter = Meter()
    with meter.run():
        for mode, acked in (("produce", 1), ("consume", 2), ("produce", 3)):
            run_load(_load(mode, acked), seconds_max=30)
    told = [(usage.what, usage.messages) for usage in meter.usages()]
    assert told == [("consume", 2), ("produce", 3)]


def test_loads_that_overlap_are_one_stretch() -> None:
    meter = Meter()
    with meter.run():
        reading = start_load(_load("consume", 7))
        run_load(_load("produce", 6), seconds_max=30)
        finish_load(reading, 30)
    (usage,) = meter.usages()
    assert (usage.what, usage.messages) == ("consume", 7)


def test_a_server_that_is_new_was_warmed_up_before_the_run() -> None:
    meter = Meter()
    with meter.run():
        run_load(_load("consume", 1), seconds_max=30)
        meter.use(_Server(os.getpid()))
        run_load(_load("produce", 2), seconds_max=30)
    (usage,) = meter.usages()
    assert usage.what == "produce"
    assert usage.server_peak_bytes > 0


def test_a_run_without_a_load_generator_counts_this_process_as_the_client() -> None:
    meter = Meter()
    with meter.run():
        meter.use(_Server(os.getpid()))
        sum(range(200_000))
    (usage,) = meter.usages()
    assert usage.client_cpu_s > 0
    assert usage.server_us() is None


def test_a_load_generator_that_fails_says_why() -> None:
    with pytest.raises(LoadFailed, match="no such topic"):
        run_load([sys.executable, "-c", "import sys; sys.exit('no such topic')"], seconds_max=30)


def test_a_load_generator_that_hangs_is_ended() -> None:
    with pytest.raises(LoadFailed, match="no end within"):
        run_load([sys.executable, "-c", "import time; time.sleep(60)"], seconds_max=0.05)


def test_a_process_that_has_ended_has_no_costs() -> None:
    assert cpu_seconds(2**22 + 1) == 0
    assert peak_bytes(2**22 + 1) == 0
