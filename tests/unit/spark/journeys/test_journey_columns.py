"""Events of journeys as Arrow columns: the same as decoded one by one, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from goqueue.client import RawBatch
from goqueue.model.batch import Record, encode_batch, read_header
from goqueue.model.errors import CorruptJourney
from goqueue.model.names import JOURNEYS_TOPIC, TopicPartition
from goqueue.spark.journeys.columns import journey_batches
from goqueue.spark.journeys.options import EventSelection
from goqueue.spark.planning import OffsetRange
from goqueue.spark.schema import arrow_schema, table_schema
from goqueue.tracing.encoding import encode_cursors, encode_events
from goqueue.tracing.events import Cursor, Details, Event, Kind, Link, Place, Source, Span

ALL = table_schema(has_headers=False, view="journeys")
EVERYTHING = EventSelection()
ORDERS = Place("~acme~orders", b"t" * 16, 3)
OTHER = Place("other", b"u" * 16, 0)
SPAN = Span(Source(b"s" * 16, 7), 5, 100, 200)
TIME_MS = 1_700_000_000_123
RECEIVED = Event(
    Details(Kind.RECEIVED, 2, "", "", "User:ada", "app", "kafka"),
    *(10, 20, TIME_MS, TIME_MS + 7, 4096),
)
LETTER = Event(
    Details(Kind.DEAD_LETTERED, 1, "~acme~workers", reason="bad", attempt=3, is_recovered=True),
    *(12, 13, TIME_MS + 5000, TIME_MS + 5000, 0, TIME_MS + 9000),
    Link("~acme~orders.dlq", 1, 77),
)
NUMBERS = st.integers(0, 1 << 40)
EVENTS = st.lists(
    st.builds(
        lambda details, first, count, time_ms, late, *rest: Event(
            details, first, first + count, time_ms, time_ms + late, *rest
        ),
        st.sampled_from([RECEIVED.details, LETTER.details, Details(Kind.ACKED, 0, "g", "c")]),
        NUMBERS,
        st.integers(1, 1 << 40),
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.just(0) | NUMBERS,
        st.none() | st.builds(Link, st.sampled_from(["", "a", "~acme~b"]), NUMBERS, NUMBERS),
    ),
    min_size=1,
    max_size=20,
)


def rows(
    pairs: Sequence[tuple[bytes, bytes]],
    schema: StructType = ALL,
    selection: EventSelection = EVERYTHING,
) -> list[dict[str, Any]]:
    data = encode_batch([Record(*pair, timestamp_ms=TIME_MS) for pair in pairs])
    batch = RawBatch(JOURNEYS_TOPIC, 4, read_header(data), memoryview(data))
    arrow = arrow_schema(schema, view="journeys")
    wanted = OffsetRange(TopicPartition(JOURNEYS_TOPIC, 4), 0, 1000)
    found = list(journey_batches([batch], wanted, arrow, selection))
    table = pa.Table.from_batches(found, schema=arrow if schema.fields else None)
    return list(table.to_pylist())


def columns(*names: str) -> StructType:
    return StructType([one for one in ALL.fields if one.name in names])


def records() -> list[tuple[bytes, bytes]]:
    return [
        encode_cursors([Cursor(SPAN.source, 1, 2)], is_snapshot=True),
        encode_events(ORDERS, SPAN, [RECEIVED, LETTER]),
        encode_events(OTHER, SPAN, [LETTER._replace(link=None)]),
    ]


def test_the_columns_are_those_that_spark_expects() -> None:
    assert arrow_schema(ALL, view="journeys").equals(to_arrow_schema(ALL, timezone="UTC"))


def test_a_row_is_an_event() -> None:
    received, letter, other = rows(records())
    time = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    assert received == {
        "tenant": "acme",
        "topic": "orders",
        "topicId": (b"t" * 16).hex(),
        "partition": 3,
        "firstOffset": 10,
        "endOffset": 20,
        "count": 10,
        "kind": "received",
        "time": time,
        "lastTime": time + timedelta(milliseconds=7),
        "node": 2,
        "principal": "User:ada",
        "clientId": "app",
        "listener": "kafka",
        "bytes": 4096,
        "isRecovered": False,
        "journalPartition": 4,
        "journalOffset": 1,
        **dict.fromkeys(
            ("group", "consumer", "reason", "attempt", "replicas", "dueTime", "linkTopic")
        ),
        **dict.fromkeys(("linkTenant", "linkPartition", "linkOffset")),
    }
    assert letter["dueTime"] == time + timedelta(seconds=9)
    names = ("kind", "group", "reason", "attempt", "isRecovered", "linkTopic", "linkOffset")
    assert letter["linkTenant"] == "acme"
    shown = [letter[name] for name in names]
    assert shown == ["dead_lettered", "workers", "bad", 3, True, "orders.dlq", 77]
    assert (other["tenant"], other["topic"], other["linkTopic"]) == (None, "other", None)
    assert (other["journalOffset"], other["partition"]) == (2, 0)


def test_some_columns_or_none() -> None:
    assert rows(records(), columns("firstOffset", "topic")) == [
        {"topic": "orders", "firstOffset": 10},
        {"topic": "orders", "firstOffset": 12},
        {"topic": "other", "firstOffset": 12},
    ]
    assert len(rows(records(), StructType([]))) == 3


@pytest.mark.parametrize(
    ("selection", "kinds"),
    [
        (EventSelection(topics=frozenset({"orders"})), ["received", "dead_lettered"]),
        (EventSelection(topics=frozenset({"~acme~orders"})), []),
        (EventSelection(groups=frozenset({"workers"})), ["dead_lettered", "dead_lettered"]),
        (EventSelection(kinds=frozenset({Kind.RECEIVED})), ["received"]),
        (EventSelection(from_ms=TIME_MS + 8), ["dead_lettered", "dead_lettered"]),
        (EventSelection(from_ms=TIME_MS + 7, until_ms=TIME_MS + 8), ["received"]),
        (EventSelection(until_ms=TIME_MS), []),
    ],
)
def test_a_selection_is_of_rows(selection: EventSelection, kinds: list[str]) -> None:
    assert [row["kind"] for row in rows(records(), columns("kind"), selection)] == kinds


@settings(max_examples=100)
@given(st.lists(EVENTS, min_size=1, max_size=4))
def test_columns_are_what_one_by_one_decoding_gives(some: list[list[Event]]) -> None:
    wanted = columns("firstOffset", "endOffset", "bytes", "attempt", "linkOffset", "journalOffset")
    found = rows([encode_events(ORDERS, SPAN, events) for events in some], wanted)
    assert found == [
        {
            "firstOffset": event.first,
            "endOffset": event.end,
            "bytes": event.size or None,
            "attempt": event.details.attempt or None,
            "linkOffset": None if event.link is None else event.link.offset,
            "journalOffset": offset,
        }
        for offset, events in enumerate(some)
        for event in events
    ]


@given(EVENTS, st.data())
def test_damage_is_an_error_or_other_rows(events: list[Event], data: st.DataObject) -> None:
    key, value = encode_events(ORDERS, SPAN, events)
    place = data.draw(st.integers(0, len(value) - 1))
    changed = bytearray(value)
    changed[place] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), value[:place]):
        try:
            rows([(key, damaged), (key, value)], columns("firstOffset", "linkTopic", "kind"))
        except CorruptJourney as error:
            assert "Partition 4 of the journal" in str(error)  # noqa: PT017


def test_a_record_that_ends_too_early_is_named() -> None:
    key, value = encode_events(ORDERS, SPAN, [RECEIVED, LETTER])
    with pytest.raises(CorruptJourney, match=r"Partition 4 of the journal, offset 1: .*ends"):
        rows([(key, value), (key, value[:-1])])
