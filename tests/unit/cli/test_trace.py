"""The timeline of `goqueue trace get`."""

from __future__ import annotations

import re

import pytest

from goqueue.cli.commands.trace.drawing import draw, show_elapsed
from goqueue.wire.http.bodies.journeys import (
    Journey,
    JourneyEntry,
    JourneyMessage,
    JourneyStanding,
)

ORDER = JourneyMessage(topic="orders", id="orders:0:7", partition=0, offset=7)
SCHEDULE = JourneyMessage(topic="orders", schedule_id="AAEAAAAAAACx_Dyu")
START_MS = 1_700_000_000_000
JOURNEY = Journey(
    message=ORDER,
    messages=[SCHEDULE, ORDER],
    entries=[
        JourneyEntry(kind="scheduled", message=SCHEDULE, time=START_MS, due=START_MS + 2000),
        JourneyEntry(kind="arrived", message=ORDER, time=START_MS + 2001, after_ms=2001),
        JourneyEntry(
            kind="delivered",
            message=ORDER,
            time=START_MS + 2003,
            after_ms=2,
            group="billing",
            consumer="evil\x1b[2J",
            attempt=1,
            node=3,
        ),
    ],
    outcomes=[
        JourneyStanding(
            outcome="in_flight", message=ORDER, time=START_MS + 2003, group="billing", attempts=1
        )
    ],
    complete=True,
)


def test_a_journey_is_drawn_as_plain_lines_for_a_pipe() -> None:
    assert draw(JOURNEY, width=None) == (
        "orders:0:7\n"
        "  billing in flight  2023-11-14T22:13:22.003Z, 1 delivery\n"
        "\n"
        "-- schedule AAEAAAAAAACx_Dyu for orders  2023-11-14 --------\n"
        "22:13:20.000            scheduled      due 22:13:22.000\n"
        "\n"
        "-- orders:0:7  2023-11-14 ----------------------------------\n"
        "22:13:22.001  +2.001 s  arrived\n"
        "22:13:22.003     +2 ms  delivered      billing, consumer evil�[2J, attempt 1, node 3\n"
    )


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_a_terminal_gets_colors_and_no_line_is_longer_than_it(width: int) -> None:
    drawn = draw(JOURNEY, width=width)
    assert "\x1b[" in drawn
    lines = re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines()
    assert max(map(len, lines)) <= width
    if width == 200:
        shown = [line.rstrip(" -") for line in lines]
        assert shown == [line.rstrip(" -") for line in draw(JOURNEY, width=None).splitlines()]


def test_what_is_missing_is_said() -> None:
    nothing = Journey(message=ORDER, messages=[], entries=[], outcomes=[], complete=False)
    drawn = draw(nothing, width=None)
    assert "Nothing is recorded" in drawn
    assert "lost in a crash" in drawn


@pytest.mark.parametrize(
    ("elapsed_ms", "shown"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.500 s"),
        (59_000, "59.0 s"),
        (600_000, "10.0 min"),
        (9_000_000, "2.5 h"),
    ],
)
def test_times_have_the_unit_that_fits(elapsed_ms: int, shown: str) -> None:
    assert show_elapsed(elapsed_ms) == shown
