"""Intents: what is about to be released, as records and as the agenda knows them."""

from __future__ import annotations

import pytest

from goqueue.delivery.schedules import Agenda, Intent, intent_record, no_intent_record
from goqueue.delivery.schedules.records import number_key
from goqueue.delivery.schedules.releases import read_intent, read_target
from goqueue.model.errors import CorruptBatch
from tests.simulation.disk import SimulatedDisk

TOPIC_ID = bytes(range(16))


def some_intent(*numbers: int, sequence: int = 0) -> Intent:
    return Intent(TOPIC_ID, 3, 70, 2, sequence, list(numbers))


def test_a_record_says_what_the_intent_said() -> None:
    intent = Intent(TOPIC_ID, 3, 70, 2, 5, [8, 9], ["", "topic_deleted"])
    record = intent_record(intent, 1)
    assert read_target(record.key) == (TOPIC_ID, 3)
    assert read_intent(record.value or b"") == intent
    assert [intent.reason(index) for index in range(2)] == ["", "topic_deleted"]
    assert some_intent(1).reason(0) == ""


def test_keys_of_messages_are_no_keys_of_intents() -> None:
    for key in (None, b"", number_key(7), number_key(7) + b"r", b"x" * 24):
        assert read_target(key) is None


@pytest.mark.parametrize("value", [b"", b"\x00\x90", b"\x01\xff", b"\x01"])
def test_what_cannot_be_decoded_is_reported(value: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_intent(value)


def test_the_agenda_knows_the_newest_intent_of_each_partition_over_a_checkpoint() -> None:
    disk = SimulatedDisk(1)
    agenda = Agenda(disk, "schedules/0", topic_id=TOPIC_ID)
    agenda.replay(intent_record(some_intent(1, 2), 1))
    agenda.replay(intent_record(some_intent(5, sequence=2), 1))
    newest = some_intent(5, sequence=2)
    assert agenda.intents == {(TOPIC_ID, 3): newest}
    checkpoint, _ = agenda.checkpoint(9, leader_epoch=4)
    assert checkpoint.leader_epoch == 4
    restored = Agenda(disk, "schedules/0", topic_id=TOPIC_ID)
    restored.restore(checkpoint)
    assert restored.intents == {(TOPIC_ID, 3): newest}
    restored.replay(no_intent_record((TOPIC_ID, 3), 1))
    assert restored.intents == {}
