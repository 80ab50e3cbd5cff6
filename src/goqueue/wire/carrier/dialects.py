"""Another way of speaking on a listener: its own routes, its own form of answers and refusals.

Most of the API speaks as `application` does. A part of it that stands in for another product must
answer as that product's clients expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Request
    from goqueue.wire.carrier.routing import Operation


class Told(NamedTuple):
    """An answer before it is put on the wire."""

    status: int
    media_type: bytes
    body: bytes
    headers: bytes = b""  # whole lines besides those that every answer has


class Dialect(Protocol):
    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """The operation for a path, and the parts of it that are parameters."""

    def arguments(self, operation: Operation, request: Request) -> Any:
        """What the handler is given besides the path."""

    def answer(self, request: Request, value: Any) -> Told: ...

    def refuse(self, request: Request, error: GoQueueError) -> Told: ...
