"""Journeys: of one message, lists, statistics, and events as they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from goqueue.broker.gate.areas import journeys as gate
from goqueue.broker.gate.areas.journeys import Outcome, Selection
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.calls import Stream, encode
from goqueue.wire.carrier.problems import InvalidField, problem_of
from goqueue.wire.http.bodies import journeys as bodies
from goqueue.wire.http.events import HEARTBEAT_MS, MESSAGES_PER_WRITE_MAX, RECONNECT_MS
from goqueue.wire.http.messages import message_id
from goqueue.wire.http.moments import time_ms

if TYPE_CHECKING:
    from goqueue.model.session import Session
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def get(front: FrontEnd, call: Call, query: bodies.GetJourney) -> bodies.Journey:
    text = call.text("message_id")
    if ":" not in text:
        if query.topic is None:
            raise InvalidField("A schedule id needs the topic of its message.", field="topic")
        scheduled = await front.gate.journeys.get_scheduled(
            call.session, topic=query.topic, schedule_id=text, cancellation=call.cancellation
        )
        return _journey(scheduled)
    topic, partition, offset = _position(text)
    return _journey(await _get(front, call, topic, partition, offset))


async def list_all(front: FrontEnd, call: Call, query: bodies.ListJourneys) -> bodies.Journeys:
    if query.offset is not None:
        return await _list_one(front, call, query, query.offset)
    selection = _selection(front, query)._replace(
        outcome=None if query.outcome is None else Outcome(query.outcome),
        key=None if query.key is None else query.key.encode(),
        trace_id=query.trace_id,
    )
    page = await front.gate.journeys.list(
        call.session,
        selection=selection,
        limit=query.limit,
        cursor=query.cursor,
        cancellation=call.cancellation,
    )
    return bodies.Journeys(
        journeys=[
            bodies.JourneySummary(
                message=_message(one.message),
                time=one.time_ms,
                kind=one.kind,
                outcomes=[_standing(standing) for standing in one.standings],
            )
            for one in page.journeys
        ],
        cursor=page.cursor,
        read_bytes=page.read_bytes,
        skipped_bytes=page.skipped_bytes,
    )


async def stats(
    front: FrontEnd, call: Call, query: bodies.JourneyStatistics
) -> bodies.JourneyStats:
    found = await front.gate.journeys.stats(
        call.session, selection=_selection(front, query), cancellation=call.cancellation
    )
    counts = [
        bodies.JourneyCount(kind=one.kind, group=one.group, messages=one.messages, bytes=one.size)
        for one in found.counts
    ]
    return bodies.JourneyStats(counts=counts, complete=found.is_complete)


async def events(front: FrontEnd, call: Call, query: bodies.ReadEvents) -> bodies.JourneyEvents:
    page = await front.gate.journeys.events(
        call.session,
        selection=_selection_of_events(front, query),
        limit=query.limit,
        cursor=query.cursor,
        wait_ms=query.wait_ms,
        cancellation=call.cancellation,
    )
    return bodies.JourneyEvents(
        events=[_event(one) for one in page.events], cursor=page.cursor, end=page.is_end
    )


async def follow(front: FrontEnd, call: Call, query: bodies.FollowEvents) -> EventStream:
    # Without a cursor it begins at the end, which the first call determines.
    selection = _selection_of_events(front, query)
    cursor = call.last_event_id or query.cursor
    first = await front.gate.journeys.events(
        call.session,
        selection=selection,
        limit=1 if selection.from_ms is None and not cursor else MESSAGES_PER_WRITE_MAX,
        cursor=cursor,
        cancellation=Cancellation(),
    )
    return EventStream(front, call.session, selection, first)


class EventStream(Stream):
    """The stream of one client: `next` resolves with the bytes to send."""

    def __init__(
        self,
        front: FrontEnd,
        session: Session,
        selection: Selection,
        first: gate.JourneyEvents,
    ) -> None:
        self.is_over = False
        self._front = front
        self._session = session
        self._selection = selection
        self._cursor = first.cursor
        self._first = self._shown(first)
        self._cancellation = Cancellation()

    def opening(self) -> bytes:
        """The bytes sent at once, so that the client sees that it is connected and from where."""
        head = b"retry: %d\nid: %s\n\n" % (RECONNECT_MS, self._cursor.encode())
        return head + self._first

    def next(self) -> Promise[bytes]:
        """The next bytes to send: events, or a comment that keeps the connection alive."""
        promise: Promise[bytes] = Promise()

        def arrived(page: gate.JourneyEvents | None, error: Exception | None) -> None:
            if isinstance(error, GoQueueError):
                self.is_over = True
                promise.resolve(b"event: error\ndata: %s\n\n" % encode(problem_of(error)))
            elif page is None:
                promise.settle(None, error)
            else:
                self._cursor = page.cursor
                promise.resolve(self._shown(page) or b": waiting\n\n")

        self._front.gate.journeys.events(
            self._session,
            selection=self._selection,
            limit=MESSAGES_PER_WRITE_MAX,
            cursor=self._cursor,
            wait_ms=HEARTBEAT_MS,
            cancellation=self._cancellation,
        ).then(arrived)
        return promise

    def close(self) -> None:
        """End the stream, because the client has disconnected."""
        self.is_over = True
        self._cancellation.cancel()

    def _shown(self, page: gate.JourneyEvents) -> bytes:
        """Only the last event of a page has an id: a client that reconnects gets pages whole."""
        shown = [b"data: %s\n" % encode(_event(one)) for one in page.events]
        if not shown:
            return b""
        return b"\n".join(shown) + b"id: %s\n\n" % page.cursor.encode()


async def _get(
    front: FrontEnd, call: Call, topic: str, partition: int, offset: int
) -> gate.JourneyView:
    return await front.gate.journeys.get(
        call.session,
        topic=topic,
        partition=partition,
        offset=offset,
        cancellation=call.cancellation,
    )


async def _list_one(
    front: FrontEnd, call: Call, query: bodies.ListJourneys, offset: int
) -> bodies.Journeys:
    """List the journey of one message, if it fits."""
    if query.topic is None or query.partition is None:
        raise InvalidField("An offset needs a topic and a partition.", field="offset")
    if query.key is not None or query.trace_id is not None:
        raise InvalidField("Give either an offset, or a key or trace id.", field="offset")
    view = await _get(front, call, query.topic, query.partition, offset)
    standings = [
        one
        for one in view.standings
        if (query.group is None or one.group == query.group)
        and (query.outcome is None or one.outcome == query.outcome)
    ]
    first = view.entries[0] if view.entries else None
    summary = bodies.JourneySummary(
        message=_message(view.message),
        time=0 if first is None else first.time_ms,
        kind="" if first is None else first.kind,
        outcomes=[_standing(one) for one in standings],
    )
    is_wanted = bool(standings) or (query.group is None and query.outcome is None)
    found = [summary] if is_wanted else []
    return bodies.Journeys(journeys=found, cursor="", read_bytes=0, skipped_bytes=0)


def _position(text: str) -> tuple[str, int, int]:
    """Read a message id: topic:partition:offset."""
    topic, *numbers = text.split(":")
    if len(numbers) != 2 or not all(_is_number(one) for one in numbers) or not topic:
        raise InvalidField(
            f"{text[:100]!r} is not a message id; write topic:partition:offset.",
            field="message_id",
        )
    return topic, int(numbers[0]), int(numbers[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _selection(front: FrontEnd, query: bodies.SelectEvents) -> Selection:
    now_ms = front.now_ms()
    if query.partition is not None and query.topic is None:
        raise InvalidField("A partition needs a topic.", field="partition")
    return Selection(
        topic=query.topic or "",
        partition=query.partition,
        group=query.group or "",
        from_ms=_moment(query.from_, now_ms, "from"),
        until_ms=_moment(query.until, now_ms, "until"),
    )


def _selection_of_events(
    front: FrontEnd, query: bodies.ReadEvents | bodies.FollowEvents
) -> Selection:
    outcome = None if query.outcome is None else Outcome(query.outcome)
    return _selection(front, query)._replace(outcome=outcome)


def _moment(text: str | None, now_ms: int, field: str) -> int | None:
    if text is None or text == "latest":
        return None if text is None else now_ms
    return 0 if text == "earliest" else time_ms(text, now_ms=now_ms, field=field)


# Bodies


def _message(one: gate.JourneyMessage) -> bodies.JourneyMessage:
    if one.schedule_id:
        return bodies.JourneyMessage(topic=one.topic, schedule_id=one.schedule_id)
    return bodies.JourneyMessage(
        topic=one.topic,
        id=message_id(one.topic, one.partition, one.offset),
        partition=one.partition,
        offset=one.offset,
        schedule_id=UNSET,
    )


def _journey(view: gate.JourneyView) -> bodies.Journey:
    return bodies.Journey(
        message=_message(view.message),
        messages=[_message(one) for one in view.messages],
        entries=[_entry(one) for one in view.entries],
        outcomes=[_standing(one) for one in view.standings],
        complete=not view.is_incomplete,
    )


def _entry(one: gate.JourneyEntry) -> bodies.JourneyEntry:
    return bodies.JourneyEntry(
        kind=one.kind,
        message=_message(one.message),
        time=one.time_ms,
        after_ms=one.after_ms,
        node=one.node,
        group=one.group,
        consumer=one.consumer,
        attempt=one.attempt,
        principal=one.principal,
        client_id=one.client_id,
        listener=one.listener,
        reason=one.reason,
        replicas=one.replicas,
        due=one.due_ms,
        recovered=one.is_recovered,
    )


def _standing(one: gate.JourneyStanding) -> bodies.JourneyStanding:
    return bodies.JourneyStanding(
        outcome=one.outcome,
        message=_message(one.message),
        time=one.time_ms,
        group=one.group,
        attempts=one.attempts,
        consumer=one.consumer,
        reason=one.reason,
    )


def _event(one: gate.JourneyEvent) -> bodies.JourneyEvent:
    return bodies.JourneyEvent(
        kind=one.kind,
        topic=one.topic,
        partition=one.partition,
        offset=one.first,
        end_offset=one.end,
        time=one.time_ms,
        last_time=one.last_ms,
        node=one.node,
        group=one.group,
        consumer=one.consumer,
        attempt=one.attempt,
        principal=one.principal,
        client_id=one.client_id,
        listener=one.listener,
        reason=one.reason,
        replicas=one.replicas,
        bytes=one.size,
        due=one.due_ms,
        recovered=one.is_recovered,
    )
