"""Matches transactional ids against a client's regular expression."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from goqueue.model.errors import InvalidRegularExpression
from goqueue.transactions.limits import PATTERN_LENGTH_MAX, PATTERN_MEMORY_BYTES_MAX


def is_match(pattern: str, transactional_id: str) -> bool:
    """Whether the whole id matches; the empty pattern matches all."""
    return not pattern or _compile(pattern).fullmatch(transactional_id) is not None


@lru_cache(maxsize=64)
def _compile(pattern: str) -> Any:
    """Compile a pattern, which RE2 runs in linear time in any case."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidRegularExpression(
            f"A regular expression may have {PATTERN_LENGTH_MAX} characters."
        )
    # Imported here, because few clients list by a pattern, and it takes some megabytes.
    import re2

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(
            f"The regular expression {pattern[:200]!r} does not follow RE2 syntax."
        ) from error
