"""Restores a backup into the empty data folder of a new node."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from goqueue.backups.manifest import Manifest, PartitionEntry, TopicEntry, object_name
from goqueue.backups.store import Store
from goqueue.backups.verifying import File, files_of
from goqueue.broker.backups.restoring import Log, Object, Topic, write_node
from goqueue.model.errors import CorruptBatch, InvalidSettings, UnsupportedVersion
from goqueue.model.support import LEVEL_MAX
from goqueue.runtime.data_folder import RESTORING, data_folder, explained
from goqueue.runtime.disk import LocalDisk

_LOCK = "lock"


def restore(
    folder: Store,
    manifest: Manifest,
    data_dir: Path,
    *,
    node_id: int = 0,
    cluster_id: str = "",
) -> None:
    """Write the data folder of a node that has what is in the backup.

    The folder must be empty, or that of a restore that was interrupted. With a cluster id, the node
    has that identity; otherwise it gets a new one at its start.
    """
    if manifest.feature_level > LEVEL_MAX:
        raise UnsupportedVersion(
            f"Backup {manifest.id} needs feature level {manifest.feature_level}, and "
            f"this release supports levels up to {LEVEL_MAX}; restore it with GoQueue "
            f"{manifest.broker_version} or later."
        )
    with data_folder(data_dir, is_restoring=True), explained(data_dir):
        _begin(data_dir)
        disk = LocalDisk(str(data_dir))
        write_node(
            disk,
            b"".join(_checked(folder, next(files_of(manifest)))),
            [_topic(folder, one) for one in manifest.topics],
            now_ms=time.time_ns() // 1_000_000,
            node_id=node_id,
            cluster_id=cluster_id,
        )
        # Until this is gone, no node starts here.
        (data_dir / RESTORING).unlink()
        disk.sync_folder("")


def _begin(data_dir: Path) -> None:
    """Mark the folder, and remove what an interrupted restore has left in it."""
    marker = data_dir / RESTORING
    others = [one for one in data_dir.iterdir() if one.name not in (_LOCK, RESTORING)]
    if others and not marker.exists():
        raise InvalidSettings(
            [
                f"node.data_dir: {data_dir} is not empty: it has {others[0].name}. A backup is "
                "restored into an empty folder only; choose another one with --data-dir"
            ]
        )
    marker.touch(mode=0o600)
    LocalDisk(str(data_dir)).sync_folder("")
    for one in others:
        if one.is_dir():
            shutil.rmtree(one)
        else:
            one.unlink()


def _topic(folder: Store, entry: TopicEntry) -> Topic:
    epochs = [one.epoch for partition in entry.partitions for one in partition.objects]
    logs = [_log(folder, entry.id, one) for one in entry.partitions]
    return Topic(entry.name, max(epochs, default=0), logs)


def _log(folder: Store, topic_id: str, entry: PartitionEntry) -> Log:
    def objects() -> Iterator[Object]:
        for one in entry.objects:
            file = File(object_name(topic_id, entry.number, one), one.size, one.sha256)
            yield Object(one.base, one.end, one.last_end, _checked(folder, file))

    return Log(entry.number, entry.start, entry.end, objects())


def _checked(folder: Store, file: File) -> Iterator[bytes]:
    """Yield the bytes of a file; raise before that unless they are those that were written."""
    digest = sha256()
    try:
        for data in folder.read(file.name):
            digest.update(data)
    except FileNotFoundError:
        raise CorruptBatch(
            f"{folder}/{file.name} is missing; restore another backup, or find the file."
        ) from None
    if digest.hexdigest() != file.sha256:
        raise CorruptBatch(
            f"{folder}/{file.name} is damaged; restore another backup, or find the file."
        )
    yield from folder.read(file.name)
