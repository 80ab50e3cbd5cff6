"""Origins: which batches of a producer have been scheduled."""

from __future__ import annotations

from goqueue.delivery.schedules.origins import BATCHES_REMEMBERED, PRODUCERS_MAX, Origins
from goqueue.delivery.schedules.payload import Origin, ScheduledMessage

TOPIC = b"t" * 16


def _note(origins: Origins, number: int, *, producer: int = 1, epoch: int = 0, base: int) -> None:
    origin = Origin(producer, epoch, base)
    message = ScheduledMessage(1, TOPIC, "orders", 0, None, None, origin=origin)
    origins.note(message, number)


def test_a_batch_is_known_by_producer_epoch_sequence_and_partition() -> None:
    origins = Origins()
    _note(origins, 10, base=0)
    _note(origins, 11, base=0)
    assert origins.find(TOPIC, 0, Origin(1, 0, 0)) == 11
    for other in (Origin(2, 0, 0), Origin(1, 1, 0), Origin(1, 0, 2)):
        assert origins.find(TOPIC, 0, other) is None
    assert origins.find(TOPIC, 1, Origin(1, 0, 0)) is None
    assert origins.find(b"u" * 16, 0, Origin(1, 0, 0)) is None


def test_as_many_batches_are_remembered_as_a_producer_may_repeat() -> None:
    origins = Origins()
    for base in range(BATCHES_REMEMBERED + 2):
        _note(origins, base, base=base)
    again = Origins(origins.state())
    for one in (origins, again):
        known = [one.find(TOPIC, 0, Origin(1, 0, base)) for base in range(BATCHES_REMEMBERED + 2)]
        assert known == [None, None, *range(2, BATCHES_REMEMBERED + 2)]


def test_a_new_epoch_forgets_the_old_one() -> None:
    origins = Origins()
    _note(origins, 1, base=5)
    _note(origins, 2, base=0, epoch=1)
    assert origins.find(TOPIC, 0, Origin(1, 0, 5)) is None
    assert origins.find(TOPIC, 0, Origin(1, 1, 0)) == 2


def test_the_longest_silent_producer_is_forgotten_first() -> None:
    origins = Origins()
    for producer in range(PRODUCERS_MAX):
        _note(origins, producer, producer=producer, base=0)
    _note(origins, 1, producer=0, base=1)
    _note(origins, 2, producer=PRODUCERS_MAX, base=0)
    assert origins.find(TOPIC, 0, Origin(1, 0, 0)) is None
    assert origins.find(TOPIC, 0, Origin(0, 0, 0)) == 0
    assert len(origins.state()) == PRODUCERS_MAX
