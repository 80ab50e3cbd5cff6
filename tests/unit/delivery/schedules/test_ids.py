"""Schedule ids are short, safe in a URL, and not taken for one another."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from goqueue.delivery.schedules.releases import ID_CHARACTERS, NUMBER_MAX, ScheduleIds
from goqueue.model.errors import UnknownSchedule

IDS = ScheduleIds(b"t" * 16)
PLACES = some.tuples(some.integers(0, 65_535), some.integers(0, NUMBER_MAX))


@given(PLACES)
def test_an_id_leads_back_to_its_place(place: tuple[int, int]) -> None:
    text = IDS.write(*place)
    assert re.fullmatch(rf"[A-Za-z0-9_-]{{{ID_CHARACTERS}}}", text)
    assert IDS.read(text) == place


@given(PLACES, some.integers(0, ID_CHARACTERS - 1), some.sampled_from("AZaz09-_"))
def test_a_slip_in_an_id_is_noticed(place: tuple[int, int], at: int, letter: str) -> None:
    text = IDS.write(*place)
    slipped = text[:at] + letter + text[at + 1 :]
    if slipped != text:
        with pytest.raises(UnknownSchedule):
            IDS.read(slipped)


@given(PLACES)
def test_an_id_of_another_cluster_is_refused(place: tuple[int, int]) -> None:
    with pytest.raises(UnknownSchedule):
        ScheduleIds(b"u" * 16).read(IDS.write(*place))


@given(some.text(max_size=40))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(UnknownSchedule, match="No message is scheduled") as refusal:
        IDS.read(text)
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize("text", ["", "=", "A" * 16, "A" * 17, "AAAA", "é" * 16])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UnknownSchedule):
        IDS.read(text)


@given(some.lists(PLACES, max_size=20))
def test_many_ids_are_those_that_are_written_one_by_one(places: list[tuple[int, int]]) -> None:
    assert IDS.write_many(places).decode() == "".join(IDS.write(*place) for place in places)
    numbers = [number for _, number in places]
    assert IDS.write_all(7, numbers) == [IDS.write(7, number) for number in numbers]
