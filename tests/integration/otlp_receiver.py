"""A collector that keeps what it receives, parsed by the official classes."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class Received(NamedTuple):
    """One export request."""

    path: str
    headers: dict[str, str]
    request: ExportMetricsServiceRequest

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the node that sent it."""
        [resource] = self.request.resource_metrics
        return {one.key: one.value.string_value for one in resource.resource.attributes}

    @property
    def metrics(self) -> dict[str, Metric]:
        [resource] = self.request.resource_metrics
        [scope] = resource.scope_metrics
        return {one.name: one for one in scope.metrics}

    def number(self, name: str, **labels: str) -> float | None:
        """The value of a series of a counter or a gauge; None if there is none."""
        metric = self.metrics.get(name)
        if metric is None:
            return None
        body = getattr(metric, metric.WhichOneof("data") or "gauge")
        for point in body.data_points:
            if {one.key: one.value.string_value for one in point.attributes} == labels:
                return float(point.as_double)
        return None


class Receiver:
    """An HTTP server on a free port. `answers` are given first; afterwards, everything is taken."""

    def __init__(self, *answers: tuple[int, dict[str, str]]) -> None:
        self.received: list[Received] = []
        self.refused = 0
        self.rejected_points = 0
        self._answers = list(answers)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self._take))
        self._server.daemon_threads = True
        self._scheme = "http"

    @property
    def address(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def encrypt(self, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if self._answers:
            self.refused += 1
            status, more = self._answers.pop(0)
            return status, more, b"come back later"
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportMetricsServiceRequest.FromString(body)
        self.received.append(Received(path, headers, request))
        partly = ExportMetricsPartialSuccess(rejected_data_points=self.rejected_points)
        answer = ExportMetricsServiceResponse(partial_success=partly)
        return 200, {"content-type": "application/x-protobuf"}, answer.SerializeToString()


_Take = Callable[[str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]


def _handler_of(take: _Take) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more, body = take(self.path, headers, self.rfile.read(length))
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    return Handler
