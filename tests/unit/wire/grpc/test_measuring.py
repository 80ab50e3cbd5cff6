"""The trace of a request, and the codes of the errors in a response."""

from __future__ import annotations

from google.protobuf.message import Message

from goqueue.wire.grpc.measuring import codes_in, trace_of
from goqueue.wire.grpc.messages import ack_service_pb2 as acking
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.grpc.messages import topic_service_pb2 as topics
from goqueue.wire.grpc.table import CALLS


def error(reason: str) -> shared.Error:
    return shared.Error(reason=reason)


def test_codes_are_found_wherever_a_response_has_errors() -> None:
    report = publishing.PublishReport(
        errors=[publishing.PublishError(index=n, error=error(f"e{n % 2}")) for n in range(4)]
    )
    refused = shared.ReceiptError(receipt="r", error=error("stale"))
    settlement = consuming.Settlement(number=1, errors=[refused])
    expected: list[tuple[Message, set[str]]] = [
        (publishing.PublishResponse(report=report), {"e0", "e1"}),
        (publishing.PublishStreamResponse(number=1, report=report), {"e0", "e1"}),
        (publishing.PublishStreamResponse(number=1, error=error("bad")), {"bad"}),
        (acking.AckResponse(errors=[refused]), {"stale"}),
        (consuming.ReceiveResponse(settlements=[settlement]), {"stale"}),
        (publishing.PublishResponse(), set()),
        (topics.DeleteTopicResponse(), set()),
    ]
    for response, codes in expected:
        assert codes_in(response) == codes


def test_the_trace_is_that_of_the_first_message() -> None:
    def message(*names: str) -> shared.OutgoingMessage:
        headers = [shared.Header(name=name, value=name.upper().encode()) for name in names]
        return shared.OutgoingMessage(value=b"x", headers=headers)

    assert trace_of([]) == b""
    assert trace_of([message("other"), message("traceparent")]) == b""
    assert trace_of([message("other", "traceparent")]) == b"TRACEPARENT"
    assert trace_of([message("AWSTraceHeader")]) == b"AWSTRACEHEADER"


def test_names_tell_all_calls_apart_in_metrics() -> None:
    names = [one.name for one in CALLS if "Reflection" not in one.service]
    assert len(names) == len(set(names))
