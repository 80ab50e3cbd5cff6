"""Posts data to a collector of OpenTelemetry, over HTTP. It blocks, so it runs in a thread."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from goqueue.metrics.otlp.fields import BYTES, VARINT, Fields
from goqueue.metrics.otlp.sending import Answer
from goqueue.model.errors import MalformedRequest

if TYPE_CHECKING:
    import http.client

ANSWER_BYTES_MAX = 64 << 10
REASON_LENGTH_MAX = 200
_ANSWER_FIELDS_MAX = 100
_PROTOBUF = "application/x-protobuf"
_GZIP_LEVEL = 5


@dataclass(frozen=True, slots=True)
class Collector:
    """Where data is posted to, and how."""

    address: str
    headers: Mapping[str, str]
    timeout_ms: int
    is_compressed: bool
    authorities: Path | None  # None: those of the system

    def post(self, body: bytes) -> Answer:
        """Send a request once, and return what became of it."""
        # Imported here, because most nodes export nothing.
        import http.client

        parts = urlsplit(self.address)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = {**self.headers, "content-type": _PROTOBUF, "user-agent": "goqueue"}
        if self.is_compressed:
            body = gzip.compress(body, _GZIP_LEVEL)
            headers["content-encoding"] = "gzip"
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._connection()
            connection.request("POST", target, body, headers)
            return _answer_of(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            return Answer(None, reason=reason[:REASON_LENGTH_MAX])
        finally:
            if connection is not None:
                connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        """Made anew each time: certificates may have changed, and a minute is long."""
        import http.client

        parts, timeout = urlsplit(self.address), self.timeout_ms / 1_000
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        import ssl

        authorities = None if self.authorities is None else str(self.authorities)
        context = ssl.create_default_context(cafile=authorities)
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout, context=context
        )


def _answer_of(response: http.client.HTTPResponse) -> Answer:
    body = response.read(ANSWER_BYTES_MAX)
    reason = "" if response.status < 300 else _shown(body) or response.reason
    rejected = _rejected(body) if response.status < 300 else 0
    return Answer(
        response.status, _retry_after_ms(response.getheader("retry-after", "")), reason, rejected
    )


def _shown(body: bytes) -> str:
    """What can be read of the body of an error."""
    text = body.decode(errors="replace")
    return "".join(one for one in text if one.isprintable())[:REASON_LENGTH_MAX]


def _rejected(body: bytes) -> int:
    """How many data points the collector did not take although it took the request."""
    try:
        fields = Fields(body, _ANSWER_FIELDS_MAX)
        for number, kind, start, stop in fields.of(0, len(body)):
            if number == 1 and kind == BYTES:
                for inner, inner_kind, value, _ in fields.of(start, stop):
                    if inner == 1 and inner_kind == VARINT:
                        return value
    except MalformedRequest:
        return 0  # It is no protobuf, which some collectors answer with.
    return 0


def _retry_after_ms(text: str) -> int | None:
    """How long to wait: a number of seconds, or a date."""
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1_000
    from email.utils import parsedate_to_datetime

    try:
        return max(0, int((parsedate_to_datetime(text).timestamp() - time.time()) * 1_000))
    except ValueError:
        return None
