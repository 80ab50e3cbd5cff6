"""How far a copy into a topic is: one log for each source partition, a line for each step.

A line is written when the records of its step are stored in the target, and says where. After a
crash the copy goes on behind the last line, so that only the records of the unfinished step can be
in the target twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import numpy as np

from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.digests import Digest, total
from goqueue.spark.pipelines.folders import sync_folder

FORMAT = "goqueue-copy"
VERSION = 1
_SUFFIX = ".steps"

Ints = np.ndarray[Any, np.dtype[np.int64]]


class DamagedProgress(GoQueueError):
    """The log of a copy cannot be read."""

    code = "damaged_progress"


class StoredRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of the target that a step has filled, both ends included."""

    partition: int
    first: int
    last: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one source partition that are stored, and the offset to go on with."""

    offset_next: int
    digest: Digest
    stored: tuple[StoredRange, ...]
    unplaced: int = 0  # records whose place the broker did not tell
    ends: dict[int, int] = {}  # of the target before the next step; a search begins there


class Steps:
    """The log of one source partition, for the one task that copies it."""

    def __init__(self, folder: Path, source: TopicPartition) -> None:
        self._file = folder / f"{quote(source.topic, safe='')}-{source.partition}{_SUFFIX}"
        self.done = read_steps(self._file)

    @property
    def offset_next(self) -> int:
        return self.done[-1].offset_next if self.done else 0

    @property
    def ends(self) -> dict[int, int] | None:
        """Where the target ended before what may have been written without a line."""
        return self.done[-1].ends if self.done else None

    def add(self, step: Step) -> None:
        """Note a step, on the disk."""
        is_new = not self._file.exists() or self._file.stat().st_size == 0
        self._file.parent.mkdir(parents=True, exist_ok=True)
        head = {"format": FORMAT, "version": VERSION}
        line = msgspec.json.encode(step) + b"\n"
        with self._file.open("ab") as opened:
            opened.write(msgspec.json.encode(head) + b"\n" + line if is_new else line)
            opened.flush()
            os.fsync(opened.fileno())
        if is_new:
            sync_folder(self._file.parent)
        self.done.append(step)


def read_steps(file: Path) -> list[Step]:
    """The steps of a log. A last line without an end is what a crash left; it does not count."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return []
    whole, _, torn = data.rpartition(b"\n")
    if torn:
        with file.open("r+b") as opened:
            opened.truncate(len(data) - len(torn))
    lines = whole.split(b"\n") if whole else []
    try:
        if lines and msgspec.json.decode(lines[0]) != {"format": FORMAT, "version": VERSION}:
            raise DamagedProgress(f"{file} was written by another version of this program.")
        return [msgspec.json.decode(line, type=Step) for line in lines[1:]]
    except msgspec.MsgspecError as error:
        raise DamagedProgress(f"{file} cannot be read: {error}") from error


def all_steps(folder: Path) -> dict[TopicPartition, list[Step]]:
    """What all tasks have noted."""
    found = {}
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        topic, _, number = file.name.removesuffix(_SUFFIX).rpartition("-")
        found[TopicPartition(unquote(topic), int(number))] = read_steps(file)
    return found


def copied(steps: Iterable[Sequence[Step]]) -> Digest:
    return total(step.digest for some in steps for step in some)


def ranges_of(places: Iterable[tuple[int, int]]) -> tuple[StoredRange, ...]:
    """Places, as partition and offset, gathered into ranges."""
    found: list[StoredRange] = []
    for partition, offset in sorted(places):
        last = found[-1] if found else None
        if last is not None and last.partition == partition and last.last + 1 == offset:
            found[-1] = StoredRange(partition, last.first, offset)
        else:
            found.append(StoredRange(partition, offset, offset))
    return tuple(found)


def merged(ranges: Iterable[StoredRange]) -> dict[int, list[tuple[int, int]]]:
    """Ranges of each partition in order, those that touch joined."""
    found: dict[int, list[tuple[int, int]]] = {}
    for one in sorted(ranges, key=lambda each: (each.partition, each.first)):
        mine = found.setdefault(one.partition, [])
        if mine and one.first <= mine[-1][1] + 1:
            mine[-1] = mine[-1][0], max(mine[-1][1], one.last)
        else:
            mine.append((one.first, one.last))
    return found


def is_within(offsets: Ints, ranges: Sequence[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """Which offsets lie in one of the ranges, which are in order."""
    firsts = np.array([first for first, _ in ranges], np.int64)
    lasts = np.array([last for _, last in ranges], np.int64)
    place = np.searchsorted(firsts, offsets, side="right") - 1
    return (place >= 0) & (offsets <= lasts[np.maximum(place, 0)])
