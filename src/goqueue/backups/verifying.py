"""Verifying backups: every object is there, whole and unchanged."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from goqueue.backups.manifest import Manifest, manifest_name, metadata_name, object_name
from goqueue.backups.store import Store
from goqueue.model.errors import GoQueueError


class Fault(enum.StrEnum):
    MISSING = "missing"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"


class Finding(NamedTuple):
    """A file of a backup that is not as it was written."""

    backup: str
    name: str
    fault: Fault


class File(NamedTuple):
    """A file that a backup needs."""

    name: str
    size: int
    sha256: str


def files_of(manifest: Manifest) -> Iterator[File]:
    """Yield all files of a backup besides its manifest."""
    entry = manifest.metadata
    yield File(metadata_name(entry), entry.size, entry.sha256)
    for topic in manifest.topics:
        for partition in topic.partitions:
            for one in partition.objects:
                name = object_name(topic.id, partition.number, one)
                yield File(name, one.size, one.sha256)


def verify(folder: Store, backup_ids: Sequence[str]) -> Iterator[Finding]:
    """Yield what is wrong with these backups. All bytes are read, each file once."""
    checked: dict[File, Fault | None] = {}
    for backup_id in backup_ids:
        try:
            manifest = folder.load(backup_id)
        except GoQueueError:
            is_there = folder.size(manifest_name(backup_id)) is not None
            fault = Fault.DAMAGED if is_there else Fault.MISSING
            yield Finding(backup_id, manifest_name(backup_id), fault)
            continue
        for file in files_of(manifest):
            if file not in checked:
                checked[file] = _check(folder, file)
            found = checked[file]
            if found is not None:
                yield Finding(backup_id, file.name, found)


def _check(folder: Store, file: File) -> Fault | None:
    size = folder.size(file.name)
    if size is None:
        return Fault.MISSING
    if size < file.size:
        return Fault.TRUNCATED
    digest = sha256()
    for data in folder.read(file.name):
        digest.update(data)
    return None if digest.hexdigest() == file.sha256 else Fault.DAMAGED
