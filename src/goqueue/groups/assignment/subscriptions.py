"""Resolves subscriptions to topics, by name and by regular expression."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from goqueue.groups.limits import REGEX_MEMORY_BYTES_MAX
from goqueue.model.errors import InvalidRegularExpression
from goqueue.model.tenants import prefix_of

INTERNAL_PREFIX = "__"  # internal topics are only read by name, not by a pattern


class TopicRegex:
    """A regular expression and the topics it currently matches."""

    def __init__(self, text: str, topics: Iterable[str], *, tenant_prefix: str = "") -> None:
        """It matches topics of one tenant, by the names that its clients see."""
        self._pattern = compile_regex(text)
        self._tenant_prefix = tenant_prefix
        self.topics = frozenset(filter(self._matches, topics))

    def refresh(self, *, added: Iterable[str], removed: Iterable[str]) -> None:
        self.topics = (self.topics | frozenset(filter(self._matches, added))) - frozenset(removed)

    def _matches(self, topic: str) -> bool:
        if prefix_of(topic) != self._tenant_prefix:
            return False
        plain = topic[len(self._tenant_prefix) :]
        return not plain.startswith(INTERNAL_PREFIX) and self._pattern.fullmatch(plain) is not None


@lru_cache(maxsize=1_024)
def compile_regex(text: str) -> Any:
    """Compile a member's expression, which RE2 runs in linear time in any case."""
    # Imported here, because few groups subscribe by a pattern, and it takes some megabytes.
    import re2

    options = re2.Options()
    options.max_mem = REGEX_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown error"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise InvalidRegularExpression(
            f"The regular expression {text[:200]!r} does not follow RE2 syntax: {reason}."
        ) from error
