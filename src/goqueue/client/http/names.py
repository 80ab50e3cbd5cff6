"""Names that a client generates, and lists of names."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable

_HOST_LENGTH_MAX = 60


def new_consumer_name() -> str:
    """Generate a unique name that shows which machine holds a message."""
    return f"{socket.gethostname()[:_HOST_LENGTH_MAX]}-{uuid.uuid4().hex[:8]}"


def new_member_id() -> str:
    """Generate a member id here, so that a join whose response was lost can be repeated."""
    return uuid.uuid4().hex


def topic_names(topics: str | Iterable[str]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else tuple(topics)
