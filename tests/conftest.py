"""Which examples and seeds are run: the same few with the suite, others and more on demand."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# How long an example takes is the machine's affair. Whether the suite passes is that of the code
# alone, so its examples are always the same; `make explore` looks for new ones.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("suite")

# Tests start nodes, commands and workers of Spark by the hundred. Where the environment says that
# compiled code is not kept, each of them compiles us anew: more than half of what its start takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Draw no example from the constants of whichever modules other tests have loaded by now."""
    if settings.get_current_profile_name() == "suite":
        providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=1, metavar="N", help="run N times as many seeds as usual"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `seed` gets as many as its `seeds` mark says, times `--seeds`."""
    mark = metafunc.definition.get_closest_marker("seeds")
    if mark is not None:
        count = mark.args[0] * metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(count))
