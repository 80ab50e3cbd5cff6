"""Acknowledges the messages of an epoch as soon as Spark has committed it.

Spark notifies a source that an epoch is done only when the next one begins, and never for the last.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from goqueue.model.errors import GoQueueError
from goqueue.spark.queues.offsets import QueueOffset, read_queue_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

SOURCE_NAME = "goqueue-queue"
QUERIES_REMEMBERED_MAX = 1_000

_log = logging.getLogger(__name__)


class QueueListener(StreamingQueryListener):
    """Commits at the end of each micro-batch, in the driver process."""

    def __init__(self) -> None:
        self._committed: dict[str, int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            found = reported(source.latestOffset, source.endOffset)
            if found is None:
                continue
            http, offset = found
            if self._committed.get(offset.query, -1) >= offset.epoch:
                continue
            try:
                _commit(http, offset)
            except GoQueueError as error:
                # The source commits again when the next epoch begins.
                _log.warning("Epoch %d is not acknowledged yet: %s", offset.epoch, error)
            else:
                self._remember(offset)

    def _remember(self, offset: QueueOffset) -> None:
        self._committed[offset.query] = offset.epoch
        if len(self._committed) > QUERIES_REMEMBERED_MAX:
            del self._committed[next(iter(self._committed))]


def reported(latest: str | None, end: str | None) -> tuple[str, QueueOffset] | None:
    """Return the address and the epoch that a queue reports; None for another source."""
    found = _read(latest)
    if not isinstance(found, dict) or found.get("source") != SOURCE_NAME:
        return None
    offset = _read(end)
    if not isinstance(offset, dict):
        return None
    return str(found["http"]), read_queue_offset(offset)


def _read(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _commit(http: str, offset: QueueOffset) -> None:
    from goqueue.spark.queues.epochs import carrier, commit_epoch

    api = carrier(http)
    try:
        commit_epoch(api, offset)
    finally:
        api.close()
