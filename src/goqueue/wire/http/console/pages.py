"""Requests for the console: its files by path, and its start page for every page within it.

The console reads the rest of the path itself, so the address of each of its pages can be opened
directly. A program that requests a path that is no file gets an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.browsers import is_navigation
from goqueue.wire.carrier.calls import Raw, Request, Response, encode
from goqueue.wire.carrier.problems import (
    MEDIA_TYPE,
    MethodNotAllowed,
    UnknownRoute,
    problem_of,
)
from goqueue.wire.carrier.routing import Operation
from goqueue.wire.http.console.files import (
    IMMUTABLE,
    INDEX,
    REVALIDATED,
    BuiltFile,
    BuiltFiles,
)

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

CONSOLE_PREFIX = "/console"
NOT_BUILT = (
    b"This node was installed without the files of the console. Build them with `make console`, "
    b"or install a released package. The documentation of the API is at /docs.\n"
)

# Only files of this node, and no other page around it. Styles that scripts set need no permission.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"font-src 'self'; connect-src 'self'; worker-src 'self' blob:; manifest-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# The worker of filters runs what the user has written. It has this policy and not that of the page:
# it may compute, and reach nothing: not even scripts of this node, whose paths could carry data.
_FILTER_WORKER = "filter-worker"
_FILTER_POLICY = b"default-src 'none'; script-src 'unsafe-eval'"


class Asked(NamedTuple):
    """What a browser asks for."""

    path: str = INDEX  # below the prefix
    is_navigation: bool = True  # the user opens a page
    takes_gzip: bool = False
    known_etags: bytes = b""  # of what the browser has kept


def _console(_: FrontEnd, __: Call, asked: Asked) -> Raw:
    """Answer with a file, or with the start page."""
    found = _files.find(asked.path)
    if found is not None:
        return _file(found, asked)
    if not asked.is_navigation:
        raise UnknownRoute(f"{CONSOLE_PREFIX}/{asked.path}")
    return start_page(asked)


def start_page(asked: Asked) -> Raw:
    """Return the start page of the console, or a text if it was not built."""
    found = _files.find(INDEX)
    if found is None:
        return Raw(NOT_BUILT, b"text/plain; charset=utf-8", status=404)
    return _file(found, asked._replace(path=INDEX))


def _file(found: BuiltFile, asked: Asked) -> Raw:
    policy = _FILTER_POLICY if asked.path.startswith(_FILTER_WORKER) else _POLICY
    headers = b"etag: %s\r\nvary: accept, accept-encoding\r\n" % found.etag
    cache = IMMUTABLE if found.is_immutable else REVALIDATED
    if found.etag in asked.known_etags:
        return Raw(b"", b"", status=304, headers=headers, cache=cache)
    headers += b"content-security-policy: %s\r\nx-frame-options: DENY\r\n" % policy
    body = found.content
    if asked.takes_gzip and found.compressed is not None:
        body = found.compressed
        headers += b"content-encoding: gzip\r\n"
    return Raw(body, found.media_type, headers=headers, cache=cache)


_files = BuiltFiles()
_OPERATION = Operation(
    "console",
    "GET",
    CONSOLE_PREFIX,
    _console,
    "Return a file of the web console.",
    area="console",
    is_early=True,
    is_public=True,
)


class ConsoleDialect:
    """The part of the HTTP API that browsers see as pages."""

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed(method, ["GET", "HEAD"])
        return _OPERATION, {}

    def arguments(self, operation: Operation, request: Request) -> Asked:
        return asked_by(request, request.path.removeprefix(CONSOLE_PREFIX).strip("/"))

    def answer(self, request: Request, value: object) -> Response:
        raise AssertionError("the console answers with files")

    def refuse(self, request: Request, error: GoQueueError) -> Response:
        problem = problem_of(error)
        return Response(problem.status, MEDIA_TYPE, encode(problem))


def asked_by(request: Request, path: str) -> Asked:
    """Return what a request asks for."""
    return Asked(
        path,
        is_navigation(request.headers),
        b"gzip" in request.header(b"accept-encoding"),
        request.header(b"if-none-match"),
    )
