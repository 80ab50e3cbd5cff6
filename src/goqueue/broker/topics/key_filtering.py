"""Key filters built in the background, for topics whose setting asks for it.

Other topics have theirs built by their first search. One segment is read at a time, in small steps
with pauses, so that this takes little from those who produce.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from goqueue.broker.topics.topics import Topics
from goqueue.loop.clock import Clock, Handle
from goqueue.partition import KeyFiltering, Partition
from goqueue.storage.damage import Place
from goqueue.storage.segment import Segment

if TYPE_CHECKING:
    from goqueue.storage.key_search import Found, SegmentSearch

CHECK_MS = 10_000
STEP_BYTES = 1 << 20
PAUSE_MS = 10  # after each step, which takes about half a millisecond

_Key = tuple[bytes, int]  # a partition, and the first offset of a segment of it

_log = logging.getLogger(__name__)


class KeyFilterBuilder:
    """Builds the filters of segments as they grow."""

    def __init__(self, clock: Clock, topics: Topics) -> None:
        self._clock = clock
        self._topics = topics
        self._built: dict[_Key, int] = {}  # up to where segments were looked at
        self._timer: Handle | None = None
        self._is_stopping = False

    def start(self) -> None:
        self._timer = self._clock.call_later(CHECK_MS, self._look)

    def stop(self) -> None:
        """Stop; a step that is running is in vain."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Begin with a segment that is due; if there is none, check again later."""
        due = next(self._due(), None)
        if due is None:
            self._timer = self._clock.call_later(CHECK_MS, self._look)
            return
        partition, segment = due
        self._step(partition, _search_of(partition, segment))

    def _due(self) -> Iterator[tuple[Partition, Segment]]:
        """Yield segments that have grown, and forget those that are gone."""
        before, self._built = self._built, {}
        due = []
        filtered = [
            one
            for one in self._topics.partitions()
            if one.settings.key_filters is KeyFiltering.ALWAYS and not one.failure
        ]
        if not filtered:
            return
        # Imported here, because most nodes have no such topic.
        from goqueue.storage.key_filters import BLOCK_BYTES

        for partition in filtered:
            for segment in partition.log.segments:
                key = partition.key, segment.base_offset
                built = self._built[key] = before.get(key, 0)
                grown = segment.size - built
                if grown >= BLOCK_BYTES or (segment.is_sealed and grown):
                    due.append((partition, segment))
        yield from due

    def _step(self, partition: Partition, search: SegmentSearch) -> None:
        def done(found: Found | None, error: Exception | None) -> None:
            if self._is_stopping:
                search.close()
                return
            is_there = not partition.is_gone and search.segment in partition.log.segments
            if error is not None:
                _log.error("%s: no key filters can be built", partition.name, exc_info=error)
            elif found is not None and is_there:
                is_there = self._keep(partition, search, found)
            if search.is_done or error is not None or not is_there:
                self._finish(partition, search)
            else:
                self._timer = self._clock.call_later(
                    PAUSE_MS, partial(self._step, partition, search)
                )

        self._clock.run_blocking(partial(search.step, bytes_max=STEP_BYTES, offsets_max=1), done)

    def _keep(self, partition: Partition, search: SegmentSearch, found: Found) -> bool:
        """Write filters; return whether to go on."""
        try:
            search.keep(found)
        except OSError as error:
            _log.warning("%s: a key filter was not written: %s", partition.name, error)
            return False
        return found.damaged is None

    def _finish(self, partition: Partition, search: SegmentSearch) -> None:
        search.close()
        # What could not be read or written is left to searches.
        self._built[partition.key, search.segment.base_offset] = search.segment.size
        self._timer = self._clock.call_later(PAUSE_MS, self._look)


def _search_of(partition: Partition, segment: Segment) -> SegmentSearch:
    """Return a search of all that is committed of a segment, which builds missing filters."""
    from goqueue.storage.key_search import Part, SegmentSearch  # As in `_due`.

    log, end = partition.log, segment.place_of(partition.high_watermark)
    part = Part(Place(0, segment.base_offset), end)
    return SegmentSearch(log.disk, log.folder, segment, part, None, builds=True)
