"""Keys of an issuer over HTTP: what is loaded, and what is refused."""

from __future__ import annotations

import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from goqueue.runtime.jwks import BYTES_MAX, loader_of


class _Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = {"/moved": 302, "/missing": 404}.get(self.path, 200)
        body = b"x" * (BYTES_MAX + 1) if self.path == "/large" else b'{"keys": []}'
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_keys_are_loaded_over_http_and_from_files(issuer: str, tmp_path: Path) -> None:
    assert loader_of(f"{issuer}/keys")() == b'{"keys": []}'
    file = tmp_path / "keys.json"
    file.write_bytes(b"{}")
    assert loader_of(str(file))() == b"{}"


@pytest.mark.parametrize("path", ["/moved", "/missing"])
def test_redirects_and_errors_are_refused(issuer: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError):
        loader_of(f"{issuer}{path}")()


def test_answers_of_any_size_are_not_read(issuer: str) -> None:
    with pytest.raises(ValueError, match="larger than"):
        loader_of(f"{issuer}/large")()


def test_an_issuer_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="refused"):
        loader_of("http://127.0.0.1:1/keys")()
