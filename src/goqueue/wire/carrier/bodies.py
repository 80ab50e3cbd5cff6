"""What the bodies of requests and answers are made from."""

from __future__ import annotations

from msgspec import Struct


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a client sends. A field that is not known is refused: it may be a typing error."""


class Nothing(Body, kw_only=True):
    """An empty object."""


class Answer(Struct, kw_only=True):
    """What a client gets."""
