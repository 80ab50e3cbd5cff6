"""What the head of a request may not say: a proxy would read it otherwise, or it is not done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from goqueue.wire.carrier.credentials import API_KEY, AUTHORIZATION
from goqueue.wire.carrier.problems import (
    HttpError,
    MissingHost,
    UnsupportedCoding,
    UnsupportedTransfer,
)

# A request with two of these means one thing to a proxy and perhaps another here.
ONCE = frozenset((b"host", b"origin", b"content-type", AUTHORIZATION, API_KEY))


class Parser(Protocol):
    def get_http_version(self) -> str: ...


def fault_in(headers: Mapping[bytes, bytes], parser: Parser | None) -> HttpError | None:
    """Return why a request with these headers is refused; None if it can be read."""
    if b"host" not in headers and parser is not None and parser.get_http_version() != "1.0":
        return MissingHost()
    transfer = headers.get(b"transfer-encoding", b"chunked").strip().lower()
    if transfer != b"chunked":
        return UnsupportedTransfer(transfer.decode("latin-1"))
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding != b"identity":
        return UnsupportedCoding(coding.decode("latin-1"))
    return None
