"""Both protocols against botocore's own reading of the service: nothing is lost on the way."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import botocore.session
import msgspec
import pytest
from botocore.model import ServiceModel, Shape
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from goqueue.wire.sqs import json_codec, query_codec
from goqueue.wire.sqs.errors import QueueDoesNotExist, SqsError
from goqueue.wire.sqs.shapes import SHAPES
from tests.integration.sqs import connect

TEXT = "a <b> & \"c\" 'é' \U0001f600 \t\r\n;d=1"
MODELS = {
    protocol: connect("http://goqueue.test", protocol=protocol).meta.service_model
    for protocol in ("json", "query")
}


def sample(shape: Shape) -> Any:
    """A value of a shape with everything that it can have."""
    if shape.type_name == "structure":
        return {name: sample(member) for name, member in shape.members.items()}
    if shape.type_name == "list":
        return [sample(shape.member), sample(shape.member)]
    if shape.type_name == "map":
        return {"one": sample(shape.value), "two.three": sample(shape.value)}
    plain = {"string": TEXT, "integer": 7, "long": 1 << 40, "boolean": True, "blob": b"\0\xff a"}
    return plain[shape.type_name]


def decode(protocol: str, action: str, parameters: Any) -> Any:
    """What our side reads of what botocore writes."""
    operation = MODELS[protocol].operation_model(action)
    sent = create_serializer(protocol, include_validation=False).serialize_to_request(
        parameters, operation
    )
    shape = SHAPES[action][0]
    if protocol == "json":
        assert sent["headers"]["X-Amz-Target"] == f"AmazonSQS.{action}"
        body = sent["body"]
        return json_codec.decode(body if isinstance(body, bytes) else body.encode(), shape)
    form = query_codec.read_form(b"", urlencode(sent["body"]).encode())
    assert form["Action"] == action
    return query_codec.decode(form, shape)


def parse(protocol: str, action: str, body: bytes) -> Any:
    """What botocore reads of what our side writes."""
    operation = MODELS[protocol].operation_model(action)
    answer = {"status_code": 200, "headers": {}, "body": body}
    parsed = create_parser(protocol).parse(answer, operation.output_shape)
    parsed.pop("ResponseMetadata", None)
    return parsed


def plain(value: Any) -> Any:
    """A struct as the dictionary that botocore has of it."""
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def test_all_actions_are_in_the_table() -> None:
    assert set(SHAPES) == set(MODELS["json"].operation_names)


@pytest.mark.parametrize("action", SHAPES)
@pytest.mark.parametrize("protocol", MODELS)
def test_input_is_read_whole(protocol: str, action: str) -> None:
    operation = MODELS[protocol].operation_model(action)
    whole = sample(operation.input_shape)
    assert plain(decode(protocol, action, whole)) == whole
    assert plain(decode(protocol, action, {})) == {}


@pytest.mark.parametrize("action", SHAPES)
@pytest.mark.parametrize("protocol", MODELS)
def test_answers_are_understood_whole(protocol: str, action: str) -> None:
    operation = MODELS[protocol].operation_model(action)
    whole = {} if operation.output_shape is None else sample(operation.output_shape)
    answer = msgspec.convert(whole, SHAPES[action][1], builtin_types=(bytes,))
    if protocol == "json":
        body = json_codec.encode_answer(answer)
    else:
        body = query_codec.encode_answer(action, answer, "the-id")
    assert parse(protocol, action, body) == whole


@pytest.mark.parametrize("error", SqsError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_refusals_are_understood(error: type[SqsError]) -> None:
    """Their texts too, whatever is in them."""
    made = error.__new__(error)
    Exception.__init__(made, "a <b> & \0 é")
    body = query_codec.encode_error(made, "the-id")
    parsed = create_parser("query").parse(
        {"status_code": error.status, "headers": {}, "body": body}, None
    )
    assert parsed["Error"]["Code"] == error.query_name
    assert parsed["ResponseMetadata"]["RequestId"] == "the-id"
    assert parsed["Error"]["Type"] == ("Sender" if error.status < 500 else "Receiver")
    if error is not QueueDoesNotExist:
        assert parsed["Error"]["Message"] == "a <b> & \ufffd é"
    spoken = msgspec.json.decode(json_codec.encode_error(made))
    assert spoken["__type"].endswith(f"#{error.name}")
    assert spoken["message"] == "a <b> & \0 é"


def test_lists_are_taken_in_the_order_of_their_numbers() -> None:
    form = query_codec.read_form(b"AttributeName.10=c&AttributeName.2=b&AttributeName.1=a")
    assert query_codec.decode(form, SHAPES["GetQueueAttributes"][0]).attribute_names == [
        "a",
        "b",
        "c",
    ]


def test_one_name_without_a_number_is_a_list_too() -> None:
    form = query_codec.read_form(b"AttributeName=All")
    assert query_codec.decode(form, SHAPES["GetQueueAttributes"][0]).attribute_names == ["All"]


@pytest.mark.parametrize("action", SHAPES)
def test_nonsense_gets_a_clean_error(action: str) -> None:
    """Random bytes, and bytes that are nearly right, are read or refused, and never worse."""
    chance = random.Random(action)
    operation = MODELS["json"].operation_model(action)
    whole = sample(operation.input_shape)
    for protocol in MODELS:
        good = serialized(protocol, action, whole)
        for _ in range(60):
            data = bytearray(good if chance.random() < 0.7 else chance.randbytes(200))
            for _ in range(chance.randrange(1, 8)):
                at = chance.randrange(len(data))
                data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
                if not data:
                    break
            with suppress(SqsError):
                if protocol == "json":
                    json_codec.decode(bytes(data), SHAPES[action][0])
                else:
                    form = query_codec.read_form(bytes(data))
                    query_codec.decode(form, SHAPES[action][0])


def serialized(protocol: str, action: str, parameters: Any) -> bytes:
    operation = MODELS[protocol].operation_model(action)
    body = create_serializer(protocol, include_validation=False).serialize_to_request(
        parameters, operation
    )["body"]
    if protocol == "query":
        return urlencode(body).encode()
    return body if isinstance(body, bytes) else bytes(body.encode())


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (b"{", "SendMessage"),
        (b"[]", "SendMessage"),
        (b'{"MessageBody": 7}', "SendMessage"),
        (b'{"DelaySeconds": "soon"}', "SendMessage"),
        (b'{"MessageBody": "\\ud800"}', "SendMessage"),
        (b'{"MessageBody": "\xff"}', "SendMessage"),
        (b"[" * 100_000, "SendMessage"),
        (b'{"MessageAttributes": {"a": {"BinaryValue": "?"}}}', "SendMessage"),
    ],
)
def test_bad_json_is_refused(data: bytes, shape: str) -> None:
    with pytest.raises(SqsError) as error:
        json_codec.decode(data, SHAPES[shape][0])
    assert error.value.name == "SerializationException"


@pytest.mark.parametrize(
    "data",
    [b"a=%ff", b"\xff=1", b"&".join(b"a%d=1" % one for one in range(6000))],
    ids=["no UTF-8", "no ASCII", "too many parameters"],
)
def test_bad_forms_are_refused(data: bytes) -> None:
    with pytest.raises(SqsError) as error:
        query_codec.read_form(data)
    assert error.value.query_name == "MalformedInput"


def test_the_models_are_those_of_botocore() -> None:
    """The one of the Query protocol is made here, so it must still be the same service."""
    model: ServiceModel = botocore.session.get_session().get_service_model("sqs")
    assert MODELS["query"].operation_names == model.operation_names
    assert MODELS["query"].metadata["protocol"] == "query"
