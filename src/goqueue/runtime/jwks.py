"""Loads the public keys of a token issuer, from a file or over HTTPS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

SECONDS_MAX = 10.0  # for each step of the connection
BYTES_MAX = 1 << 20
_WEB = ("https://", "http://")  # the latter on loopback only, which the settings check


def loader_of(location: str) -> Callable[[], bytes]:
    """Return what loads the keys; it blocks, so it is called in a thread."""
    return partial(_fetch if location.startswith(_WEB) else _read, location)


def _read(path: str) -> bytes:
    with Path(path).expanduser().open("rb") as file:
        return _limited(file)


def _fetch(url: str) -> bytes:
    # Imported here, because only tokens need it.
    import ssl
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """A redirect might lead to an address that nobody has chosen, or away from TLS."""

        def redirect_request(self, *_: Any) -> None:
            return None

    secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    opener = urllib.request.build_opener(NoRedirects, secure)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=SECONDS_MAX) as answer:
        return _limited(answer)


def _limited(source: IO[bytes]) -> bytes:
    data = source.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise ValueError(f"the key set is larger than {BYTES_MAX} bytes")
    return data
