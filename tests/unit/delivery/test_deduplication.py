"""Ids are remembered for a time, and no longer."""

from __future__ import annotations

import random

import pytest

from goqueue.delivery.deduplication import Deduplication, IdRoom, Kept, Slot

A: Slot = ("a", None)
B: Slot = ("b", b"key")


def make(ids_max: int = 10) -> Deduplication:
    return Deduplication(IdRoom(ids_max), window_ms=1000)


def test_an_id_is_being_stored_then_known_then_forgotten() -> None:
    ids = make()
    assert ids.find(A, 0) is None
    assert not ids.is_storing(A)
    ids.begin(A)
    assert ids.find(A, 0) is None
    assert ids.is_storing(A)
    ids.stored(A, Kept("m", 7), 100)
    assert not ids.is_storing(A)
    assert ids.find(A, 1099) == Kept("m", 7)
    assert ids.find(A, 1100) is None
    assert len(ids) == 0


def test_an_id_that_was_not_stored_may_be_stored_again() -> None:
    ids = make()
    ids.begin(A)
    ids.failed(A)
    ids.begin(A)
    ids.stored(A, Kept("m", 7), 0)
    ids.failed(A)
    assert ids.find(A, 0) == Kept("m", 7), "what is stored is not taken back"


def test_whoever_stores_an_id_twice_has_made_a_mistake() -> None:
    ids = make()
    ids.begin(A)
    with pytest.raises(AssertionError):
        ids.begin(A)


def test_ids_of_different_keys_are_different() -> None:
    ids = make()
    ids.begin(B)
    ids.stored(B, Kept("m", None), 0)
    assert ids.find(("b", b"another"), 0) is None
    assert ids.find(("b", None), 0) is None


def test_what_is_read_back_counts_for_what_is_left_of_its_time() -> None:
    ids = make()
    ids.recall(
        [
            (A, Kept("first", 1), 900),
            (A, Kept("second", 2), 100),  # nobody would have stored it, had the first been known
            (B, Kept("ahead", 3), -50),  # by a clock that is ahead
            (("old", None), Kept("old", 0), 1000),
        ],
        5000,
    )
    assert len(ids) == 2
    assert ids.find(A, 5099) == Kept("first", 1)
    assert ids.find(A, 5100) is None
    assert ids.find(B, 5999) == Kept("ahead", 3)
    assert ids.find(B, 6000) is None


def test_it_is_full_until_the_oldest_are_over() -> None:
    ids = make(ids_max=2)
    for number, slot in enumerate((A, B)):
        ids.begin(slot)
        ids.stored(slot, Kept("m", number), number * 100)
    assert ids.is_full(999)
    assert not ids.is_full(1000)
    assert ids.find(B, 1000) is not None


def test_queues_share_the_room_and_give_it_back() -> None:
    room = IdRoom(3)
    one, other = Deduplication(room), Deduplication(room)
    one.begin(A)
    one.stored(A, Kept("m", 1), 0)
    one.begin(B)
    other.recall([(A, Kept("n", 1), 0)], 0)
    assert room.count == 3
    assert other.is_full(0)
    one.close()
    assert room.count == 1
    one.stored(B, Kept("late", 2), 0)
    assert room.count == 1
    assert not other.is_full(0)
    assert other.find(A, 0) == Kept("n", 1)


def test_everything_is_forgotten_in_the_end_whatever_came_in_which_order() -> None:
    ids, chance = make(ids_max=1 << 20), random.Random(3)
    found = [((str(one), None), Kept("m", one), chance.randrange(-10, 1100)) for one in range(500)]
    ids.recall(found, 0)
    now_ms = 0
    for number in range(500, 1000):
        slot = (str(number), None)
        now_ms += chance.randrange(5)
        ids.begin(slot)
        if chance.random() < 0.2:
            ids.failed(slot)
        else:
            ids.stored(slot, Kept("m", number), now_ms)
        assert ids.find(slot, now_ms) is not None or not ids.is_storing(slot)
    assert not ids.is_full(now_ms + 1000)
    assert len(ids) == 0
