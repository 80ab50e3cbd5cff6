"""Records that a reader was to read and that are no longer there, and what to do about it.

Retention removes old records, a topic can be deleted and made again, a broker can lose its disk. A
reader that finds such a thing stops and says what is missing; with `failOnDataLoss=false` it says
so in the log and reads on with what there is. Gaps that compaction leaves are no loss.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from goqueue.model.errors import GoQueueError

_log = logging.getLogger(__name__)


class DataLost(GoQueueError):
    """Some of what was to be read is gone."""

    code = "data_lost"

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            f"{' '.join(losses)} Set failOnDataLoss to false to go on with what is there, or "
            "begin again: a table by loading it, a stream with a new checkpoint."
        )


def report(losses: Sequence[str], *, is_fatal: bool) -> None:
    """Stop, or say in the log what is missing."""
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
