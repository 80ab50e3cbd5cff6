"""Responses for single batches, encoded by hand, and the partitions that such batches go to."""

from __future__ import annotations

from functools import cache
from struct import Struct, calcsize
from typing import NamedTuple

from goqueue.broker.gate.grants import Grants, Writer
from goqueue.model.errors import GoQueueError
from goqueue.wire.kafka.request_reference import FLEXIBLE_FROM, split_key

_WITH_MESSAGES_FROM = 8
_LENGTH_BYTES = 4


@cache
def _form(name_bytes: int, version: int) -> tuple[Struct, int, tuple[int, ...]]:
    """The form of responses for topic names of a length: prefix, position of the offset, end."""
    text = f"{name_bytes}s"
    ending: tuple[int, ...]
    if version >= FLEXIBLE_FROM:
        head, tail, ending = f">iixbb{text}bih", "qqqbbxxix", (1, 0, 0)
    elif version >= _WITH_MESSAGES_FROM:
        head, tail, ending = f">iiih{text}iih", "qqqihi", (0, -1, 0)
    else:
        head, tail, ending = f">iiih{text}iih", "qqqi", (0,)
    return Struct(head + tail), calcsize(head), ending


class Layout:
    """The layout of responses for one partition in one version.

    There may be thousands of partitions. So layouts share their form, and each caches its usual
    response.
    """

    __slots__ = ("_after", "_before", "_form", "_start_offset", "_template", "offset_at")

    def __init__(self, name: bytes, number: int, version: int) -> None:
        # In flexible versions counts and lengths are encoded as one more than their value.
        more = version >= FLEXIBLE_FROM
        self._before = (1 + more, len(name) + more, name, 1 + more, number)
        self._form, self.offset_at, self._after = _form(len(name), version)
        self._start_offset = 0
        self._template = self.pack(0, 0, -1, -1, 0)

    def pack(
        self, correlation_id: int, code: int, base_offset: int, timestamp_ms: int, start_offset: int
    ) -> bytes:
        return self._form.pack(
            self._form.size - _LENGTH_BYTES,
            correlation_id,
            *self._before,
            code,
            base_offset,
            timestamp_ms,
            start_offset,
            *self._after,
        )

    def template(self, start_offset: int) -> bytes:
        """The response for a stored batch, without its correlation id and its offset."""
        if start_offset != self._start_offset:
            self._template = self.pack(0, 0, -1, -1, start_offset)
            self._start_offset = start_offset
        return self._template


class Route(NamedTuple):
    """A partition that a client may write to, as requests of one version name it."""

    writer: Writer
    layout: Layout


def find_route(grants: Grants, key: bytes) -> Route | None:
    """The route of a request; None if the client cannot write there. The handler reports why."""
    route: Route | None = grants.routes.get(key)
    if route is not None:
        return route
    name, number, version = split_key(key)
    try:
        writer = grants.writer(name.decode(), number)
    except (UnicodeDecodeError, GoQueueError):
        return None
    route = grants.routes[key] = Route(writer, Layout(name, number, version))
    return route
