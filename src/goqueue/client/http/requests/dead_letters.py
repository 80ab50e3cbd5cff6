"""Dead letters of a topic, and redrives: the jobs that move them back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from goqueue.client.errors import BrokerRefused
from goqueue.client.http.messages import Message, Plain, shown, stored_fields
from goqueue.client.http.moments import Position, position_text
from goqueue.client.http.request import Repeat, Request, body_with, path_of, reading
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.bodies.messages import Damage


class LetterSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was when it was dead-lettered, and in which group."""

    topic: str
    partition: int
    offset: int
    group: str


class DeadLetter(Message, frozen=True, kw_only=True):
    """A dead letter as stored in the dead-letter topic."""

    reason: str | None
    attempts: int | None
    died_at_ms: int | None
    source: LetterSource | None


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, and the position of the next page."""

    letters: tuple[DeadLetter, ...]
    cursor: str
    total: int  # of the topic, whatever the filter
    damaged: tuple[Damage, ...] = ()
    matching: int | None = None  # of a filter; over HTTP, and on its first page


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters to select; all given conditions must hold."""

    reason: str | None = None
    group: str | None = None
    key: Plain | None = None
    from_: Position | None = None  # the time of dead-lettering
    until: Position | None = None
    header: tuple[str, Plain | None] | None = None  # without a value, any matches; redrives only


class RedriveEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a job's history."""

    time: int
    what: str


class Redrive(msgspec.Struct, frozen=True, kw_only=True):
    """A job: its request, its progress, and its history."""

    id: str
    topic: str
    dead_letter_topic: str
    state: str
    moved: int
    passed_over: int
    failed: int
    remaining: int
    keep_copy: bool
    rate_per_s: int | None
    created_at: int
    ended_at: int | None
    problem: str
    history: tuple[RedriveEvent, ...]

    @property
    def is_ended(self) -> bool:
        return self.state in ("done", "cancelled", "failed")


class RedrivePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive would move back, with the first letters."""

    matching: int
    passed_over: int
    is_complete: bool
    letters: tuple[DeadLetter, ...]


class _Letter(bodies.Message, kw_only=True):
    reason: str | None
    attempts: int | None
    died_at: int | None
    source: LetterSource | None


class _Letters(msgspec.Struct, kw_only=True):
    messages: list[_Letter]
    cursor: str
    total: int
    damaged: list[Damage] = []
    matching: int | None = None


class _Preview(msgspec.Struct, kw_only=True):
    matching: int
    passed_over: int
    is_complete: bool
    messages: list[_Letter]


class _Started(msgspec.Struct, kw_only=True):
    redrive: Redrive | None = None
    preview: _Preview | None = None


class _Redrives(msgspec.Struct, kw_only=True):
    redrives: list[Redrive]


_read_letters = reading(_Letters)
_read_started = reading(_Started)
_read_redrive = reading(Redrive)
_read_redrives = reading(_Redrives)

NO_FILTER = LetterFilter()


@dataclass(frozen=True, slots=True)
class DeadLetterRequests:
    """Requests about the dead letters of one topic, in its own dead-letter topic or another."""

    topic: str
    dead_letter_topic: str | None = None

    def list_page(
        self, filter: LetterFilter = NO_FILTER, *, limit: int = 100, cursor: str = ""
    ) -> Request[LetterPage]:
        """Return dead letters that were not redriven, with reason and time."""
        conditions = {name: str(one) for name, one in _conditions(filter).items()}
        query = {"limit": str(limit), **conditions}
        if cursor:
            query["cursor"] = cursor
        if self.dead_letter_topic is not None:
            query["dead_letter_topic"] = self.dead_letter_topic
        return Request("GET", path_of("deadletters", self.topic), _page, query)

    def preview(
        self,
        filter: LetterFilter = NO_FILTER,
        *,
        letters: Iterable[tuple[int, int]] | None = None,
        max_messages: int | None = None,
    ) -> Request[RedrivePreview]:
        """Return what a redrive with these conditions would move; nothing is changed."""
        body = self._order(filter, letters, max_messages=max_messages, dry_run=True)
        return Request("POST", self._path(), _preview, body=body)

    def redrive(
        self,
        filter: LetterFilter = NO_FILTER,
        *,
        letters: Iterable[tuple[int, int]] | None = None,
        max_messages: int | None = None,
        rate_per_s: int | None = None,
        keep_copy: bool = False,
        target_topic: str | None = None,
    ) -> Request[Redrive]:
        """Start a job of the broker that moves dead letters back to where they came from.

        `letters` selects single ones by partition and offset in the dead-letter topic.
        """
        body = self._order(
            filter,
            letters,
            max_messages=max_messages,
            rate_per_s=rate_per_s,
            keep_copy=keep_copy,
            target_topic=target_topic,
        )
        return Request("POST", self._path(), _started, body=body, repeat=Repeat.AMBIGUOUS)

    def redrives(self) -> Request[list[Redrive]]:
        """Return the jobs of this topic, newest first."""
        return Request("GET", self._path(), lambda data: _read_redrives(data).redrives)

    def show_redrive(self, redrive_id: str) -> Request[Redrive]:
        """Return the progress of a job."""
        return Request("GET", self._path(redrive_id), _read_redrive)

    def pause(self, redrive_id: str) -> Request[Redrive]:
        """Pause a job."""
        return Request("POST", self._path(redrive_id, "pause"), _read_redrive, body=b"{}")

    def resume(self, redrive_id: str) -> Request[Redrive]:
        """Resume a job."""
        return Request("POST", self._path(redrive_id, "resume"), _read_redrive, body=b"{}")

    def cancel(self, redrive_id: str) -> Request[Redrive]:
        """Cancel a job; what it has not moved stays in the dead-letter topic."""
        return Request(
            "POST",
            self._path(redrive_id, "cancel"),
            _read_redrive,
            body=b"{}",
            repeat=Repeat.AMBIGUOUS,
        )

    def _path(self, *names: str) -> str:
        return path_of("deadletters", self.topic, "redrives", *names)

    def _order(
        self, filter: LetterFilter, letters: Iterable[tuple[int, int]] | None, **fields: object
    ) -> bytes:
        conditions: dict[str, object] = {**_conditions(filter)}
        if filter.header is not None:
            name, value = filter.header
            text, encoding = shown(value, "header")
            conditions["header"] = {"name": name, "value": text, "encoding": encoding}
        selected = None
        if letters is not None:
            selected = [{"partition": number, "offset": offset} for number, offset in letters]
        return body_with(
            filter=conditions or None,
            messages=selected,
            dead_letter_topic=self.dead_letter_topic,
            **fields,
        )


def _conditions(filter: LetterFilter) -> dict[str, str]:
    """The given conditions, except those on headers."""
    given = {
        "reason": filter.reason,
        "group": filter.group,
        "from": None if filter.from_ is None else position_text(filter.from_),
        "until": None if filter.until is None else position_text(filter.until),
    }
    if filter.key is not None:
        given["key"], given["key_encoding"] = shown(filter.key, "key")
    return {name: one for name, one in given.items() if one is not None}


def _page(data: bytes) -> LetterPage:
    answer = _read_letters(data)
    return LetterPage(
        letters=tuple(map(_letter, answer.messages)),
        cursor=answer.cursor,
        total=answer.total,
        damaged=tuple(answer.damaged),
        matching=answer.matching,
    )


def _started(data: bytes) -> Redrive:
    job = _read_started(data).redrive
    if job is None:
        raise BrokerRefused("The response does not contain the redrive.")
    return job


def _preview(data: bytes) -> RedrivePreview:
    preview = _read_started(data).preview
    if preview is None:
        raise BrokerRefused("The response does not contain the preview.")
    return RedrivePreview(
        matching=preview.matching,
        passed_over=preview.passed_over,
        is_complete=preview.is_complete,
        letters=tuple(map(_letter, preview.messages)),
    )


def _letter(answer: _Letter) -> DeadLetter:
    return DeadLetter(
        **stored_fields(answer),
        reason=answer.reason,
        attempts=answer.attempts,
        died_at_ms=answer.died_at,
        source=answer.source,
    )
