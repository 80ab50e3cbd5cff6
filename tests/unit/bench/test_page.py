from __future__ import annotations

from bench import results
from bench.comparisons import comparisons
from bench.page import join, write
from bench.processes import REPOSITORY
from bench.report import MILLISECONDS, Outcome, Runs, Section
from bench.summary import WANTED, write_summary
from tests.unit.bench.outcomes import EVERY, KAFKA, produce_section, result

GUIDE = "text\n\n| peer | settings |\n|---|---|\n| `kafka` | as delivered |\n\nmore\n"


def test_of_each_row_the_newest_result_counts_with_its_commit_and_date() -> None:
    old = result("20260101-080000-a", produce_section([1.0], [1.0], "old").to_data())
    new = result("20260102-093000-b", produce_section([1.0], [1.0], "new").to_data())
    other = Section("Memory", row="memory").to_data()
    parts = join([new, result("20251231-080000-c", other), old])
    assert [(part.section["title"], part.result.date) for part in parts] == [
        ("new", "2026-01-02 09:30"),
        ("Memory", "2025-12-31 08:00"),
    ]
    assert "measured 2026-01-02 09:30 UTC at `0123456789`" in write(parts, {}, GUIDE)


def test_a_quick_run_counts_only_where_there_is_no_other() -> None:
    whole = result("20260101-080000-a", produce_section([1.0], [1.0], "whole").to_data())
    other = Section("Memory", row="memory").to_data()
    quick = result(
        *("20260102-080000-b", produce_section([1.0], [1.0], "quick").to_data(), other), quick=True
    )
    assert [part.section["title"] for part in join([quick, whole])] == ["whole", "Memory"]


def test_the_page_says_where_a_peer_is_ahead_and_by_how_much() -> None:
    page = write(join([result("a", produce_section([50.0], [100.0]).to_data())]), {}, GUIDE)
    part = page[page.index("## Where a peer is ahead") :]
    assert "ahead in 0, level within 5 % in 0, and behind in 1" in part
    assert f"| {EVERY} | 0.05 k msg/s | {KAFKA} | 0.10 k msg/s | 2.00 × |" in part
    assert "| 2.00 × | the peer does not wait for its disk |" in part


def test_less_is_better_of_a_time() -> None:
    section = Section("Latency", row="publish")
    mine, theirs = Runs(EVERY, [Outcome({"p50_ms": 1.0})]), Runs(KAFKA, [Outcome({"p50_ms": 4.0})])
    section.add(f"publish, {EVERY}", mine, "p50_ms", MILLISECONDS, reference=theirs)
    (found,) = comparisons(section.to_data())
    assert (found.standing, found.lead) == ("ahead", 4.0)


def test_figures_within_a_twentieth_are_level() -> None:
    (found,) = comparisons(produce_section([100.0], [104.0]).to_data())
    assert found.standing == "level"


def test_systems_in_lines_of_their_own_are_compared_by_their_medians() -> None:
    section = Section("Cluster", row="cluster")
    for name, gap in (("three GoQueue nodes", 2.0), ("three Apache Kafka brokers", 1.0)):
        section.add(f"gap, {name}", Runs(name, [Outcome({"ms": gap})]), "ms", MILLISECONDS)
    (found,) = comparisons(section.to_data())
    assert (found.peer, found.standing) == ("three Apache Kafka brokers", "behind")


def test_the_page_tells_settings_targets_what_differs_and_shows_pictures() -> None:
    page = write(
        join([result("a", produce_section([1.0], [2.0]).to_data(), quick=True)]),
        {"Produce": ["benchmarks/produce.svg"]},
        GUIDE,
    )
    assert "| `kafka` | as delivered |" in page
    assert "Of 1 bounds that must hold, 0 are met" in page
    assert "- One message at a time is not like for like." in page
    assert "![Produce](benchmarks/produce.svg)" in page
    assert "quick: shows that it works, not how fast" in page


def test_the_short_page_has_every_row_that_it_is_to_have() -> None:
    found = join([results.read(path) for path in (REPOSITORY / "bench/results").glob("*.json")])
    sections = [part.section for part in found]
    page = write_summary(sections, tables="all.md", measured="today")
    missing = [one.row for one in WANTED if f"[{one.row}](all.md#" not in page]
    assert missing == []
