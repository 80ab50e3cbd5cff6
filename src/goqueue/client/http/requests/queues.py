"""Queue groups: receive, settle and inspect the messages of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from goqueue.client.http.failures import error_of_problem
from goqueue.client.http.group_results import PeekedMessage, QueueStats
from goqueue.client.http.messages import ReceivedMessage, stored_fields
from goqueue.client.http.moments import Duration, Position, duration_ms, position_text
from goqueue.client.http.request import Request, body_with, path_of, reading
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies import messages as bodies

Receipt: TypeAlias = ReceivedMessage | str
Outcomes: TypeAlias = list[GoQueueError | None]


class _Received(bodies.Message, kw_only=True):
    receipt: str
    priority: str
    attempt: int
    leased_until: int


class _ReceivedMany(msgspec.Struct, kw_only=True):
    messages: list[_Received]


class _Result(msgspec.Struct, kw_only=True):
    problem: Problem | None = None


class _Settled(msgspec.Struct, kw_only=True):
    results: list[_Result]


class _Peeked(bodies.Message, kw_only=True):
    priority: str
    state: str
    attempts: int
    consumer: str | None
    leased_until: int | None
    due_at: int | None


class _PeekedMany(msgspec.Struct, kw_only=True):
    messages: list[_Peeked]


class _Place(msgspec.Struct, kw_only=True):
    partition: int
    offset: int


class _Moved(msgspec.Struct, kw_only=True):
    offsets: list[_Place]


_read_received = reading(_ReceivedMany)
_decode_settled = reading(_Settled)
_read_peeked = reading(_PeekedMany)
_read_moved = reading(_Moved)
_read_stats = reading(QueueStats)


@dataclass(frozen=True, slots=True)
class QueueRequests:
    """Requests of one consumer of a group for one topic."""

    topic: str
    group: str
    consumer: str | None = None

    # Receiving and settling

    def receive(
        self,
        max_messages: int = 10,
        *,
        wait: Duration = 0,
        visibility: Duration | None = None,
        bodies: bool = True,
    ) -> Request[list[ReceivedMessage]]:
        """Lease up to `max_messages`, waiting for the first; return none if none arrived.

        Each is leased to this consumer for `visibility` (by default the group's). A message that is
        neither acknowledged nor extended by then is delivered again. Without `bodies` they have no
        key, value and headers, for callers that read these by partition and offset.
        """
        wait_ms = duration_ms(wait)
        body = body_with(
            topic=self.topic,
            max_messages=max_messages,
            wait_ms=wait_ms,
            visibility_ms=None if visibility is None else duration_ms(visibility),
            consumer=self.consumer,
            bodies=None if bodies else False,
        )
        return Request("POST", self._path("receive"), self._received, body=body, wait_ms=wait_ms)

    def ack(self, message: Receipt) -> Request[None]:
        """Acknowledge this message. Raise `StaleReceipt` if this consumer no longer holds it."""
        return self._settle_one("ack", message)

    def nack(self, message: Receipt, *, delay: Duration | None = None) -> Request[None]:
        """Have this message delivered again, after `delay` or after the backoff of the group."""
        return self._settle_one("nack", message, delay_ms=_ms(delay))

    def reject(self, message: Receipt, *, reason: str = "rejected") -> Request[None]:
        """Dead-letter this message."""
        return self._settle_one("reject", message, reason=reason)

    def extend(self, message: Receipt, *, visibility: Duration | None = None) -> Request[None]:
        """Extend the lease to this duration from now; the receipt stays valid."""
        return self._settle_one("extend", message, visibility_ms=_ms(visibility))

    def ack_many(self, messages: Iterable[Receipt]) -> Request[Outcomes]:
        """Acknowledge these messages; return None or the error for each."""
        return self._settle("ack", messages)

    def nack_many(
        self, messages: Iterable[Receipt], *, delay: Duration | None = None
    ) -> Request[Outcomes]:
        """Have these messages delivered again; return None or the error for each."""
        return self._settle("nack", messages, delay_ms=_ms(delay))

    def reject_many(
        self, messages: Iterable[Receipt], *, reason: str = "rejected"
    ) -> Request[Outcomes]:
        """Dead-letter these messages; return None or the error for each."""
        return self._settle("reject", messages, reason=reason)

    def extend_many(
        self, messages: Iterable[Receipt], *, visibility: Duration | None = None
    ) -> Request[Outcomes]:
        """Extend the leases of these messages; return None or the error for each."""
        return self._settle("extend", messages, visibility_ms=_ms(visibility))

    # Inspecting and moving

    def peek(
        self, *, partition: int | None = None, offset: int | None = None, limit: int = 10
    ) -> Request[list[PeekedMessage]]:
        """Return messages with their state in this group; nothing is changed.

        Without an offset, those not settled yet, of one partition or of all.
        """
        numbers = {"partition": partition, "offset": offset, "limit": limit}
        given = {name: str(one) for name, one in numbers.items() if one is not None}
        query = {"topic": self.topic, **given}
        return Request("GET", self._path("peek"), _peeked, query)

    def stats(self) -> Request[QueueStats]:
        """Return how many messages are ready, in flight and waiting for a retry."""
        return Request("GET", self._path("stats"), _read_stats, {"topic": self.topic})

    def rewind(
        self, to: Position | None = None, *, offsets: Mapping[int, int] | None = None
    ) -> Request[dict[int, int]]:
        """Deliver again from a time, or from an offset per partition.

        Return where each partition continues.
        """
        if (to is None) == (offsets is None):
            raise InvalidRequest("Rewind to a time or to offsets, not both.")
        positions = None
        if offsets is not None:
            positions = [{"partition": number, "offset": one} for number, one in offsets.items()]
        body = body_with(
            topic=self.topic, to=None if to is None else position_text(to), offsets=positions
        )
        return Request("POST", self._path("rewind"), _moved, body=body)

    def purge(self) -> Request[dict[int, int]]:
        """Settle all messages that exist now, including those in flight."""
        return Request("POST", self._path("purge"), _moved, body=body_with(topic=self.topic))

    def _path(self, verb: str) -> str:
        return path_of("groups", self.group, verb)

    def _settle(
        self, verb: str, messages: Iterable[Receipt], **fields: object
    ) -> Request[Outcomes]:
        body = body_with(receipts=[_receipt(one) for one in messages], **fields)
        return Request("POST", self._path(verb), read_settled, body=body)

    def _settle_one(self, verb: str, message: Receipt, **fields: object) -> Request[None]:
        body = body_with(receipts=[_receipt(message)], **fields)
        return Request("POST", self._path(verb), _only_outcome, body=body)

    def _received(self, data: bytes) -> list[ReceivedMessage]:
        return [
            ReceivedMessage(
                **stored_fields(one),
                receipt=one.receipt,
                group=self.group,
                priority=one.priority,
                attempt=one.attempt,
                lease_until_ms=one.leased_until,
            )
            for one in _read_received(data).messages
        ]


def _receipt(message: Receipt) -> str:
    return message if isinstance(message, str) else message.receipt


def _ms(duration: Duration | None) -> int | None:
    return None if duration is None else duration_ms(duration)


def read_settled(data: bytes) -> Outcomes:
    return [
        None if one.problem is None else error_of_problem(one.problem)
        for one in _decode_settled(data).results
    ]


def _only_outcome(data: bytes) -> None:
    for error in read_settled(data):
        if error is not None:
            raise error


def _moved(data: bytes) -> dict[int, int]:
    return {one.partition: one.offset for one in _read_moved(data).offsets}


def _peeked(data: bytes) -> list[PeekedMessage]:
    return [
        PeekedMessage(
            **stored_fields(one),
            priority=one.priority,
            state=one.state,
            attempts=one.attempts,
            consumer=one.consumer,
            lease_until_ms=one.leased_until,
            due_at_ms=one.due_at,
        )
        for one in _read_peeked(data).messages
    ]
