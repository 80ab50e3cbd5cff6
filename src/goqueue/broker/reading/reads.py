"""Reading partitions, wherever they are led."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from goqueue.broker.reading.fetching import Fetch, FetchDone, Wanted
from goqueue.broker.reading.gathered import GatheredReading
from goqueue.broker.reading.records import Place, Reading
from goqueue.broker.reading.records_ends import search_records_ends
from goqueue.broker.reading.remote import Bounds, RemoteReader
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers

if TYPE_CHECKING:
    from goqueue.broker.reading.searching import Searches


class Reads:
    """Reads batches, records and offsets."""

    def __init__(self, clock: Clock, topics: Topics, leaders: Leaders, peers: Peers | None) -> None:
        self._clock = clock
        self._remote: RemoteReader | None = None
        if peers is not None:
            self._remote = RemoteReader(
                clock,
                topics,
                leaders,
                peers,
                start=lambda reading, wait_ms: reading.start(self.fetch, wait_ms),
            )

    @cached_property
    def searches(self) -> Searches:
        """Searches of the partitions that this node leads."""
        # Imported here, because most nodes are never searched.
        from goqueue.broker.reading.searching import Searches

        return Searches(self._clock, self.read)

    def fetch(
        self,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        done: FetchDone,
    ) -> Fetch:
        """Read committed batches, now or when enough have arrived; `done` gets the results."""
        fetch = Fetch(self._clock, wanted, bytes_min=bytes_min, bytes_max=bytes_max, done=done)
        fetch.start(wait_ms)
        return fetch

    def read(
        self,
        places: Sequence[Place],
        *,
        records_max: int,
        bytes_max: int,
        wait_ms: int = 0,
        is_committed_only: bool = True,
    ) -> Reading:
        """Read records one by one, waiting for the first if there is none.

        Unless `is_committed_only`, this includes those of open and aborted transactions.
        """
        if self._remote is not None:
            gathered = GatheredReading(
                self._remote,
                places,
                records_max=records_max,
                bytes_max=bytes_max,
                is_committed_only=is_committed_only,
            )
            gathered.begin(wait_ms)
            return gathered
        reading = Reading(
            places,
            records_max=records_max,
            bytes_max=bytes_max,
            is_committed_only=is_committed_only,
        )
        reading.start(self.fetch, wait_ms)
        return reading

    async def look(
        self,
        topic: Topic,
        numbers: Sequence[int],
        *,
        times_ms: Sequence[int] = (),
        may_guess: bool = False,
        with_records_end: bool = False,
    ) -> Sequence[Bounds]:
        """Return the start and end offsets of partitions from their leaders.

        For partitions of other nodes, the result has only the offsets at `times_ms`, and the end of
        the records only `with_records_end`. With `may_guess`, this node's replica answers if no
        leader does.
        """
        if self._remote is None:
            partitions = [topic.partition(number) for number in numbers]
            if with_records_end:
                await search_records_ends(self._clock, partitions)
            return partitions
        return await self._remote.look(
            topic,
            numbers,
            times_ms=times_ms,
            may_guess=may_guess,
            with_records_end=with_records_end,
        )
