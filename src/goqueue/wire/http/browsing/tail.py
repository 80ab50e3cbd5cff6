"""The tail of a topic with conditions, and no faster than its reader wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.records import RecordFilter
from goqueue.wire.carrier.calls import encode
from goqueue.wire.http.browsing.bodies import Skipped, Tail
from goqueue.wire.http.browsing.cutting import Cutting
from goqueue.wire.http.browsing.matching import Pattern, satisfies
from goqueue.wire.http.events import EventStream
from goqueue.wire.http.handlers.reading import stream

if TYPE_CHECKING:
    from goqueue.broker.gate.views import RecordStream
    from goqueue.loop.clock import Clock
    from goqueue.model.batch import Record
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.bodies.messages import Message
    from goqueue.wire.http.front_end import FrontEnd


async def tail(front: FrontEnd, call: Call, query: Tail) -> EventStream:
    """Begin to follow a topic."""
    wanted = RecordFilter(
        _encoded(query.key),
        query.trace_id,
        query.header,
        _encoded(query.header_value),
        _encoded(query.text),
    )
    wanted.wanted()  # Raise if the conditions are not valid.
    pattern = None if query.regex is None else Pattern(query.regex)
    is_plain = query.sample_per_s is None and query.value_bytes is None
    if wanted.is_empty and pattern is None and is_plain:
        return await stream(front, call, query)

    def filtered(records: RecordStream, topic: str) -> EventStream:
        return FilteredStream(records, topic, query, wanted, pattern, front.gate.clock)

    return await stream(front, call, query, filtered)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class FilteredStream(EventStream):
    """A stream of the messages that satisfy conditions, of a sample, or with long values cut."""

    def __init__(
        self,
        records: RecordStream,
        topic: str,
        query: Tail,
        wanted: RecordFilter,
        pattern: Pattern | None,
        clock: Clock,
    ) -> None:
        super().__init__(records, topic, query.encoding)
        self._wanted = wanted
        self._trace = wanted.wanted()[1]
        self._pattern = pattern
        self._rate = query.sample_per_s
        self._cutting = (
            None if query.value_bytes is None else Cutting(topic, query.encoding, query.value_bytes)
        )
        self._clock = clock
        self._second = -1
        self._sent = 0  # in this second
        self._skipped = 0
        self._has_passed = False  # whether messages were left out that the client will not see

    def _shown(self, number: int, record: Record) -> Message | None:
        self._has_passed = True
        if not satisfies(record, self._wanted, self._trace):
            return None
        if self._pattern is not None and not self._pattern.is_in(record):
            return None
        if self._rate is not None and self._is_over(self._rate):
            self._skipped += 1
            return None
        self._has_passed = False
        if self._cutting is not None:
            return self._cutting.show(self._cutting.cut(number, record))
        return super()._shown(number, record)

    def _is_over(self, rate: int) -> bool:
        """Count a message; return whether there were enough in this second."""
        second = self._clock.now_ms() // 1000
        if second != self._second:
            self._second, self._sent = second, 0
        self._sent += 1
        return self._sent > rate

    def _left_out(self) -> list[bytes]:
        events = []
        if self._skipped:
            data = encode(Skipped(messages=self._skipped))
            events.append(b"id: %s\nevent: skipped\ndata: %s\n\n" % (self._id(), data))
        elif self._has_passed:
            # A client that reconnects continues after them.
            events.append(b"id: %s\n\n" % self._id())
        self._skipped, self._has_passed = 0, False
        return events
