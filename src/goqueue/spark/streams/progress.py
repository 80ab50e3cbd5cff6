"""Publishes the progress of a streaming query as a group, which `goqueue group lag` shows.

Only the checkpoint determines where a query resumes. So a failure to commit an offset is logged and
does not stop the query; a later offset is committed instead.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from goqueue.client import LogClient
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.spark.access import OPEN, Access
from goqueue.spark.connecting import connect
from goqueue.spark.driver_access import DriverAccess
from goqueue.spark.streams.offsets import read_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)

SOURCE_NAME = "goqueue"


class GroupProgress:
    """Commits the positions of a query, once for each change."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, int]] = {}

    def commit(
        self, client: LogClient, group: str, positions: Mapping[TopicPartition, int]
    ) -> None:
        if not positions or self._committed.get(group) == positions:
            return
        self._committed[group] = dict(positions)
        try:
            client.groups.commit(group, positions)
        except GoQueueError as error:
            _log.warning("Group %r does not show the progress of its query: %s", group, error)


class ProgressListener(StreamingQueryListener):
    """Commits at the end of each micro-batch, in the driver process.

    Spark notifies a source that a batch is done only when the next one begins, and never for the
    last batch. The broker and the group of a query are in the offset that its source reports.
    """

    def __init__(self, access: DriverAccess | None = None) -> None:
        self._access = access or DriverAccess()

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            reported = read_report(source.latestOffset)
            if reported is not None and source.endOffset:
                try:
                    access = self._access.for_report(reported)
                    show_progress(json.loads(source.endOffset), reported, access)
                except GoQueueError as error:
                    _log.warning("Progress of query %s is not shown: %s", event.progress.id, error)


def read_report(text: str | None) -> dict[str, Any] | None:
    """Return what our source reports as its latest offset; None for another source."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    is_ours = isinstance(found, dict) and found.get("source") == SOURCE_NAME
    return found if is_ours else None


def show_progress(
    end: Mapping[str, Any], reported: Mapping[str, Any], access: Access = OPEN
) -> None:
    """Commit the end of a batch, unless the source itself has already committed more."""
    offset = read_offset(end)
    group = str(reported["group"])
    with connect(str(reported["bootstrap"]), access) as client:
        known = client.groups.committed(group, offset.positions)
        ahead = {
            one: position
            for one, position in offset.positions.items()
            if one not in known or known[one].offset < position
        }
        if ahead:
            client.groups.commit(group, ahead)
