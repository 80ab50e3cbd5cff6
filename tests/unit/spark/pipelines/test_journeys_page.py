"""The results of the journeys pipeline: kept complete or not at all, and shown on the page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.journeys.results import (
    DATA,
    SUMMARY,
    Account,
    JournalRange,
    JourneysResult,
    Latency,
    Problem,
    ProblemCount,
    Slow,
    read_result,
    save_result,
    table_path,
)
from goqueue.spark.pipelines.report import report_page

EVIL = "<script>alert('x')</script>"
HOUR_MS = 3_600_000


def latency(hop: str, by: str, *, hour_ms: int | None = None, group: str | None = None) -> Latency:
    return Latency(
        hop=hop,
        by=by,
        topic=EVIL if group else None,
        group=group,
        tenant=None,
        hour_ms=hour_ms,
        messages=1000,
        p50_ms=1.5,
        p90_ms=9.0,
        p99_ms=1500.0,
        p999_ms=2000.0,
        max_ms=9_000_000.0,
        mean_ms=2.0,
    )


def result(run: str = "run") -> JourneysResult:
    states = {"acked": 990, "lost": 10}
    problem = Problem(
        problem="never_settled",
        tenant="acme",
        topic=EVIL,
        partition=3,
        group="workers",
        first=20,
        end=30,
        messages=10,
        received_ms=0,
    )
    slow = Slow(
        tenant="",
        topic=EVIL,
        partition=0,
        group="workers",
        first=1,
        end=2,
        received_ms=0,
        hops={"delivered_settled": 1234567.0},
    )
    return JourneysResult(
        run=run,
        time_ms=0,
        from_ms=None,
        until_ms=HOUR_MS,
        grace_ms=900_000,
        slow_ms=60_000,
        events=4000,
        parts=50,
        journal=[JournalRange(partition=0, first=0, end=9)],
        accounts=[
            Account(tenant="acme", topic=EVIL, group=None, messages=1000, states={"stored": 1000}),
            Account(tenant="acme", topic=EVIL, group="workers", messages=1000, states=states),
        ],
        schedules=[
            Account(tenant="", topic="orders", group=None, messages=5, states={"overdue": 5})
        ],
        problem_counts=[
            ProblemCount(problem="never_settled", messages=10, ranges=1),
            ProblemCount(problem="never_released", messages=5, ranges=1),
        ],
        problems=[problem],
        latencies=[
            latency("stored_delivered", ""),
            latency("stored_delivered", "tenant/topic/group", group="workers"),
            *(latency("stored_delivered", "hour", hour_ms=hour * HOUR_MS) for hour in range(3)),
            latency("received_stored", "hour", hour_ms=0),
        ],
        slowest=[slow],
    )


def test_the_page_shows_accounts_problems_and_latencies() -> None:
    page = report_page([], [], [], [result()], now_ms=0)
    assert EVIL not in page
    for shown in (
        "1,000</b>messages traced",
        "15</b>lost",
        "(acme)",
        "lost: delivered, and nothing after that",
        "3: 20 to 29",
        "due, and never released",
        "Stored to delivered, by hour",
        "20.6 min",
    ):
        assert shown in page
    assert page.count("<svg") == 2
    body = page.split("<body>")[1].split("</body>")[0]
    ElementTree.fromstring(f"<body>{body}</body>")


def test_a_run_without_problems_says_so() -> None:
    page = report_page([], [], [], [msgspec.structs.replace(result(), problem_counts=[])], now_ms=0)
    assert ">None.<" in page


def test_the_last_complete_run_is_the_one_that_is_read(tmp_path: Path) -> None:
    for run in ("first", "killed", "second"):
        (tmp_path / DATA / run / "parts").mkdir(parents=True)
    save_result(tmp_path, result("first"))
    assert [path.name for path in (tmp_path / DATA).iterdir()] == ["first"]
    (tmp_path / DATA / "second").mkdir()
    save_result(tmp_path, result("second"))
    assert read_result(tmp_path) == result("second")
    assert table_path(tmp_path, "parts") == (tmp_path / "data/second/parts").as_uri()


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="has no journeys yet"):
        read_result(tmp_path)
    (tmp_path / SUMMARY).write_text("{}")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_result(tmp_path)
    with pytest.raises(InvalidRequest, match="no table 'x'"):
        table_path(tmp_path, "x")
