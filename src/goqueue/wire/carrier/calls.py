"""A request as passed to a handler, and how a handler can respond later."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from goqueue.loop.promise import Cancellation, Promise, start
from goqueue.model.session import NOBODY, Session
from goqueue.wire.carrier.problems import InvalidField

if TYPE_CHECKING:
    from goqueue.wire.carrier.dialects import Dialect


class Request:
    """A request as received."""

    __slots__ = (
        "body",
        "dialect",
        "headers",
        "is_kept_alive",
        "method",
        "parameters",
        "path",
        "query",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes = b"",
        headers: dict[bytes, bytes] | None = None,
        *,
        is_kept_alive: bool = True,
    ) -> None:
        self.method = method
        self.path = path  # still escaped, because an escaped slash does not separate segments
        self.query = query
        self.headers = headers or {}
        self.is_kept_alive = is_kept_alive
        self.body = b""
        self.parameters: dict[str, str] = {}
        self.dialect: Dialect | None = None

    def copy(self) -> Request:
        """A copy with its own body, because the buffer of a request is released after reading."""
        copied = Request(self.method, self.path, self.query, self.headers)
        copied.body, copied.parameters, copied.dialect = self.body, self.parameters, self.dialect
        return copied

    def header(self, name: bytes) -> bytes:
        return self.headers.get(name, b"")


class Call:
    """The context of a request besides its body or query."""

    __slots__ = ("cancellation", "last_event_id", "parameters", "session")

    def __init__(
        self,
        parameters: dict[str, str],
        *,
        session: Session = NOBODY,
        last_event_id: str = "",
    ) -> None:
        self.parameters = parameters
        self.session = session
        self.last_event_id = last_event_id
        self.cancellation = Cancellation()

    def text(self, name: str) -> str:
        """A part of the path, unescaped."""
        text = self.parameters[name]
        if "%" not in text:
            return text
        try:
            return unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise InvalidField(f"{text[:100]!r} is not UTF-8 when unescaped.", field=name) from None

    def number(self, name: str, *, most: int) -> int:
        text = self.text(name)
        if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most:
            return int(text)
        raise InvalidField(
            f"{text[:100]!r} in the path is not a whole number from 0 to {most}.", field=name
        )

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def is_cancelled(self) -> bool:
        """Whether the client has disconnected, or the node is stopping."""
        return self.cancellation.is_cancelled

    def on_cancel(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` if the client disconnects before the response."""
        self.cancellation.on_cancel(cancel)

    def cancel(self) -> None:
        self.cancellation.cancel()


class Raw:
    """A response other than the JSON of its operation, or with another status."""

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: bytes,
        media_type: bytes,
        *,
        status: int = 200,
        headers: bytes = b"",
    ) -> None:
        self.body = body
        self.media_type = media_type
        self.status = status
        self.headers = headers  # further header lines


def promised(answer: Any) -> Promise[Any]:
    """The result of a handler (a value, a promise or a coroutine) as a promise."""
    if isinstance(answer, Promise):
        return answer
    promise: Promise[Any] = Promise()
    if isinstance(answer, Coroutine):
        start(answer, promise.settle)
    else:
        promise.resolve(answer)
    return promise
