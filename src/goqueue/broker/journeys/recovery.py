"""Derives from the logs what was not written to the journal: after a crash, or a time without it.

For each partition of the journal its owner is asked how far it has a source. What is missing up to
where live recording begins is read from the log of the source, a little at a time, and sent like
any other piece. What the log does not have any more is marked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from goqueue.broker.journeys.commits import derive_commits
from goqueue.broker.journeys.deriving import (
    Derived,
    Names,
    Steps,
    derive_deliveries,
    derive_records,
    derive_removal,
    derive_schedules,
)
from goqueue.broker.journeys.outlets import Outlets
from goqueue.broker.journeys.owners import JournalOwners
from goqueue.broker.journeys.pieces import FENCED, UNKNOWN, Piece
from goqueue.broker.journeys.sources import (
    LiveSource,
    PlaceSource,
    RemovalSource,
    TopicSource,
    merged,
    piece_of,
)
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.errors import GoQueueError
from goqueue.model.names import DELIVERY_TOPIC, OFFSETS_TOPIC, TopicPartition
from goqueue.tracing.events import Details, Event, Kind, Place, Span

RETRY_MS = 500
SOURCES_PER_CALL_MAX = 1_000
WAITING_BYTES_MAX = 1 << 20  # in the outlets, before deriving pauses
PAUSE_MS = 20
LOST = "lost"  # the reason of messages that a crash has taken from the log

# Where the events about a partition go, and what it is; None if they are not recorded.
FindTarget = Callable[[TopicPartition], tuple[int, Place] | None]

_log = logging.getLogger(__name__)


class Recovery:
    """Brings sources up to where they are recorded live, one after the other."""

    def __init__(
        self,
        clock: Clock,
        owners: JournalOwners,
        outlets: Outlets,
        names: Callable[[], Names],
        *,
        node_id: int,
        target: FindTarget,
        ready: Callable[[LiveSource], None],
    ) -> None:
        """`ready` is called with a source that is complete, and no longer held."""
        self._clock = clock
        self._owners = owners
        self._outlets = outlets
        self._names = names
        self._node_id = node_id
        self._target = target
        self._ready = ready
        self._wanted: dict[LiveSource, None] = {}
        self._since: dict[LiveSource, int] = {}  # when each was wanted first, until it is complete
        self._is_running = False
        self.recovered = 0  # events that were derived and sent

    def oldest_ms(self) -> int | None:
        """Return since when the oldest source is incomplete; None if none is."""
        since = [ms for one, ms in self._since.items() if not one.is_closed]
        return min(since, default=None)

    @property
    def is_idle(self) -> bool:
        return not self._wanted and not self._is_running

    def want(self, source: LiveSource) -> None:
        """Derive what the journal misses of a source that is held."""
        if not source.is_held:
            return  # It was completed since somebody began to wait for another try.
        self._wanted[source] = None
        self._since.setdefault(source, self._clock.now_ms())
        if not self._is_running:
            self._is_running = True
            self._clock.call_soon(lambda: start(self._run(), _raise))

    async def _run(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            sources = [one for one in wanted if one.is_held and not one.is_closed]
            for source in sources:
                if not source.is_collecting:
                    source.hold()
            # What a new leader has found is committed when enough replicas have it.
            fit = [one for one in sources if one.partition.high_watermark >= one.start]
            self._want_later([one for one in sources if one not in fit])
            positions = await self._ask(fit)
            for source in fit:
                known = positions.get(source)
                if known is None or not await self._fill(source, known):
                    self._want_later([source])
        self._since = {one: ms for one, ms in self._since.items() if not one.is_closed}
        self._is_running = False

    def _want_later(self, sources: Iterable[LiveSource]) -> None:
        def want() -> None:
            for source in left:
                if not source.is_closed:
                    self.want(source)

        left = list(sources)
        if left:
            self._clock.call_later(RETRY_MS, want)

    # Questions

    async def _ask(self, sources: list[LiveSource]) -> dict[LiveSource, dict[int, int]]:
        """Return how far each partition of the journal has sources; omit those not answered."""
        by_number: dict[int, list[LiveSource]] = {}
        for source in sources:
            numbers = (
                (source.number,) if isinstance(source, PlaceSource) else range(self._owners.count)
            )
            for number in numbers:
                by_number.setdefault(number, []).append(source)
        positions: dict[LiveSource, dict[int, int]] = {one: {} for one in sources}
        for number, some in by_number.items():
            for at in range(0, len(some), SOURCES_PER_CALL_MAX):
                part = some[at : at + SOURCES_PER_CALL_MAX]
                try:
                    found = await self._owners.ask(
                        number, [(one.source, one.epoch) for one in part]
                    )
                except GoQueueError as error:
                    _log.info("the owner of journeys %d cannot be asked yet: %s", number, error)
                    found = [FENCED] * len(part)
                for source, position in zip(part, found, strict=True):
                    if position == FENCED:
                        positions.pop(source, None)
                    elif source in positions:
                        positions[source][number] = position
        return positions

    # Answers

    async def _fill(self, source: LiveSource, positions: Mapping[int, int]) -> bool:
        """Send what is missing; return whether the source is complete."""
        if not source.is_collecting:
            return source.is_closed  # It fell behind while the owners were asked.
        hold, until = source.hold_count, source.start
        firsts = {
            number: 0 if position == UNKNOWN else min(position, until)
            for number, position in positions.items()
        }
        source.sent = dict(firsts)
        for number, position in positions.items():
            if position > until and isinstance(source, RemovalSource):
                source.sent[number] = position  # A former leader has removed more.
            elif position > until:
                self._outlets.add(number, self._reset(source, position))
        first = min(firsts.values())
        if first < until:
            try:
                for end, found in self._steps(source, first):
                    self._send(source, firsts, end, found)
                    await self._rest()
                    if source.is_closed or source.hold_count != hold:
                        return source.is_closed
            except (OSError, GoQueueError) as error:
                _log.error("journeys of %s cannot be derived yet: %s", source.name, error)
                return False
        for number, position in positions.items():
            # The journal has to know that there was nothing else.
            if source.sent[number] < until or position == UNKNOWN:
                self._outlets.add(number, source.piece(number, until, {}))
        if source.is_closed or source.hold_count != hold:
            return source.is_closed  # It fell behind because too much waits.
        source.is_held = False
        self._since.pop(source, None)
        self._ready(source)
        return True

    def _steps(self, source: LiveSource, first: int) -> Steps:
        partition, until, node = source.partition, source.start, self._node_id
        if isinstance(source, TopicSource):
            now_ms = self._clock.wall_ms()
            return derive_records(partition, first=first, until=until, now_ms=now_ms, node=node)
        if isinstance(source, RemovalSource):
            now_ms = self._clock.wall_ms()
            return derive_removal(partition, first=first, until=until, now_ms=now_ms, node=node)
        if partition.name.topic == DELIVERY_TOPIC:
            names = self._names()
            return derive_deliveries(partition, first=first, until=until, node=node, names=names)
        if partition.name.topic == OFFSETS_TOPIC:
            names = self._names()
            return derive_commits(partition, first=first, until=until, node=node, names=names)
        return derive_schedules(partition, until=until, node=node)

    def _send(
        self,
        source: LiveSource,
        firsts: Mapping[int, int],
        end: int,
        found: list[Derived],
    ) -> None:
        """Send events to the partitions of the journal that miss them."""
        by_number: dict[int, dict[Place, list[Event]]] = {}
        for position, name, event in found:
            target = self._target(name)
            if target is not None and position >= firsts.get(target[0], end):
                number, place = target
                by_number.setdefault(number, {}).setdefault(place, []).append(event)
                self.recovered += 1
        for number, events in by_number.items():
            if end > source.sent[number]:
                self._outlets.add(number, source.piece(number, end, merged(events)))

    def _reset(self, source: LiveSource, position: int) -> Piece:
        """Return the piece that marks messages as lost which were in the log once."""
        first, now_ms = source.start, self._clock.wall_ms()
        span = Span(source.source, source.epoch, first, first, is_reset=True)
        events: dict[Place, list[Event]] = {}
        if isinstance(source, TopicSource):
            details = Details(Kind.RECOVERED, self._node_id, reason=LOST, is_recovered=True)
            events[source.place] = [Event(details, first, position, now_ms, now_ms)]
        return piece_of(span, events, reset_from=position)

    def _rest(self) -> Promise[None]:
        """Let others run; for longer while much waits to be written."""
        rested: Promise[None] = Promise()

        def check() -> None:
            if self._outlets.size > WAITING_BYTES_MAX:
                self._clock.call_later(PAUSE_MS, check)
            else:
                rested.resolve(None)

        self._clock.call_soon(check)
        return rested


def _raise(_: None, error: Exception | None) -> None:
    if error is not None:
        raise error
