from __future__ import annotations

import pytest

from bench.report import MESSAGES, MILLISECONDS, Outcome, Runs, Section, subject, times_at_least
from bench.tables import HEADINGS, section_cells, to_markdown, usage_cells
from tests.unit.bench.outcomes import EVERY, KAFKA, produce_section, runs, usage


def test_a_ratio_is_the_middle_one_of_the_rounds_and_not_that_of_the_medians() -> None:
    section = produce_section([100.0, 200.0, 900.0], [100.0, 400.0, 300.0])
    (line,) = section.lines
    assert line["ratio"] == 1.0  # of 1.0, 0.5 and 3.0; the medians are 200 and 300
    assert line["verdict"] == "met"


def test_the_figures_and_costs_of_a_peer_are_kept_beside_ours() -> None:
    (line,) = produce_section([100.0, 120.0], [50.0, 70.0]).lines
    assert line["against"] == KAFKA
    assert line["reference"]["samples"] == [50.0, 70.0]
    assert line["reference"]["server_us"] == 3.0
    assert line["server_us"] == 2.0


def test_a_row_shows_the_processor_time_of_both_servers_beside_the_ratio() -> None:
    (line,) = produce_section([100_000.0], [50_000.0]).lines
    cells = dict(zip(HEADINGS, section_cells(line), strict=True))
    assert cells["ratio"] == "2.00"
    assert cells["server CPU per message, ours / its"] == "2.00 µs / 3.00 µs"


def test_a_run_that_lost_something_makes_the_row_void_and_gives_no_ratio() -> None:
    section = Section("Produce")
    lost = Runs(EVERY, [Outcome({"messages_per_s": 9.0}, void="3 missing")])
    section.add("produce", lost, "messages_per_s", MESSAGES, reference=runs(KAFKA, 1.0))
    (line,) = section.lines
    assert (line["median"], line["ratio"]) == (None, None)
    assert line["verdict"] == "VOID: 3 missing"


def test_a_peer_that_is_not_there_is_named_with_the_reason() -> None:
    section = Section("Produce")
    absent = Runs(KAFKA, skipped="`mvn` is not on the path")
    section.add(
        *("produce", runs(EVERY, 1.0), "messages_per_s", MESSAGES),
        reference=absent,
        target=times_at_least(1.0),
    )
    assert section.lines[0]["verdict"] == "not measured: `mvn` is not on the path"


def test_what_runs_took_is_told_once_for_all_their_lines() -> None:
    section = Section("Publish")
    mine = Runs(EVERY, [Outcome({"p50_ms": 1.0, "p99_ms": 2.0}, usages=(usage(server_s=2.0),))])
    for metric in ("p50_ms", "p99_ms"):
        section.add(f"publish, {EVERY}, {metric[:3]}", mine, metric, MILLISECONDS)
    (entry,) = section.to_data()["usage"]
    assert usage_cells(entry)[:5] == ("publish", EVERY, "2.00 s", "2.00 µs", "64 MB")


def test_a_figure_is_charged_with_the_stretch_of_its_name_and_others_with_the_last() -> None:
    taken = (usage(server_s=1.0, what="send"), usage(server_s=4.0, what="consume"))
    mine = Runs(EVERY, [Outcome({"send_per_s": 1.0, "p50_ms": 1.0}, usages=taken)])
    assert [each.server_cpu_s for each in mine.usages("send_per_s")] == [1.0]
    assert [each.server_cpu_s for each in mine.usages("p50_ms")] == [4.0]


@pytest.mark.parametrize(
    ("row", "system", "about"),
    [
        (f"produce 1 KB, C client, {EVERY}", EVERY, "produce 1 KB, C client"),
        (f"pace, {EVERY}, p50", EVERY, "pace, p50"),
        (f"{KAFKA}, p50", KAFKA, "p50"),
        ("1 KB, counted", "count", "1 KB, counted"),
        ("consume from disk", f"{EVERY}, C, disk", "consume from disk"),
    ],
)
def test_a_row_without_its_system_is_what_systems_are_compared_in(
    row: str, system: str, about: str
) -> None:
    assert subject(row, system) == about


def test_a_cell_cannot_break_the_table() -> None:
    section = Section("Produce")
    broken = Runs(EVERY, skipped="a | b\nc")
    section.add("produce", broken, "messages_per_s", MESSAGES)
    assert "| not measured: a / b c |" in to_markdown(section.to_data())
