"""Records that a reader should read and that no longer exist, and how this is handled.

Retention removes old records, a topic can be deleted and recreated, a broker can lose its disk. A
reader that detects this stops and names what is missing; with `failOnDataLoss=false` it logs the
loss and continues with the records that exist. Gaps left by compaction are not a loss.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from goqueue.model.errors import GoQueueError

_log = logging.getLogger(__name__)


class DataLost(GoQueueError):
    """Some of the records to be read no longer exist."""

    code = "data_lost"

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            f"{' '.join(losses)} Set failOnDataLoss to false to continue with what exists, or "
            "begin again: a table by loading it, a stream with a new checkpoint."
        )


def report(losses: Sequence[str], *, is_fatal: bool) -> None:
    """Raise `DataLost`, or log what is missing."""
    if not losses:
        return
    if is_fatal:
        raise DataLost(losses)
    for loss in losses:
        _log.warning("%s", loss)


def recreated(topic: str) -> str:
    return f"Topic {topic!r} was deleted and created again; its old records are gone."


def gone(what: object) -> str:
    return f"{what} is gone: it was deleted, or the options no longer name it."


def expired(partition: object, start: int, end: int) -> str:
    return f"Offsets {start} to {end - 1} of {partition} have been removed."


def truncated(partition: object, wanted: int, end: int) -> str:
    return f"{partition} ends at offset {end}, but has been seen to reach offset {wanted}."
