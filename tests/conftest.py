"""How many seeds the simulations run: few with the suite, many with `make simulate`."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair.
settings.register_profile("goqueue", deadline=None)
settings.load_profile("goqueue")


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
