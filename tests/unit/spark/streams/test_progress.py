"""The listener commits the end of a batch, and knows which queries are its own."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from goqueue.client import Unreachable
from goqueue.spark.streams import progress
from goqueue.spark.streams.progress import ProgressListener, read_report
from goqueue.spark.streams.reader import Planner
from tests.unit.spark.spark_broker import ONE, TWO, ZERO, SparkBroker, stream_options


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SparkBroker:
    broker = SparkBroker()
    broker.write(ZERO, 100)
    monkeypatch.setattr(progress, "connect", lambda *_: broker.client())
    return broker


def event(end: str | None, latest: str | None) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    return SimpleNamespace(progress=SimpleNamespace(id="query", sources=[source]))


def a_batch(broker: SparkBroker) -> tuple[str, str]:
    """Its end and what the source reports, as Spark writes them into the progress."""
    planner = Planner(stream_options(group="mine"), broker.client())
    end = planner.next_end(planner.initial(), ReadAllAvailable())
    assert end is not None
    return json.dumps(end.to_json()), json.dumps(planner.report())


def test_the_end_of_a_batch_is_committed(broker: SparkBroker) -> None:
    ProgressListener().onQueryProgress(event(*a_batch(broker)))
    assert broker.commits[-1] == ("mine", {ZERO: 100})  # The others were there before.


def test_a_late_event_does_not_take_progress_back(broker: SparkBroker) -> None:
    late = a_batch(broker)
    broker.commits.append(("mine", {ZERO: 150, ONE: 5, TWO: 0}))
    before = len(broker.commits)
    ProgressListener().onQueryProgress(event(*late))
    assert len(broker.commits) == before


@pytest.mark.parametrize(
    "latest", [None, "", "17", "/a/path", '{"orders": {"0": 3}}', '{"source": "other"}']
)
def test_other_sources_are_left_alone(broker: SparkBroker, latest: str | None) -> None:
    assert read_report(latest) is None
    ProgressListener().onQueryProgress(event("17", latest))
    ProgressListener().onQueryProgress(event(None, latest))
    assert broker.commits == []


def test_a_broker_that_is_away_stops_nothing(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = a_batch(broker)

    def refuse(*_: object) -> None:
        raise Unreachable("No broker answers at fake:9092.")

    monkeypatch.setattr(progress, "connect", refuse)
    ProgressListener().onQueryProgress(event(*batch))
    assert "Progress of query query is not shown: No broker answers" in caplog.text
