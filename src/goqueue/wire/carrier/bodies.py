"""The base classes of request and response bodies."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body. Unknown fields are refused, because they may be typing errors."""


class Nothing(Body, kw_only=True):
    """An empty object."""


class Answer(Struct, kw_only=True):
    """A response body."""


class BatchAnswer(Answer, kw_only=True):
    """A result for each entry of a request; one that failed has a problem."""

    results: list[Any]
    failed: int

    @property
    def error_codes(self) -> set[str]:
        """The errors that metrics count, each once."""
        if not self.failed:
            return set()
        return {one.problem.code for one in self.results if one.problem is not UNSET}
