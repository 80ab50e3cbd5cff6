"""Errors that one node raises and another receives: the same class, with the same text."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from goqueue.model import errors
from goqueue.model.errors import GoQueueError

_DETAILS = (int, str)


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """An error as a response; `detail` is what its class has besides the text."""

    code: str
    text: str
    detail: dict[str, int | str] = {}


def refusal_of(error: GoQueueError) -> Refusal:
    detail = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, _DETAILS) and not name.startswith("_")
    }
    return Refusal(error.code, str(error), detail)


def error_of(refusal: Refusal) -> GoQueueError:
    """The error that the other node raised; a plain GoQueueError if a later version added it."""
    kind = _BY_CODE.get(refusal.code, GoQueueError)
    error = kind.__new__(kind, refusal.text)
    Exception.__init__(error, refusal.text)
    vars(error).update(refusal.detail)
    return error


def _classes(kind: type[GoQueueError]) -> Iterator[type[GoQueueError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _classes(one)


_BY_CODE = {
    kind.code: kind for kind in _classes(GoQueueError) if kind.__module__ == errors.__name__
}
