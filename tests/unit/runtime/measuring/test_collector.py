"""What a collector answers is understood in all its forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from goqueue.runtime.measuring.collector import ANSWER_BYTES_MAX, _answer_of, _rejected


class Response:
    """As `http.client` has it."""

    def __init__(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.status, self.reason, self._body = status, "Said So", body
        self._headers = Message()
        for name, value in headers.items():
            self._headers[name.replace("_", "-")] = value

    def read(self, size: int) -> bytes:
        assert size == ANSWER_BYTES_MAX
        return self._body[:size]

    def getheader(self, name: str, default: str) -> str:
        return str(self._headers.get(name, default))


def partly(points: int) -> bytes:
    success = ExportMetricsPartialSuccess(rejected_data_points=points, error_message="no")
    return bytes(ExportMetricsServiceResponse(partial_success=success).SerializeToString())


def test_points_that_were_not_taken_are_counted() -> None:
    answer = _answer_of(Response(200, partly(7)))  # type: ignore[arg-type]
    assert (answer.is_success, answer.rejected, answer.reason) == (True, 7, "")
    assert _rejected(partly(0)) == _rejected(b"") == _rejected(b"{}") == 0


@given(st.binary(max_size=100))
def test_any_answer_is_understood(body: bytes) -> None:
    assert _rejected(body) >= 0
    assert _answer_of(Response(500, body)).reason.isprintable()  # type: ignore[arg-type]


def test_an_error_has_its_reason() -> None:
    assert _answer_of(Response(400, b"bad\nthing")).reason == "badthing"  # type: ignore[arg-type]
    assert _answer_of(Response(404)).reason == "Said So"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("3", 3_000), ("0", 0), ("", None), ("soon", None), ("-1", None)]
)
def test_a_number_of_seconds_says_when_to_come_back(text: str, expected_ms: int | None) -> None:
    answer = _answer_of(Response(503, retry_after=text))  # type: ignore[arg-type]
    assert answer.retry_after_ms == expected_ms


def test_a_date_says_when_to_come_back() -> None:
    for seconds, low, high in ((60, 55_000, 60_000), (-60, 0, 0)):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        wait_ms = _answer_of(Response(503, retry_after=date)).retry_after_ms  # type: ignore[arg-type]
        assert wait_ms is not None
        assert low <= wait_ms <= high
