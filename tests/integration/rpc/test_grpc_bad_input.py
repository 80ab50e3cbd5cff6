"""Nonsense in every field of every call is refused with its field, and costs nobody anything."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.routes import Unary
from goqueue.wire.grpc.table import CALLS
from tests.integration.process import Broker

from .calls import Rpc, details_of
from .hostile import hostile_requests

UNARY = [one for one in CALLS if isinstance(one, Unary)]
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}


def is_field(path: str, request: Message) -> bool:
    kind, name = request.DESCRIPTOR, path.partition(".")[0]
    return name in kind.fields_by_name or name in kind.oneofs_by_name


@pytest.mark.parametrize("one", UNARY, ids=lambda one: one.name)
def test_nonsense_is_refused_with_its_field(node: Broker, rpc: Rpc, name: str, one: Unary) -> None:
    rpc.create(name)
    names = {"name": name, "topic": name, "group": name, "id": "AAAA", "transaction_id": "x"}
    call = rpc.channel.unary_unary(one.path)
    for request in hostile_requests(one.request, names):
        try:
            call(request.SerializeToString(), timeout=30)
        except grpc.RpcError as error:
            code = error.code()
            assert code not in FAULTS, request
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                [bad] = details_of(error, error_details_pb2.BadRequest)
                assert is_field(bad.field_violations[0].field, request), request
    assert "Traceback" not in node.log_text
    if one.name != "DeleteTopic":
        rpc.publish(name, b"the topic is as it was")


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Subscribe", consuming.SubscribeRequest()),
        ("Subscribe", consuming.SubscribeRequest(group="g")),
        ("Subscribe", consuming.SubscribeRequest(group="g", topics=["t"] * 1001)),
        ("Subscribe", consuming.SubscribeRequest(group="g", topics=["t"], messages_max=-1)),
        ("Subscribe", consuming.SubscribeRequest(group="g", topic_pattern="x" * 2000)),
        ("Follow", consuming.FollowRequest(topic="t", messages_max=5000)),
        ("Receive", consuming.ReceiveRequest(start=consuming.ReceiveStart())),
        (
            "Receive",
            consuming.ReceiveRequest(start=consuming.ReceiveStart(group="g", visibility_ms=-1)),
        ),
    ],
)
def test_a_stream_that_begins_with_nonsense_is_refused_with_its_field(
    rpc: Rpc, method: str, request_: Message
) -> None:
    call = getattr(rpc.consuming, method)
    responses = call(iter([request_]) if method == "Receive" else request_, timeout=30)
    with pytest.raises(grpc.RpcError) as raised:
        next(responses)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    [bad] = details_of(raised.value, error_details_pb2.BadRequest)
    [violation] = bad.field_violations
    start = consuming.ReceiveStart.DESCRIPTOR if method == "Receive" else request_.DESCRIPTOR
    assert violation.field in start.fields_by_name
