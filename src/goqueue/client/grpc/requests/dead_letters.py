"""Dead letters of a topic, and redrives: the jobs that move them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from goqueue.client.grpc.messages import (
    cursor_of,
    cursor_text,
    damage_of,
    message_of,
    plain_bytes,
    time_of,
)
from goqueue.client.grpc.request import call
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.requests import dead_letters as http
from goqueue.client.http.requests.dead_letters import (
    NO_FILTER,
    DeadLetter,
    LetterFilter,
    LetterPage,
    LetterSource,
    Redrive,
    RedrivePreview,
)
from goqueue.wire.grpc.messages import dead_letter_service_pb2 as wire
from goqueue.wire.grpc.messages import messages_pb2 as shared

_SERVICE = "DeadLetterService"


class DeadLetterRequests(http.DeadLetterRequests):
    def list_page(
        self, filter: LetterFilter = NO_FILTER, *, limit: int = 100, cursor: str = ""
    ) -> Request[LetterPage]:
        request = wire.ListDeadLettersRequest(
            topic=self.topic,
            dead_letter_topic=self.dead_letter_topic or "",
            filter=_filter(filter),
            page_size=limit,
            cursor=cursor_of(cursor),
        )
        return call(f"{_SERVICE}/ListDeadLetters", request, wire.ListDeadLettersResponse, _page)

    def preview(
        self,
        filter: LetterFilter = NO_FILTER,
        *,
        letters: Iterable[tuple[int, int]] | None = None,
        max_messages: int | None = None,
    ) -> Request[RedrivePreview]:
        request = wire.PreviewRedriveRequest(
            topic=self.topic,
            dead_letter_topic=self.dead_letter_topic or "",
            order=_redrive_order(filter, letters, messages_max=max_messages),
        )
        return call(f"{_SERVICE}/PreviewRedrive", request, wire.PreviewRedriveResponse, _preview)

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
        order = _redrive_order(
            filter,
            letters,
            messages_max=max_messages,
            rate_per_s=rate_per_s,
            keep_copy=keep_copy,
            target_topic=target_topic or "",
        )
        request = wire.StartRedriveRequest(
            topic=self.topic, dead_letter_topic=self.dead_letter_topic or "", order=order
        )
        return call(
            f"{_SERVICE}/StartRedrive",
            request,
            wire.StartRedriveResponse,
            lambda response: _redrive(response.redrive),
            repeat=Repeat.AMBIGUOUS,
        )

    def redrives(self) -> Request[list[Redrive]]:
        return call(
            f"{_SERVICE}/ListRedrives",
            wire.ListRedrivesRequest(topic=self.topic),
            wire.ListRedrivesResponse,
            lambda response: [_redrive(one) for one in response.redrives],
        )

    def show_redrive(self, redrive_id: str) -> Request[Redrive]:
        return self._job("Get", redrive_id, wire.GetRedriveRequest, wire.GetRedriveResponse)

    def pause(self, redrive_id: str) -> Request[Redrive]:
        return self._job("Pause", redrive_id, wire.PauseRedriveRequest, wire.PauseRedriveResponse)

    def resume(self, redrive_id: str) -> Request[Redrive]:
        return self._job(
            "Resume", redrive_id, wire.ResumeRedriveRequest, wire.ResumeRedriveResponse
        )

    def cancel(self, redrive_id: str) -> Request[Redrive]:
        return self._job(
            "Cancel",
            redrive_id,
            wire.CancelRedriveRequest,
            wire.CancelRedriveResponse,
            repeat=Repeat.AMBIGUOUS,
        )

    def _job(
        self,
        verb: str,
        redrive_id: str,
        request: type[Any],
        answer: type[Any],
        *,
        repeat: Repeat = Repeat.IDEMPOTENT,
    ) -> Request[Redrive]:
        return call(
            f"{_SERVICE}/{verb}Redrive",
            request(topic=self.topic, id=redrive_id),
            answer,
            lambda response: _redrive(response.redrive),
            repeat=repeat,
        )


def _filter(filter: LetterFilter) -> wire.LetterFilter:
    header = None
    if filter.header is not None:
        name, value = filter.header
        header = shared.Header(name=name, value=plain_bytes(value, "header"))
    return wire.LetterFilter(
        reason=filter.reason or "",
        group=filter.group or "",
        key=plain_bytes(filter.key, "key"),
        from_ms=None if filter.from_ in (None, "earliest") else time_of(filter.from_ or 0),
        until_ms=None if filter.until in (None, "latest") else time_of(filter.until or 0),
        header=header,
    )


def _redrive_order(
    filter: LetterFilter, letters: Iterable[tuple[int, int]] | None, **fields: Any
) -> wire.RedriveOrder:
    selected = [
        shared.PartitionOffset(partition=number, offset=offset) for number, offset in letters or ()
    ]
    has_filter = letters is None or filter is not NO_FILTER
    return wire.RedriveOrder(
        filter=_filter(filter) if has_filter else None, letters=selected, **fields
    )


def _letter(one: wire.DeadLetter) -> DeadLetter:
    stored = message_of(one.message)
    source = None
    if one.source_topic:
        source = LetterSource(
            topic=one.source_topic,
            partition=one.source_partition,
            offset=one.source_offset,
            group=one.group,
        )
    return DeadLetter(
        id=stored.id,
        topic=stored.topic,
        partition=stored.partition,
        offset=stored.offset,
        timestamp_ms=stored.timestamp_ms,
        key=stored.key,
        value=stored.value,
        headers=stored.headers,
        reason=one.reason or None,
        attempts=one.attempts if one.HasField("attempts") else None,
        died_at_ms=one.died_at_ms if one.HasField("died_at_ms") else None,
        source=source,
    )


def _page(response: wire.ListDeadLettersResponse) -> LetterPage:
    return LetterPage(
        letters=tuple(map(_letter, response.letters)),
        cursor=cursor_text(response.cursor),
        total=response.total,
        damaged=tuple(map(damage_of, response.unreadable)),
    )


def _preview(response: wire.PreviewRedriveResponse) -> RedrivePreview:
    return RedrivePreview(
        matching=response.matching,
        passed_over=response.passed_over,
        is_complete=response.is_complete,
        letters=tuple(map(_letter, response.letters)),
    )


def _redrive(one: wire.Redrive) -> Redrive:
    """A job; its order and its history are in the HTTP API only."""
    return Redrive(
        id=one.id,
        topic=one.topic,
        dead_letter_topic=one.dead_letter_topic,
        state=one.state,
        moved=one.moved,
        passed_over=one.passed_over,
        failed=one.failed,
        remaining=one.remaining,
        keep_copy=False,
        rate_per_s=None,
        created_at=one.created_at_ms,
        ended_at=one.ended_at_ms if one.HasField("ended_at_ms") else None,
        problem=one.problem,
        history=(),
    )
