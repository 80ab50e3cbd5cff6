"""A dialect of a listener: its own routes, and its own format of responses and errors.

Most of the API uses the format of `application`. A part that is compatible with another product
must respond as the clients of that product expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Request
    from goqueue.wire.carrier.routing import Operation


class Told(NamedTuple):
    """A response before it is encoded."""

    status: int
    media_type: bytes
    body: bytes
    headers: bytes = b""  # further header lines


class Dialect(Protocol):
    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """The operation for a path, and the parts of it that are parameters."""

    def arguments(self, operation: Operation, request: Request) -> Any:
        """The input of the handler besides the path."""

    def answer(self, request: Request, value: Any) -> Told: ...

    def refuse(self, request: Request, error: GoQueueError) -> Told: ...
