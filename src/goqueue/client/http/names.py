"""Names that a client makes for itself, and lists of names."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable

_HOST_LENGTH_MAX = 60


def new_consumer_name() -> str:
    """A name that tells people which machine holds a message, and that no other consumer has."""
    return f"{socket.gethostname()[:_HOST_LENGTH_MAX]}-{uuid.uuid4().hex[:8]}"


def new_member_id() -> str:
    """The client chooses it, so that a join whose answer was lost can be sent again."""
    return uuid.uuid4().hex


def topic_names(topics: str | Iterable[str]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else tuple(topics)
