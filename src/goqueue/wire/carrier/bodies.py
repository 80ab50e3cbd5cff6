"""The base classes of request and response bodies."""

from __future__ import annotations

from msgspec import Struct


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body. Unknown fields are refused, because they may be typing errors."""


class Nothing(Body, kw_only=True):
    """An empty object."""


class Answer(Struct, kw_only=True):
    """A response body."""
