"""What is said of the process is what the system says of it."""

from __future__ import annotations

import os
import resource
import threading
import time

from goqueue.metrics import Metric, Samples
from goqueue.metrics import catalogue as metrics
from goqueue.runtime.measuring.process import collect_process
from goqueue.runtime.memory import resident_bytes


def collected() -> dict[Metric, float]:
    samples = Samples(series_max=100)
    for _ in collect_process(samples):
        pass
    return {metric: values[()] for metric, values in samples.by_metric.items()}


def test_the_process_is_described() -> None:
    found = collected()
    assert found[metrics.PROCESS_MAX_FDS] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found[metrics.PROCESS_THREADS] >= threading.active_count()
    assert abs(found[metrics.PROCESS_RESIDENT_MEMORY] - resident_bytes()) < 16 << 20
    assert found[metrics.PROCESS_VIRTUAL_MEMORY] >= found[metrics.PROCESS_RESIDENT_MEMORY]
    assert time.time() - 86_400 < found[metrics.PROCESS_START_TIME] <= time.time() + 1


def test_a_thread_is_counted_while_it_runs() -> None:
    before, end = collected(), threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    during = collected()
    end.set()
    thread.join()
    assert during[metrics.PROCESS_THREADS] == before[metrics.PROCESS_THREADS] + 1


def test_open_files_and_cpu_time_grow() -> None:
    before = collected()
    spent = time.process_time()
    while time.process_time() == spent:
        pass
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    after = collected()
    for one in files:
        os.close(one)
    assert after[metrics.PROCESS_OPEN_FDS] - before[metrics.PROCESS_OPEN_FDS] == 5
    assert after[metrics.PROCESS_CPU] > before[metrics.PROCESS_CPU]
