"""Which examples and seeds are run: the same few with the suite, others and more on demand."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.failures import record_failures
from tests.shares import in_shares

# How long an example takes is the machine's affair. Whether the suite passes is that of the code
# alone, so its examples are always the same; `make explore` looks for new ones.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("suite")

# Tests start nodes, commands and workers of Spark by the hundred. Where the environment says that
# compiled code is not kept, each of them compiles us anew: more than half of what its start takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A suite that runs in the background may be told to ignore Ctrl-C, and so would the commands that
# tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # The terminal, which shows failures, is registered by then.
def pytest_configure(config: pytest.Config) -> None:
    # Draw no example from the constants of whichever modules other tests have loaded by now.
    if settings.get_current_profile_name() == "suite":
        providers._get_local_constants = lambda: providers._local_constants
    record_failures(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would look at all tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = [items[one] for one in in_shares([item.nodeid for item in items], workers)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=1, metavar="N", help="run N times as many seeds as usual"
    )
    parser.addoption(
        "--failures", type=Path, metavar="FILE", help="append each failed test to FILE at once"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `seed` gets as many as its `seeds` mark says, times `--seeds`."""
    mark = metafunc.definition.get_closest_marker("seeds")
    if mark is not None:
        count = mark.args[0] * metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(count))
