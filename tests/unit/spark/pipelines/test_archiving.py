"""An archive goes on where it ended, and says what is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.client import PartitionRange
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.losses import DataLost
from goqueue.spark.pipelines import archiving
from goqueue.spark.pipelines.archiving import archive_piece, plan_archive, starting_places
from goqueue.spark.pipelines.copy_progress import Step
from goqueue.spark.pipelines.digests import Digest
from goqueue.spark.pipelines.manifests import Archive, Manifest, TopicPosition
from goqueue.spark.pipelines.redistributing import open_ranges
from goqueue.spark.planning import OffsetRange, Snapshot
from tests.unit.spark.spark_broker import ONE, ZERO, SparkBroker, serve_tasks, table_options


def position(topic_id: str = "id", **offsets: int) -> dict[str, TopicPosition]:
    numbers = {int(name[1:]): offset for name, offset in offsets.items()}
    return {"orders": TopicPosition(topic_id=topic_id, offsets=numbers)}


def seen(start: int, end: int) -> Snapshot:
    kept = {one: PartitionRange(start, end) for one in (ZERO, ONE)}
    return Snapshot({"orders": "id"}, kept)


def test_a_new_archive_begins_at_the_beginning() -> None:
    assert starting_places(seen(0, 10), {}) == ({}, [])


def test_partitions_that_were_added_begin_at_their_beginning() -> None:
    assert starting_places(seen(0, 10), position(p0=4)) == ({"orders": {0: 4}}, [])


def test_what_is_gone_is_named() -> None:
    starts, lost = starting_places(seen(6, 10), position(p0=4, p1=12))
    assert starts == {"orders": {0: 6, 1: 10}}
    assert lost == [
        "Offsets 4 to 5 of orders/0 have been removed.",
        "orders/1 ends at offset 10, but has been seen to reach offset 12.",
    ]
    starts, lost = starting_places(seen(0, 10), position("other", p0=4))
    assert starts == {}
    assert lost == ["Topic 'orders' was deleted and created again; its old records are gone."]


def archive_with(positions: dict[str, TopicPosition]) -> Archive:
    one = Manifest(
        number=1, run_id="r", started_at_ms=0, committed_at_ms=0, positions=positions, pieces=()
    )
    return Archive(Path("/archive"), (one,))


def test_a_plan_holds_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SparkBroker()
    monkeypatch.setattr(archiving, "connect", lambda *_: broker.client())
    broker.write(ZERO, 30)
    broker.write(ONE, 10)
    held = archive_with(position(broker.topic_id("orders").hex(), p0=12, p1=10, p2=0))
    plan = plan_archive(table_options(maxRecordsPerPartition="9"), held)
    assert [(str(one.partition), one.start, one.end) for one in plan.ranges] == [
        ("orders/0", 12, 30)
    ]
    assert [(one.start, one.end) for one in plan.tasks] == [(12, 21), (21, 30)]
    broker.starts[ZERO] = 15
    with pytest.raises(DataLost, match="Offsets 12 to 14"):
        plan_archive(table_options(), held)
    accepted = plan_archive(table_options(failOnDataLoss="false"), held)
    assert accepted.ranges[0].start == 15
    assert len(accepted.losses) == 1


def test_a_piece_is_what_its_range_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SparkBroker()
    serve_tasks(broker, monkeypatch)
    for _ in range(5):
        broker.write(ZERO, 10)
    wanted = OffsetRange(ZERO, 7, 33, broker.topic_id("orders").hex())
    piece = archive_piece(table_options(), tmp_path, "partition", wanted)
    assert (piece.start, piece.end, piece.digest.records) == (7, 33, 26)
    assert [(one.first_offset, one.last_offset) for one in piece.files] == [(7, 32)]
    assert sum(piece.latencies) == 26


def test_a_piece_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SparkBroker()
    serve_tasks(broker, monkeypatch)
    broker.write(ZERO, 10)
    wanted = OffsetRange(ZERO, 0, 20, broker.topic_id("orders").hex())
    with pytest.raises(DataLost):
        archive_piece(table_options(), tmp_path, "time", wanted)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


def test_topics_must_be_named() -> None:
    assert archiving.checked_topics([" a ", "b", "a"]) == ("a", "b")
    with pytest.raises(InvalidRequest):
        archiving.checked_topics([" "])


def test_a_redistribution_goes_on_behind_its_last_step() -> None:
    done = {ZERO: [Step(run=1, epoch=0, offset_next=4, digest=Digest(), stored=())]}
    assert open_ranges(seen(0, 10), done) == ({0: 4, 1: 0}, {0: 10, 1: 10})
    assert open_ranges(seen(0, 4), done) == ({1: 0}, {1: 4})
    with pytest.raises(DataLost, match="Offsets 4 to 5 of orders/0"):
        open_ranges(seen(6, 10), done)
    assert TopicPartition("orders", 0) == ZERO
