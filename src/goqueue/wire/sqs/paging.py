"""Pagination: the opaque token of a page is the last name of the previous page."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Sequence

from goqueue.wire.sqs.errors import InvalidParameterValue

RESULTS_MAX = 1000


def page_of(
    names: Sequence[str], count: int | None, token: str | None
) -> tuple[Sequence[str], str | None]:
    """Return a page of the sorted names, and the token of the next page if there is one.

    Without a page size there is no token, as in SQS.
    """
    if count is not None and not 1 <= count <= RESULTS_MAX:
        raise InvalidParameterValue.of(
            "MaxResults", count, f"MaxResults must be >= 1 and <= {RESULTS_MAX}."
        )
    first = 0 if not token else bisect_right(names, _read(token))
    page = names[first : first + (count or RESULTS_MAX)]
    has_more = count is not None and first + len(page) < len(names)
    return page, _write(page[-1]) if has_more else None


def _write(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode("ascii")


def _read(token: str) -> str:
    try:
        return urlsafe_b64decode(token).decode()
    except ValueError:
        raise InvalidParameterValue.of(
            "NextToken", token, "it is none that this action has given."
        ) from None
