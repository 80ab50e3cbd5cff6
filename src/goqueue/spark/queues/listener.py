"""Acknowledges the messages of an epoch as soon as Spark has committed it.

Spark notifies a source that an epoch is done only when the next one begins, and never for the last.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from goqueue.model.errors import AuthenticationFailed, AuthenticationRequired, GoQueueError
from goqueue.spark.access import Access
from goqueue.spark.driver_access import DriverAccess
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

    def __init__(self, access: DriverAccess | None = None) -> None:
        self._access = access or DriverAccess()
        self._committed: dict[str, int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            found = reported(source.latestOffset, source.endOffset)
            if found is None:
                continue
            report, offset = found
            if self._committed.get(offset.query, -1) >= offset.epoch:
                continue
            try:
                _commit(report, offset, self._access.for_report(report))
            except GoQueueError as error:
                # The source commits again when the next epoch begins.
                _log.warning("Epoch %d is not acknowledged yet: %s", offset.epoch, error)
                if isinstance(error, AuthenticationFailed | AuthenticationRequired):
                    _log.warning(_HINT)
            else:
                self._remember(offset)

    def _remember(self, offset: QueueOffset) -> None:
        self._committed[offset.query] = offset.epoch
        if len(self._committed) > QUERIES_REMEMBERED_MAX:
            del self._committed[next(iter(self._committed))]


_HINT = (
    "Messages of the last epoch are delivered again unless it is acknowledged: give the session "
    "the credentials too, with goqueue.spark.session(access=...) or GOQUEUE_API_KEY."
)


def reported(latest: str | None, end: str | None) -> tuple[Mapping[str, Any], QueueOffset] | None:
    """Return what a queue reports about its broker, and the epoch; None for another source."""
    found = _read(latest)
    if not isinstance(found, dict) or found.get("source") != SOURCE_NAME:
        return None
    offset = _read(end)
    if not isinstance(offset, dict):
        return None
    return found, read_queue_offset(offset)


def _read(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _commit(report: Mapping[str, Any], offset: QueueOffset, access: Access) -> None:
    from goqueue.spark.queues.epochs import carrier, commit_epoch

    api = carrier(str(report["http"]), access)
    try:
        commit_epoch(api, offset)
    finally:
        api.close()
