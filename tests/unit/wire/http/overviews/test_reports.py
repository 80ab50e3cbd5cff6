"""Reports of jobs, which are records of a compacted topic."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record
from goqueue.wire.http.bodies.reports import (
    REPORTS_TOPIC,
    Figure,
    Report,
    ReportTable,
    Section,
    encode_report,
)
from goqueue.wire.http.overviews import reports
from tests.simulation.world import World
from tests.unit.wire.http.client import Client


def report(name: str, written_at: int = 1) -> Report:
    table = ReportTable(title="By topic", columns=["topic", "records"], rows=[["orders", "7"]])
    return Report(
        name=name,
        written_at=written_at,
        figures=[Figure(value="7", text="records archived")],
        sections=[Section(title="Archive", texts=["7 records"], tables=[table])],
    )


def publish(world: World, *stored: tuple[str, bytes | None]) -> None:
    records = [Record(key.encode(), value, (), 1) for key, value in stored]
    world.wait(world.broker.publish(REPORTS_TOPIC, records, partition=0))


def test_before_the_first_report_there_is_none(client: Client) -> None:
    assert client.get("/v1/reports")["reports"] == []
    assert client.refused("GET", "/v1/reports/x").json["code"] == "unknown_report"


def test_the_newest_report_of_each_name_is_shown(world: World, client: Client) -> None:
    world.create(REPORTS_TOPIC)
    names = ("monthly", "daily", "gone", "daily")
    publish(world, *((name, encode_report(report(name, at))) for at, name in enumerate(names)))
    publish(world, ("gone", None))
    found = client.get("/v1/reports")
    assert [(one["name"], one["written_at"]) for one in found["reports"]] == [
        ("daily", 3),
        ("monthly", 0),
    ]
    assert found["reports"][0]["figures"] == [{"value": "7", "text": "records archived"}]
    assert (found["total"], found["cursor"], found["is_complete"]) == (2, "", True)
    first = client.get("/v1/reports", limit=1)
    second = client.get("/v1/reports", limit=1, cursor=first["cursor"])
    assert [one["name"] for one in second["reports"]] == ["monthly"]
    assert client.get("/v1/reports", match="DAY")["total"] == 0
    assert client.get("/v1/reports", match="DAI")["total"] == 1
    shown = client.get("/v1/reports/daily")
    assert shown["sections"][0]["tables"][0]["rows"] == [["orders", "7"]]


def test_what_is_no_report_is_counted_and_left_out(world: World, client: Client) -> None:
    world.create(REPORTS_TOPIC)
    other = encode_report(report("other"))
    publish(world, ("text", b"hello"), ("bytes", b"\xff"), ("forged", other), ("ok", b"{}"))
    found = client.get("/v1/reports")
    assert (found["reports"], found["unreadable"]) == ([], 4)
    for name in ("forged", "other"):
        assert client.refused("GET", f"/v1/reports/{name}").json["code"] == "unknown_report"


def test_a_topic_that_is_too_large_is_read_in_part(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "SCAN_BYTES_MAX", 1)
    monkeypatch.setattr(reports, "_RECORDS_PER_READ", 1)
    world.create(REPORTS_TOPIC)
    publish(world, *((name, encode_report(report(name))) for name in "ab"))
    found = client.get("/v1/reports")
    assert [one["name"] for one in found["reports"]] == ["a"]
    assert not found["is_complete"]
