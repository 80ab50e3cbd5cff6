"""What a backup copies, what it uses again, and when it begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from goqueue.backups.creating import Cut, Piece, Span, TopicCut, create
from goqueue.backups.folder import Folder
from goqueue.backups.manifest import Manifest, decode_manifest, encode_manifest, object_name
from goqueue.backups.store import Store
from goqueue.backups.verifying import Fault, Finding, verify
from goqueue.model.batch import Record, encode_batch, read_header
from goqueue.model.errors import (
    CorruptBatch,
    InvalidRequest,
    OffsetOutOfRange,
    RequestTimedOut,
    UnsupportedVersion,
)
from goqueue.model.names import DELIVERY_TOPIC, TopicPartition
from tests.unit.backups.memory_store import MemoryStore

ORDERS, DELIVERY = "01" * 16, "02" * 16
NAMES = {ORDERS: "orders", DELIVERY: DELIVERY_TOPIC}


class Cluster:
    """A cluster whose topics have one partition, and one record in each batch."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {ORDERS: [], DELIVERY: []}
        self.starts = {ORDERS: 0, DELIVERY: 0}
        self.cleaned = {ORDERS: 0, DELIVERY: 0}
        self.reads = 0
        self.cuts = 0
        self.after_cut: list[object] = []  # called after each of the next cuts

    def append(self, topic_id: str, *values: bytes, epoch: int = 0) -> None:
        log = self.logs[topic_id]
        for value in values:
            offset = read_header(log[-1]).next_offset if log else 0
            record = Record(None, value, timestamp_ms=1)
            log.append(bytes(encode_batch([record], base_offset=offset, leader_epoch=epoch)))

    def end(self, topic_id: str) -> int:
        log = self.logs[topic_id]
        return read_header(log[-1]).next_offset if log else 0

    def cut(self, topics: Sequence[str] | None) -> Cut:
        self.cuts += 1
        cut = Cut(
            "cluster",
            1_700_000_000_000 + self.cuts,
            b"metadata",
            [
                TopicCut(NAMES[one], one, [Span(self.starts[one], self.end(one))])
                for one in self.logs
            ],
        )
        if self.after_cut:
            self.after_cut.pop(0)()  # type: ignore[operator]
        return cut

    def read(self, topic_id: str, number: int, *, offset: int, until: int) -> Piece:
        self.reads += 1
        if until > self.end(topic_id):
            name = TopicPartition(NAMES[topic_id], number)
            raise OffsetOutOfRange(name, until, start=0, end=self.end(topic_id))
        offset = max(offset, self.starts[topic_id])
        found = [
            one
            for one in self.logs[topic_id]
            if offset < read_header(one).next_offset and read_header(one).base_offset < until
        ]
        data = b"".join(found[:2]) if offset < until else b""
        return Piece(self.starts[topic_id], self.cleaned[topic_id], data)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "backups")


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, folder: Folder) -> Store:
    return folder if request.param == "folder" else MemoryStore()


def back_up(folder: Store, cluster: Cluster) -> Manifest:
    return create(folder, cluster, version="1")


def ranges(manifest: Manifest, topic: str = "orders") -> list[tuple[int, int]]:
    [found] = [one for one in manifest.topics if one.name == topic]
    return [(one.base, one.end) for one in found.partitions[0].objects]


def content(folder: Store, manifest: Manifest, topic: str = "orders") -> bytes:
    [found] = [one for one in manifest.topics if one.name == topic]
    return b"".join(
        data
        for one in found.partitions[0].objects
        for data in folder.read(object_name(found.id, 0, one))
    )


def test_the_next_backup_has_objects_of_what_is_new(store: Store) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a", b"b", b"c")
    assert ranges(back_up(store, cluster)) == [(0, 3)]
    cluster.append(ORDERS, b"d")
    second = back_up(store, cluster)
    assert ranges(second) == [(0, 3), (3, 4)]
    assert content(store, second) == b"".join(cluster.logs[ORDERS])
    assert list(verify(store, store.ids())) == []


def test_objects_of_another_history_are_copied_again(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a", b"b")
    back_up(folder, cluster)
    del cluster.logs[ORDERS][1]
    cluster.append(ORDERS, b"other", b"c", epoch=1)
    second = back_up(folder, cluster)
    assert ranges(second) == [(0, 3)]
    assert content(folder, second) == b"".join(cluster.logs[ORDERS])


def test_what_compaction_has_rewritten_is_copied_again(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a", b"b")
    back_up(folder, cluster)
    cluster.append(ORDERS, b"c", b"d")
    back_up(folder, cluster)
    del cluster.logs[ORDERS][1]
    cluster.cleaned[ORDERS] = 2
    third = back_up(folder, cluster)
    assert ranges(third) == [(0, 2), (2, 4)]
    assert content(folder, third) == b"".join(cluster.logs[ORDERS])
    [topic] = [one for one in third.topics if one.name == "orders"]
    assert topic.partitions[0].objects[0].last_end == 1


def test_records_that_retention_has_removed_are_not_in_the_next_backup(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a", b"b")
    back_up(folder, cluster)
    cluster.append(ORDERS, b"c")
    cluster.starts[ORDERS] = 2
    assert ranges(back_up(folder, cluster)) == [(2, 3)]


def test_compaction_beyond_the_cut_begins_the_backup_anew(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a")

    def compact() -> None:
        cluster.append(ORDERS, b"b")
        cluster.cleaned[ORDERS] = 2

    cluster.after_cut = [compact]
    manifest = back_up(folder, cluster)
    assert cluster.cuts == 2
    assert ranges(manifest) == [(0, 2)]


def test_a_snapshot_of_delivery_state_after_the_cut_begins_the_backup_anew(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(DELIVERY, b"ack", b"ack")

    def replace() -> None:
        cluster.append(DELIVERY, b"snapshot")
        cluster.starts[DELIVERY] = 1

    cluster.after_cut = [replace]
    manifest = back_up(folder, cluster)
    assert cluster.cuts == 2
    assert ranges(manifest, DELIVERY_TOPIC) == [(1, 3)]


def test_a_log_that_always_changes_ends_the_backup_with_a_reason(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a")
    cluster.after_cut = [lambda: cluster.append(ORDERS, b"b")] * 10
    cluster.cleaned[ORDERS] = 1_000
    with pytest.raises(RequestTimedOut, match="Compaction of orders/0 has passed the cut"):
        back_up(folder, cluster)
    assert folder.ids() == []


def test_what_an_interrupted_backup_has_copied_is_used(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a", b"b")
    first = back_up(folder, cluster)
    (folder.path / "manifests" / f"{first.id}.json").unlink()
    cluster.append(ORDERS, b"c")
    assert ranges(back_up(folder, cluster)) == [(0, 2), (2, 3)]


def test_a_damaged_object_of_an_interrupted_backup_is_not_used(folder: Folder) -> None:
    cluster = Cluster()
    cluster.append(ORDERS, b"a", b"b")
    first = back_up(folder, cluster)
    (folder.path / "manifests" / f"{first.id}.json").unlink()
    [path] = (folder.path / "data" / ORDERS).rglob("*.batches")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    again = back_up(folder, cluster)
    assert content(folder, again) == b"".join(cluster.logs[ORDERS])
    assert list(verify(folder, folder.ids())) == []


def test_two_backups_do_not_write_to_one_folder(folder: Folder) -> None:
    with folder.open_for_writing(), pytest.raises(InvalidRequest, match="Another backup"):
        back_up(folder, Cluster())


def test_a_manifest_that_was_changed_or_is_newer_is_not_read() -> None:
    manifest = back_up_of_nothing()
    data = encode_manifest(manifest)
    assert decode_manifest(data, name="it") == manifest
    with pytest.raises(CorruptBatch, match="it is damaged"):
        decode_manifest(data.replace(b'"cut_ms":', b'"cut_ms":1'), name="it")
    with pytest.raises(UnsupportedVersion, match="version 2"):
        decode_manifest(data.replace(b'"version":1,', b'"version":2,', 1), name="it")


def test_a_backup_without_its_manifest_is_missing(folder: Folder) -> None:
    name = "manifests/none.json"
    assert list(verify(folder, ["none"])) == [Finding("none", name, Fault.MISSING)]


def back_up_of_nothing() -> Manifest:
    from goqueue.backups.manifest import MetadataEntry

    return Manifest(
        id="1",
        cluster_id="c",
        broker_version="1",
        cut_ms=1,
        finished_ms=2,
        metadata=MetadataEntry(size=0, sha256=""),
        topics=(),
    )
