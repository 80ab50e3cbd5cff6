"""Maps failed requests to the exceptions that the broker itself raises.

Problem details contain a `code`; the class with that code is raised here with the broker's message,
so that `except UnknownTopic` works on both sides of the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import msgspec

from goqueue.client.errors import BrokerRefused, BrokerUnready, ConnectionLost, Unreachable
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier import problems
from goqueue.wire.http.bodies import registry

E = TypeVar("E", bound=GoQueueError)

TEXT_SHOWN = 200  # characters of a response that is not a GoQueue response
RETRY_AFTER_SECONDS_MAX = 60.0
_ERROR_STATUS_MIN = 400
# A request with one of these statuses was not executed, and may succeed later. Codes that are
# retryable under another status (an unknown topic, a stale epoch) return the same result when the
# same request is sent again: this client caches no metadata that could be stale.
_PASSING_STATUSES = frozenset({408, 421, 429, 502, 503, 504, 507})
# With these statuses it is unknown whether the request was executed.
_UNCERTAIN_CODES = frozenset(
    {errors.RequestTimedOut.code, errors.StorageFailed.code, errors.NotEnoughReplicas.code}
)
_UNCERTAIN_STATUSES = frozenset({500, 502, 504})
_REASONS = {number: reason for reason, number in registry.NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt."""

    error: GoQueueError
    is_passing: bool  # another attempt may succeed
    is_uncertain: bool = False  # the request may have been executed
    wait_seconds_min: float = 0.0  # the broker's Retry-After


class Refusal(msgspec.Struct, kw_only=True):
    """The fields of problem details that a client uses."""

    code: str = ""
    detail: str = ""
    title: str = ""
    retryable: bool = False
    error_code: int = 0  # the schema registry identifies its errors by number
    message: str = ""


_decode_refusal = msgspec.json.Decoder(Refusal).decode


def failure_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> Failure | None:
    """The failure that a response reports, or None for success."""
    if status < _ERROR_STATUS_MIN:
        return None
    try:
        refusal = _decode_refusal(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = Refusal()  # the response of a proxy, or of another server
    if refusal.error_code:
        return _failure_of_registry(status, headers, refusal)
    if not refusal.code:
        text = body[:TEXT_SHOWN].decode("utf-8", "replace").strip()
        refusal = Refusal(detail=f"The address answered with status {status}: {text or 'no text'}")
    is_passing = status in _PASSING_STATUSES
    error = error_of_code(
        refusal.code,
        refusal.detail or refusal.title or f"The broker answered {refusal.code}.",
        is_retryable=refusal.retryable or is_passing,
    )
    return Failure(
        error,
        is_passing=is_passing,
        is_uncertain=refusal.code in _UNCERTAIN_CODES or status in _UNCERTAIN_STATUSES,
        wait_seconds_min=_retry_after(headers),
    )


def _failure_of_registry(status: int, headers: Mapping[str, str], refusal: Refusal) -> Failure:
    number, text = refusal.error_code, refusal.message
    error: GoQueueError
    if number in _REASONS:
        error = errors.SchemaRefused(_REASONS[number], text)
    elif number == registry.INVALID_SCHEMA:
        error = errors.InvalidSchema(text)
    else:
        is_passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        error = BrokerUnready(text) if is_passing else BrokerRefused(text)
    return Failure(
        error,
        is_passing=status in _PASSING_STATUSES,
        is_uncertain=status in _UNCERTAIN_STATUSES,
        wait_seconds_min=_retry_after(headers),
    )


def error_of_code(code: str, text: str, *, is_retryable: bool) -> GoQueueError:
    """The exception for a code, with the text that came with it."""
    kind = ERRORS_BY_CODE.get(code)
    if kind is None:
        return BrokerUnready(text) if is_retryable else BrokerRefused(text)
    return with_text(kind, text)


def error_of_problem(problem: problems.Problem) -> GoQueueError:
    """The exception for one item of a batch."""
    return error_of_code(problem.code, problem.detail, is_retryable=problem.retryable)


def with_text(kind: type[E], text: str) -> E:
    """An exception with a given text; the arguments of its constructor are unknown."""
    error = kind.__new__(kind, text)
    Exception.__init__(error, text)
    return error


def unreachable(url: str, reason: object) -> Failure:
    """No connection was established, so the request was not executed."""
    text = f"No broker answers at {url} ({reason}); start one, or name another address."
    return Failure(Unreachable(text), is_passing=True)


def answer_lost(url: str, reason: object) -> Failure:
    text = (
        f"The connection to {url} broke before the response ({reason}); the request may or may "
        "not have been executed."
    )
    return Failure(ConnectionLost(text), is_passing=True, is_uncertain=True)


def answer_late(url: str, seconds: float) -> Failure:
    text = (
        f"{url} did not answer within {seconds:g} s; the request may or may not have been "
        "executed. Allow more time (answer_ms_max), or check whether it was."
    )
    return Failure(with_text(errors.RequestTimedOut, text), is_passing=True, is_uncertain=True)


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return min(float(text), RETRY_AFTER_SECONDS_MAX)
    return 0.0


def _below(kind: type[GoQueueError]) -> Iterator[type[GoQueueError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


_WHERE_ERRORS_STAND = (errors.__name__, problems.__name__)
ERRORS_BY_CODE: Mapping[str, type[GoQueueError]] = {
    one.code: one for one in _below(GoQueueError) if one.__module__ in _WHERE_ERRORS_STAND
}
