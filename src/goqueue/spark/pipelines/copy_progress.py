"""The progress of a copy into a topic: one log per source partition, with a line per step.

A step is one transaction. Its line is written when all of its records are stored, and contains
their offsets; after that, the transaction is committed as an epoch of the copy of this source
partition. So after a crash at most the last line of a log is undecided, and the broker has the
committed epoch: if it includes the step, the step counts; otherwise the line is dropped and the
records are written again.
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
from goqueue.spark.pipelines.folders import sync_folder, write_over

FORMAT = "goqueue-copy"
VERSION = 2
_SUFFIX = ".steps"

Ints = np.ndarray[Any, np.dtype[np.int64]]


class DamagedProgress(GoQueueError):
    """The log of a copy cannot be read."""

    code = "damaged_progress"


class StoredRange(msgspec.Struct, frozen=True, array_like=True):
    """Target offsets that a step has filled, both ends inclusive."""

    partition: int
    first: int
    last: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Stored records of one source partition, and the offset to continue with."""

    run: int  # of the copy, as numbered by the broker
    epoch: int
    offset_next: int
    digest: Digest
    stored: tuple[StoredRange, ...]
    unplaced: int = 0  # records whose offset the broker did not return


class Steps:
    """The log of one source partition, for the one task that copies it."""

    def __init__(self, folder: Path, source: TopicPartition) -> None:
        self._file = folder / f"{quote(source.topic, safe='')}-{source.partition}{_SUFFIX}"
        self.done = read_steps(self._file)

    @property
    def offset_next(self) -> int:
        return self.done[-1].offset_next if self.done else 0

    @property
    def epoch_next(self) -> int:
        return self.done[-1].epoch + 1 if self.done else 0

    def settle(self, *, run: int, epoch: int | None) -> None:
        """Keep committed steps, by the broker's response when this run of the copy began.

        The broker removes a copy after some time, or may be a different broker: then the outcome of
        the last step cannot be determined.
        """
        last = self.done[-1].epoch if self.done else -1
        committed = -1 if epoch is None else epoch
        is_known = not self.done or run > self.done[-1].run
        if not is_known or committed not in (last, last - 1):
            raise DamagedProgress(
                f"{self._file} ends with step {last}, and the broker has committed "
                f"{'none' if epoch is None else epoch} of this copy. It is another broker, or has "
                "forgotten the copy, or the file was changed; begin another run."
            )
        if committed < last:
            self.done.pop()
            write_over(self._file, _HEAD + b"".join(map(_line, self.done)))

    def add(self, step: Step) -> None:
        """Append a step durably."""
        is_new = not self._file.exists() or self._file.stat().st_size == 0
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab") as opened:
            opened.write(_HEAD + _line(step) if is_new else _line(step))
            opened.flush()
            os.fsync(opened.fileno())
        if is_new:
            sync_folder(self._file.parent)
        self.done.append(step)


_HEAD = msgspec.json.encode({"format": FORMAT, "version": VERSION}) + b"\n"


def _line(step: Step) -> bytes:
    return msgspec.json.encode(step) + b"\n"


def read_steps(file: Path) -> list[Step]:
    """Return the steps of a log. An incomplete last line was left by a crash and does not count."""
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
            raise DamagedProgress(
                f"{file} was written by another version of this program; begin another run."
            )
        return _counting([msgspec.json.decode(line, type=Step) for line in lines[1:]])
    except msgspec.MsgspecError as error:
        raise DamagedProgress(f"{file} cannot be read: {error}") from error


def _counting(steps: Iterable[Step]) -> list[Step]:
    """Drop lines written by a superseded task that had not yet been fenced."""
    counting: dict[int, Step] = {}
    run = 0
    for step in steps:
        if step.run >= run:
            run = step.run
            counting[step.epoch] = step
    return [counting[epoch] for epoch in sorted(counting)]


def all_steps(folder: Path) -> dict[TopicPartition, list[Step]]:
    """Return the steps of all tasks."""
    found = {}
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        topic, _, number = file.name.removesuffix(_SUFFIX).rpartition("-")
        found[TopicPartition(unquote(topic), int(number))] = read_steps(file)
    return found


def copied(steps: Iterable[Sequence[Step]]) -> Digest:
    return total(step.digest for some in steps for step in some)


def merged(ranges: Iterable[StoredRange]) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges of each partition in order, adjacent ones merged."""
    found: dict[int, list[tuple[int, int]]] = {}
    for one in sorted(ranges, key=lambda each: (each.partition, each.first)):
        mine = found.setdefault(one.partition, [])
        if mine and one.first <= mine[-1][1] + 1:
            mine[-1] = mine[-1][0], max(mine[-1][1], one.last)
        else:
            mine.append((one.first, one.last))
    return found


def is_within(offsets: Ints, ranges: Sequence[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """Return which offsets are in one of the ranges, which are in order."""
    firsts = np.array([first for first, _ in ranges], np.int64)
    lasts = np.array([last for _, last in ranges], np.int64)
    index = np.searchsorted(firsts, offsets, side="right") - 1
    return (index >= 0) & (offsets <= lasts[np.maximum(index, 0)])
