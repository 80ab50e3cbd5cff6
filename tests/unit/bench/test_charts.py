from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.charts import graphs, panels
from bench.plots import PlotsMissing, draw
from bench.report import MESSAGES, MICROSECONDS, Outcome, Point, Runs, Section
from bench.results import read, slug
from tests.unit.bench.outcomes import EVERY, KAFKA, produce_section, runs


def _growth() -> Section:
    section = Section("Growth", row="growth")
    levels = {1000: 4.0, 10: 2.0, 100: 3.0}
    for level, cost in levels.items():
        each = Runs(str(level), [Outcome({"us": cost}), Outcome({"us": cost * 2})])
        section.add(
            f"produce, {level} partitions",
            each,
            "us",
            MICROSECONDS,
            point=Point("partitions", "produce", level),
        )
    return section


def test_a_panel_has_each_system_once_with_its_spread_and_ours_first() -> None:
    section = produce_section([100.0, 300.0, 200.0], [50.0, 70.0, 60.0])
    section.add(f"produce 1 KB, {EVERY}", runs(EVERY, 1.0), "messages_per_s", MESSAGES)
    (panel,) = panels(section.to_data())
    assert panel.title == "produce 1 KB"
    told = [(bar.system, bar.kind, bar.low, bar.median, bar.high) for bar in panel.bars]
    assert told == [
        (EVERY, "own", 100.0, 200.0, 300.0),
        (KAFKA, "peer", 50.0, 60.0, 70.0),
    ]


def test_a_row_with_one_system_has_no_picture() -> None:
    section = Section("Produce", row="produce")
    section.add("produce", runs(EVERY, 1.0), "messages_per_s", MESSAGES)
    assert panels(section.to_data()) == []


def test_a_curve_goes_from_few_to_many_whatever_the_order_of_the_runs() -> None:
    (graph,) = graphs(_growth().to_data())
    assert graph.axis == "partitions"
    told = [(spot.x, spot.median, spot.low, spot.high) for spot in graph.curves["produce"]]
    assert told == [(10, 3.0, 2.0, 4.0), (100, 4.5, 3.0, 6.0), (1000, 6.0, 4.0, 8.0)]
    assert panels(_growth().to_data()) == []


def test_results_of_before_show_the_peer_by_its_ratio(tmp_path: Path) -> None:
    line: dict[str, Any] = {"row": f"produce, {EVERY}", "system": EVERY, "metric": "messages_per_s"}
    line |= {"unit": "msg/s", "median": 100.0, "samples": [90.0, 100.0, 110.0]}
    line |= {"void": [], "skipped": "", "against": KAFKA, "ratio": 2.0}
    line |= {"target": None, "verdict": None}
    path = tmp_path / "20260101-120000-abc.json"
    kept = {"commit": "abc", "settings": {}, "sections": {"Produce, acks=1": [line]}}
    path.write_text(json.dumps(kept))
    (section,) = read(path).sections
    assert section["row"] == "produce"
    (panel,) = panels(section)
    assert [(bar.system, bar.median) for bar in panel.bars] == [(EVERY, 100.0), (KAFKA, 50.0)]


def test_units_that_differ_by_a_letter_have_pictures_of_their_own() -> None:
    assert slug("µs") != slug("s")


def test_pictures_are_drawn_in_every_kind_or_it_is_said_why_not(tmp_path: Path) -> None:
    try:
        drawn = draw(_growth().to_data(), tmp_path)
    except PlotsMissing as error:
        pytest.skip(str(error))
    assert [path.suffix for path in drawn] == [".svg"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png"}
