"""Cursors of queries for journeys: texts that say where a query continues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from goqueue.model.errors import InvalidRequest

_NUMBER = r"\d{1,19}"
_JOURNAL = re.compile(rf"j{_NUMBER}:{_NUMBER}:{_NUMBER}(,{_NUMBER}:{_NUMBER}:{_NUMBER})*")
_SEARCH = re.compile(rf"s([0-9a-f]{{32}})/(({_NUMBER}:{_NUMBER})(,{_NUMBER}:{_NUMBER})*)?")


class JournalCursor(NamedTuple):
    """Partitions of the journal, offsets there, and how much of the record there is done."""

    places: Sequence[tuple[int, int, int]]

    def __str__(self) -> str:
        return "j" + ",".join(":".join(map(str, place)) for place in self.places)


class SearchCursor(NamedTuple):
    """A topic, and offsets of its partitions; without any, the beginning of the topic."""

    topic_id: str
    places: Sequence[tuple[int, int]]

    def __str__(self) -> str:
        return f"s{self.topic_id}/" + ",".join(f"{one}:{offset}" for one, offset in self.places)


def read_journal_cursor(text: str) -> JournalCursor | None:
    """Read a cursor; None for an empty text."""
    if text in ("", "j"):
        return JournalCursor([]) if text else None
    if not _JOURNAL.fullmatch(text):
        raise _refusal(text)
    places = [tuple(map(int, one.split(":"))) for one in text[1:].split(",")]
    return JournalCursor([(number, offset, done) for number, offset, done in places])


def read_search_cursor(text: str) -> SearchCursor | None:
    """Read a cursor; None for an empty text."""
    if not text:
        return None
    found = _SEARCH.fullmatch(text)
    if found is None:
        raise _refusal(text)
    pairs = [tuple(map(int, one.split(":"))) for one in (found[2] or "").split(",") if one]
    return SearchCursor(found[1], [(number, offset) for number, offset in pairs])


def _refusal(text: str) -> InvalidRequest:
    return InvalidRequest(f"{text[:60]!r} is not a cursor of this query.")
