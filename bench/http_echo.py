"""HTTP servers on Python that answer publishes as if they were stored, and store nothing.

What remains is the stack: a bare httptools protocol on uvloop, which is what the broker's own front
end is built on, and uvicorn with a bare ASGI application, which is what most Python services use.

    python -m bench.http_echo --stack httptools|uvicorn --ready-file F
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, cast

import httptools
import uvloop

ANSWER = b'{"id":"echo/0/0","topic":"echo","partition":0,"offset":0,"timestamp":1700000000000}'
BATCH_PATH = "/batch"
# A batch is not looked into: it gets as many results as the benchmark's batches have messages.
BATCH_MESSAGES = 100
BATCH_ANSWER = (
    b'{"results":['
    + b",".join([b'{"published":' + ANSWER + b"}"] * BATCH_MESSAGES)
    + b'],"failed":0}'
)

Event = MutableMapping[str, Any]


class Echo(asyncio.Protocol):
    """One connection; httptools calls back for each part of a request."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        assert self._transport is not None
        b"".join(self._body)
        self._body.clear()
        answer = BATCH_ANSWER if self._url.endswith(BATCH_PATH.encode()) else ANSWER
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(answer), answer)
        )


async def application(
    scope: Event,
    receive: Callable[[], Awaitable[Event]],
    send: Callable[[Event], Awaitable[None]],
) -> None:
    """Read the whole body and answer; nothing between uvicorn and this."""
    has_more = True
    while has_more:
        has_more = (await receive()).get("more_body", False)
    answer = BATCH_ANSWER if scope["path"].endswith(BATCH_PATH) else ANSWER
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def _serve_httptools(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, sock=listener)
    await server.serve_forever()


async def _serve_uvicorn(listener: socket.socket) -> None:
    # Not a dependency of the project; whoever wants this figure installs it.
    import uvicorn

    config = uvicorn.Config(
        application, http="httptools", lifespan="off", access_log=False, log_level="error"
    )
    await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="Answer HTTP publishes and discard them.")
    parser.add_argument("--stack", choices=("httptools", "uvicorn"), required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    arguments = parser.parse_args()
    # 1 is PR_SET_PDEATHSIG: the echo ends with the benchmark, however that ends.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    if arguments.stack == "uvicorn":
        import uvicorn  # noqa: F401  # missing, it must be missed before the ready file is there
    partial = arguments.ready_file.with_suffix(".partial")
    partial.write_text(json.dumps({"http": f"127.0.0.1:{listener.getsockname()[1]}"}))
    partial.rename(arguments.ready_file)
    serve = _serve_httptools if arguments.stack == "httptools" else _serve_uvicorn
    uvloop.run(serve(listener))


if __name__ == "__main__":
    main()
