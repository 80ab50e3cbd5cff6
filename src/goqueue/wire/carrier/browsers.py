"""What pages in browsers may request: those of this node, and of origins in the settings.

A page of any site can make a browser send requests to a node that the browser reaches and the site
does not. Browsers say where a request comes from: `Origin` has the site of a page's script, and
`Sec-Fetch-Site` its relation to the node. Programs send neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from goqueue.wire.carrier.calls import Response
from goqueue.wire.carrier.problems import ForeignOrigin

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Request

# Sent with every response. Nothing here is for other sites, or of a type that is to be guessed.
SECURITY_HEADERS = (
    b"x-content-type-options: nosniff\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"cross-origin-resource-policy: same-origin\r\n"
)
# To responses over TLS: a browser that has seen it uses TLS for this host from then on.
HSTS = b"strict-transport-security: max-age=31536000\r\n"
ORIGIN = b"origin"
SITE = b"sec-fetch-site"
MODE = b"sec-fetch-mode"
NAVIGATE = b"navigate"
PREFLIGHT_SECONDS = 600

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED = b"retry-after, www-authenticate, x-amzn-requestid"
_FOREIGN = (b"cross-site", b"same-site")  # another port of this host is the same site
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9-]{1,100}(?:\s*,\s*[A-Za-z0-9-]{1,100}){0,50}")


def is_navigation(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a user opens a page: only then do browsers ask for its type."""
    return b"text/html" in headers.get(b"accept", b"")


class Origins:
    """The origins whose pages may use a listener, besides its own."""

    def __init__(self, origins: Iterable[str] = (), *, has_pages: bool = True) -> None:
        """With `has_pages`, links of other sites may lead here."""
        self._origins = frozenset(one.encode() for one in origins)
        self._has_pages = has_pages

    def check(self, request: Request) -> None:
        """Refuse requests that a browser sends for a page of another site."""
        origin = request.header(ORIGIN)
        if origin:
            is_own = origin.partition(b"://")[2] == request.header(b"host")
            if not is_own and origin not in self._origins:
                raise ForeignOrigin(origin.decode("latin-1"))
        elif request.header(SITE) in _FOREIGN and not self._is_link(request):
            raise ForeignOrigin(request.header(SITE).decode("ascii"))

    def _is_link(self, request: Request) -> bool:
        """Whether the user follows a link to a page; the other site does not see the response."""
        return (
            self._has_pages
            and request.method in ("GET", "HEAD")
            and request.header(MODE) == NAVIGATE
            and request.header(b"sec-fetch-dest") == b"document"
        )

    # Cross-origin resource sharing, for the origins in the settings

    def sharing(self, request: Request) -> bytes:
        """Return the headers that let a page read the response; none for other origins."""
        if not self._origins:
            return b""
        origin = request.header(ORIGIN)
        if origin not in self._origins:
            return b"vary: origin\r\n"
        return (
            b"access-control-allow-origin: %s\r\naccess-control-expose-headers: %s\r\n"
            b"vary: origin\r\n" % (origin, _EXPOSED)
        )

    def preflight(self, request: Request) -> Response | None:
        """Answer the question of a browser what a page may send; None if it is none."""
        wanted = request.header(b"access-control-request-method")
        if request.method != "OPTIONS" or not wanted:
            return None
        if request.header(ORIGIN) not in self._origins:
            raise ForeignOrigin(request.header(ORIGIN).decode("latin-1"))
        names = request.header(b"access-control-request-headers")
        allowed = names if _HEADER_NAMES.fullmatch(names) else b"authorization, content-type"
        headers = (
            b"access-control-allow-methods: %s\r\naccess-control-allow-headers: %s\r\n"
            b"access-control-max-age: %d\r\n" % (_METHODS, allowed, PREFLIGHT_SECONDS)
        )
        return Response(204, b"", b"", headers)
