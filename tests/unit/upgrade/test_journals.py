"""Records of internal topics that a later release has written are not taken for damaged ones.

Damaged records are reported and skipped. One of a later version must not be: what it says would be
lost here, and be undone for the others by what this node writes. `tests/simulation/
test_cluster_coordinators.py` has what nodes do about it: they hand the partition over.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from goqueue.delivery import journal
from goqueue.delivery.schedules import (
    Agenda,
    intent_record,
    leader_epoch_record,
    message_record,
    move_record,
    number_key,
    producer_key,
)
from goqueue.delivery.schedules.records import ScheduledMessage
from goqueue.delivery.schedules.releases import Intent
from goqueue.groups.records import decode_group, decode_member, decode_offset
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch, CorruptJourney, UnsupportedVersion
from goqueue.schemas.facts import IdsFact, read_record, state, to_record
from goqueue.tracing import encoding
from goqueue.tracing.events import Cursor, Details, Event, Kind, Place, Source, Span
from goqueue.transactions.records import decode_query, decode_standing
from tests.simulation.disk import SimulatedDisk

TOPIC_ID = b"t" * 16
PLACE = Place("orders", TOPIC_ID, 0)
MESSAGE = ScheduledMessage(9, TOPIC_ID, "orders", 0, None, b"v")
INTENT = Intent(TOPIC_ID, 0, 7, 0, 0, [0])
EVENT = Event(Details(Kind.RECEIVED, 1), 0, 1, 5, 5)
KEY, VALUE = encoding.encode_events(PLACE, Span(Source(TOPIC_ID, 0), 0, 0, 1), [EVENT])
_, CURSORS = encoding.encode_cursors([Cursor(Source(TOPIC_ID, 0), 0, 4)], is_snapshot=True)


def later(value: bytes | None, at: int = 0) -> bytes:
    """Return a value as the next version has it: with a byte more."""
    assert value is not None
    return value[:at] + bytes((value[at] + 1,)) + value[at + 1 :] + b"\x00"


def scheduled(record: Record) -> None:
    agenda = Agenda(SimulatedDisk(), "schedules/0", topic_id=TOPIC_ID)
    agenda.timetable.restore([], serial_next=1)
    agenda.replay(record._replace(offset=0))


def of_schedules(record: Record) -> Callable[[], None]:
    scheduled(record)  # It can be read as it is.
    return lambda: scheduled(record._replace(value=later(record.value)))


def of_schemas() -> object:
    record = to_record(state(IdsFact(context=".", next_id=12)), now_ms=9)
    assert record.key is not None
    assert read_record(record.key, record.value) is not None
    return read_record(record.key, later(record.value))


READ: dict[str, Callable[[], object]] = {
    "a committed offset": lambda: decode_offset(b"\x00\x04later"),
    "a group": lambda: decode_group(b"\x02later"),
    "a member": lambda: decode_member(b"\x02later"),
    "a transaction": lambda: decode_standing(b"\x09later"),
    "a query": lambda: decode_query(b"\x09later"),
    "deliveries": lambda: journal.decode_events(b"\x09later"),
    "a key of deliveries": lambda: journal.decode_key(b"\x09later"),
    "a scheduled message": of_schedules(message_record(0, MESSAGE, 0)),
    "a due time": of_schedules(move_record(0, 9, 0)),
    "an intent": of_schedules(intent_record(INTENT, 0)),
    "a leader epoch": of_schedules(leader_epoch_record((TOPIC_ID, 0), 3, 0)),
    "a producer": lambda: scheduled(Record(producer_key((TOPIC_ID, 0, 7)), b"\x02later")),
    "a new kind of schedules": lambda: scheduled(Record(b"later", b"\x01later")),
    "a schema": of_schemas,
    "a new kind of schemas": lambda: read_record(
        b"later/a", b"\x01" + msgspec.msgpack.encode({"type": "later"})
    ),
    "events of journeys": lambda: encoding.decode_events(PLACE, later(VALUE, 1)),
    "a span of journeys": lambda: encoding.decode_span(PLACE, later(VALUE, 1)),
    "cursors of journeys": lambda: encoding.decode_cursors(later(CURSORS, 1)),
    "a key of journeys": lambda: encoding.check_known(later(KEY)),
    "a new kind of journeys": lambda: encoding.check_known(KEY[:1] + b"\x03"),
}


@pytest.mark.parametrize("kind", READ)
def test_a_record_of_a_later_release_is_refused_with_what_to_do(kind: str) -> None:
    with pytest.raises(UnsupportedVersion, match="upgrade this node"):
        READ[kind]()


def test_what_this_release_writes_is_known() -> None:
    encoding.check_known(KEY)
    encoding.check_known(encoding.encode_cursors([], is_snapshot=True)[0])
    assert encoding.decode_events(PLACE, VALUE)[1] == [EVENT]


def test_damage_is_still_damage() -> None:
    with pytest.raises(CorruptBatch):
        scheduled(Record(number_key(0), b"\x00older than any"))
    with pytest.raises(CorruptBatch):
        scheduled(Record(number_key(0), b""))
    with pytest.raises(CorruptJourney):
        encoding.decode_cursors(b"K\x02")
