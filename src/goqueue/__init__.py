"""GoQueue: one durable, partitioned log that streams, queues and tables share.

    from goqueue import Client

`Client` and `AsyncClient` and what belongs to them are loaded when they are first named, so that a
broker does not load its own client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goqueue.client.http import (
        AsyncClient,
        Client,
        HttpSettings,
        Json,
        Message,
        Outgoing,
        ProducerSettings,
        ReceivedMessage,
        Reject,
        Retry,
        RetrySettings,
    )
    from goqueue.model.errors import GoQueueError

__all__ = [
    "AsyncClient",
    "Client",
    "GoQueueError",
    "HttpSettings",
    "Json",
    "Message",
    "Outgoing",
    "ProducerSettings",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "RetrySettings",
]

_ERRORS = "goqueue.model.errors"
_CLIENT = "goqueue.client.http"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ERRORS if name == "GoQueueError" else _CLIENT), name)
