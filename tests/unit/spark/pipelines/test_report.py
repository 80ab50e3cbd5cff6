"""The page shows what there is, escapes what users wrote, and needs nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.digests import Digest
from goqueue.spark.pipelines.lag_history import LagSample
from goqueue.spark.pipelines.letters import Triage, TriageRow, read_triages, save_triage
from goqueue.spark.pipelines.manifests import Archive, ArchivedFile, Manifest, Piece
from goqueue.spark.pipelines.plots import (
    DOTS_MAX,
    POINTS_MAX,
    WIDTH,
    bars,
    lines,
    scale,
    show_count,
    show_size,
    thinned,
)
from goqueue.spark.pipelines.report import (
    lag_now,
    lag_series,
    percentile_ms,
    report_page,
    show_duration,
    write_report,
)
from goqueue.spark.pipelines.report_summary import summary_of
from goqueue.wire.http.bodies.reports import Figure, decode_report, encode_report

EVIL = "<script>alert('x')</script>"
BELL = "\x07\u202e & <b>x</b>"


def archive(topic: str, latencies: tuple[int, ...]) -> Archive:
    file = ArchivedFile(
        path="data/a",
        bytes=2048,
        crc32c=0,
        digest=Digest(7, 1, 1),
        first_offset=0,
        last_offset=6,
        timestamp_ms_min=0,
        timestamp_ms_max=1 << 62,
    )
    piece = Piece(
        topic=topic,
        partition=0,
        start=0,
        end=7,
        digest=Digest(7, 1, 1),
        files=(file,),
        latencies=latencies,
    )
    manifest = Manifest(
        number=1,
        run_id="r",
        started_at_ms=0,
        committed_at_ms=1000,
        positions={},
        pieces=(piece,),
        losses=(f"Lost {EVIL}.",),
    )
    return Archive(Path("/archive"), (manifest,))


def test_the_page_shows_every_part() -> None:
    samples = [LagSample(time, EVIL, "orders", 0, 0, 10 + time) for time in (0, 1000)]
    row = TriageRow(what=EVIL, letters=3, first_ms=0, last_ms=None)
    triage = Triage(topic="orders.dlq", time_ms=0, tables={"reason": [row], "hour": [row]})
    page = report_page([archive(EVIL, (0, 3, 4))], samples, [triage], now_ms=0, lag_bound=5000)
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    for shown in ("7 records", "From timestamp to archive", "Lost before", "Lag", "orders.dlq"):
        assert shown in page
    assert page.count("<svg") == 4
    body = page.split("<body>")[1].split("</body>")[0]
    ElementTree.fromstring(f"<body>{body}</body>")


def test_the_summary_has_the_texts_and_tables_of_the_page() -> None:
    samples = [LagSample(time, EVIL, "orders", 0, 0, 10 + time) for time in (0, 1000)]
    row = TriageRow(what=EVIL, letters=3, first_ms=0, last_ms=None)
    bell = TriageRow(what=BELL, letters=1, first_ms=None, last_ms=None)
    triage = Triage(topic="orders.dlq", time_ms=0, tables={"reason": [row, bell], "hour": [row]})
    page = report_page([archive(EVIL, (0, 3, 4))], samples, [triage], now_ms=0, lag_bound=5000)
    summary = summary_of(page, name="daily", now_ms=5)
    assert (summary.name, summary.written_at) == ("daily", 5)
    assert Figure(value="7", text="records archived") in summary.figures
    titles = [one.title for one in summary.sections]
    assert titles == ["Archive archive", "Lag", "Dead letters of orders.dlq"]
    held, lag, dead = summary.sections
    assert held.texts[1] == "7 records in 1 file, 2.05 kB, 1 run."
    by_topic = held.tables[0]
    assert (by_topic.title, by_topic.columns[:2]) == ("By topic", ["topic", "records"])
    assert by_topic.rows[0][:2] == [EVIL, "7"]
    assert held.tables[-1].rows == [["1970-01-01 00:00:01", f"Lost {EVIL}."]]
    assert lag.tables[0].rows[0][:3] == [EVIL, "orders/0", "1,010"]
    [by_reason] = dead.tables
    assert (by_reason.title, by_reason.columns[0]) == ("By reason", "reason")
    assert [one[0] for one in by_reason.rows] == [EVIL, BELL]
    assert decode_report(encode_report(summary)) == summary


def test_a_page_about_nothing_has_a_summary() -> None:
    summary = summary_of(report_page([], [], [], now_ms=0), name="none", now_ms=0)
    assert (summary.figures, summary.sections) == ([], [])


def test_the_sums_of_all_parts_stand_at_the_top() -> None:
    samples = [LagSample(time, "g", "t", n, 0, 10 + time) for time in (0, 1000) for n in (0, 1)]
    rows = [TriageRow(what=reason, letters=3, first_ms=0, last_ms=0) for reason in "ab"]
    triage = Triage(topic="t.dlq", time_ms=0, tables={"reason": rows, "key": rows[:1]})
    page = report_page([archive("t", (7,))] * 2, samples, [triage], now_ms=0)
    cards = page.split('<div class="cards">')[1].split("<h2>")[0]
    sums = ("14</b>records archived", "4.1 kB</b>on disk", "2</b>losses")
    for shown in (*sums, "2,020</b>records behind", "6</b>dead letters"):
        assert shown in cards
    assert "replayed" not in cards, "there was no replay"


def test_a_column_of_numbers_stands_to_the_right_with_its_name() -> None:
    page = report_page([archive("t", ())], [], [], now_ms=0)
    assert '<th class="number">records</th>' in page
    assert '<td class="number">7</td>' in page
    assert "<th>topic</th>" in page


def test_a_page_about_nothing_says_so() -> None:
    assert "Nothing was named" in report_page([], [], [], now_ms=0)


def test_a_report_on_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="holds no archive"):
        write_report(tmp_path / "page.html", now_ms=0, archives=[tmp_path])
    assert not (tmp_path / "page.html").exists()


def test_tables_come_back_from_their_files(tmp_path: Path) -> None:
    row = TriageRow(what="bad", letters=3, first_ms=0, last_ms=9)
    triage = Triage(topic="orders.dlq", time_ms=5, tables={"reason": [row]})
    save_triage(tmp_path, triage)
    save_triage(tmp_path, triage)
    assert read_triages(tmp_path) == [triage]


def test_percentiles_are_bounds_of_buckets() -> None:
    counts = (0, 50, 40, 9, 1)
    assert [percentile_ms(counts, p) for p in (50, 90, 99, 100)] == [2, 4, 8, 16]


def test_plots_are_pictures_of_their_values() -> None:
    drawn = ElementTree.fromstring(bars([("a", 10.0), ("b", 5.0)], what="records"))
    heights = [float(one.get("height", "")) for one in drawn.iter("rect")]
    assert heights[0] == pytest.approx(2 * heights[1])
    assert "Nothing to show" in bars([], what="x")
    assert "Nothing to show" in lines({}, what="x")
    assert "circle" in lines({"one": [(5, 1.0)]}, what="x")


def test_a_few_bars_do_not_become_walls_and_many_fit() -> None:
    for count in (1, 5, 500):
        drawn = ElementTree.fromstring(bars([("label", 1.0)] * count, what="records"))
        rects = list(drawn.iter("rect"))
        assert len(rects) == count
        assert all(float(one.get("width", "")) <= WIDTH / 10 for one in rects)
        assert all(float(one.get("x", "")) + float(one.get("width", "")) < WIDTH for one in rects)
        places = [float(one.get("x", "")) for one in drawn.iter("text") if one.text == "label"]
        assert all(later - earlier > 30 for earlier, later in pairwise(places)), "they overlap"


def test_samples_are_dots_as_long_as_these_do_not_hide_the_line() -> None:
    for count, dots in ((DOTS_MAX, DOTS_MAX), (DOTS_MAX + 1, 0)):
        drawn = lines({"one": [(time, 1.0) for time in range(count)]}, what="x")
        assert drawn.count("<circle") == dots


@pytest.mark.parametrize(
    ("top", "marks"),
    [
        (0, [0, 1]),
        (3, [0, 1, 2, 3]),
        (7, [0, 2, 4, 6, 8]),
        (310_001, [0, 100_000, 200_000, 300_000, 400_000]),
    ],
)
def test_a_scale_has_round_numbers(top: float, marks: list[float]) -> None:
    assert scale(top) == marks
    assert scale(1e300)[-1] >= 1e300


def test_the_newest_lag_of_each_partition_counts() -> None:
    samples = [LagSample(time, "g", "t", n, 0, 10 * n + time) for time in (5, 0) for n in (0, 1)]
    assert lag_now(samples) == {("g", "t", 0): 5, ("g", "t", 1): 15}


def test_a_peak_outlives_the_thinning_of_a_line() -> None:
    points = [(time, 0.0) for time in range(10_000)]
    points[4321] = (4321, 99.0)
    thin = thinned(points)
    assert len(thin) <= POINTS_MAX
    assert (4321, 99.0) in thin


def test_the_lag_of_partitions_is_added_up() -> None:
    samples = [LagSample(0, "g", "t", n, 0, 10 * (n + 1)) for n in range(3)]
    assert lag_series(samples) == {"g in t": [(0, 60)]}


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1500, "1.5k"), (2_000_000, "2M"), (3e9, "3G")]
)
def test_counts_are_short(value: float, text: str) -> None:
    assert show_count(value) == text
    assert show_duration(1500) == "1.5 s"


def test_sizes_have_units() -> None:
    assert [show_size(size) for size in (12, 1500, 6_942_886)] == ["12 B", "1.5 kB", "6.94 MB"]
