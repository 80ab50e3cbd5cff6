"""Errors that one node raises and another receives: the same class, with the same text."""

from __future__ import annotations

import msgspec

from goqueue.model.errors import ERRORS_BY_CODE, GoQueueError

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
    error = ERRORS_BY_CODE.get(refusal.code, GoQueueError).with_text(refusal.text)
    vars(error).update(refusal.detail)
    return error
