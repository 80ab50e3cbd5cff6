"""What SQS allows and what it refuses, one rule at a time."""

from __future__ import annotations

import inspect
from random import Random
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from goqueue.model import errors
from goqueue.model.batch import Header
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier import problems
from goqueue.wire.sqs import message_attributes, policies, queue_attributes
from goqueue.wire.sqs.errors import SqsError, told
from goqueue.wire.sqs.front_end import SqsRules
from goqueue.wire.sqs.ids import new_id, new_ids
from goqueue.wire.sqs.names import Site, check_name, name_of_arn
from goqueue.wire.sqs.paging import page_of
from goqueue.wire.sqs.shapes import AttributeValue
from goqueue.wire.sqs.task_handles import read_handle, write_handle
from goqueue.wire.sqs.text import FORBIDDEN, decode_text, is_plain

ARN = "arn:aws:sqs:us-east-1:000000000000:dead"
SITE = Site("us-east-1", "000000000000")


def _errors(module: Any) -> list[type[GoQueueError]]:
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, GoQueueError) and kind not in (GoQueueError, problems.HttpError)
    ]


@pytest.mark.parametrize(
    "kind", dict.fromkeys([*_errors(errors), *_errors(problems)]), ids=lambda kind: kind.__name__
)
def test_every_error_is_told_in_words_of_sqs(kind: type[GoQueueError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "what to do")
    refusal = told(error)
    assert refusal.status >= 400
    assert str(refusal)
    is_ours = problems.status_of(error) >= 500
    assert refusal.is_of_sender != is_ours
    if kind.retryable and is_ours:
        assert refusal.status == 503  # which every SDK tries again


# Names


@pytest.mark.parametrize("name", ["a", "A_b-9", "x" * 80])
def test_good_names(name: str) -> None:
    assert check_name(name, is_fifo=False) == name


@pytest.mark.parametrize("name", ["", None, "a b", "a.b", "é", "x" * 81, "a.fifo", "a/b"])
def test_bad_names(name: str | None) -> None:
    with pytest.raises(SqsError):
        check_name(name, is_fifo=False)


@pytest.mark.parametrize("name", ["a", ".fifo", "a.FIFO", "x" * 76 + ".fifo", "a.b.fifo"])
def test_bad_names_of_fifo_queues(name: str) -> None:
    with pytest.raises(SqsError):
        check_name(name, is_fifo=True)
    assert check_name("x" * 75 + ".fifo", is_fifo=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324/000000000000/orders",
        "https://sqs.eu-west-1.amazonaws.com/000000000000/orders/",
        "/000000000000/orders?x=1",
        "/orders",
        "orders",
    ],
)
def test_a_queue_is_known_by_its_address(url: str) -> None:
    assert SITE.name_of_url(url) == "orders"


def test_an_address_of_another_account_is_refused() -> None:
    with pytest.raises(SqsError, match=r"sqs\.account_id"):
        SITE.name_of_url("http://localhost:9324/123456789012/orders")
    assert Site("us-east-1", "123456789012").name_of_url("/123456789012/orders") == "orders"


def test_an_arn_of_another_region_or_account_is_no_queue_of_this_node() -> None:
    assert SITE.name_of_arn(ARN) == "dead"
    assert SITE.name_of_arn(ARN.replace("us-east-1", "")) == "dead"
    assert SITE.name_of_arn(ARN.replace("us-east-1", "eu-west-1")) is None
    assert SITE.name_of_arn(ARN.replace("000000000000", "123456789012")) is None
    assert SITE.arn_of("dead") == ARN


@pytest.mark.parametrize("arn", ["", "dead", "arn:aws:sns:us-east-1:000000000000:dead", ARN + ":x"])
def test_what_is_no_arn_of_a_queue(arn: str) -> None:
    assert name_of_arn(arn) is None
    assert name_of_arn(ARN) == "dead"


# Attributes of queues


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("VisibilityTimeout", ["0", "43200", "007"], ["-1", "43201", "", "1.5", "x", "9" * 40]),
        ("DelaySeconds", ["0", "900"], ["901", "-1"]),
        ("MaximumMessageSize", ["1024", "1048576"], ["1023", "1048577"]),
        ("MessageRetentionPeriod", ["60", "1209600"], ["59", "1209601"]),
        ("ReceiveMessageWaitTimeSeconds", ["0", "20"], ["21"]),
        ("KmsDataKeyReusePeriodSeconds", ["60", "86400"], ["59", "86401"]),
        ("SqsManagedSseEnabled", ["true", "False"], ["yes", ""]),
    ],
)
def test_ranges_of_attributes(name: str, good: list[str], bad: list[str]) -> None:
    def check(text: str) -> dict[str, str]:
        return queue_attributes.check_attributes(
            {name: text}, SqsRules(), is_of_fifo=False, is_new=True
        )

    assert [name in check(text) for text in good] == [True] * len(good)
    for text in bad:
        with pytest.raises(SqsError) as error:
            check(text)
        assert error.value.name == "InvalidAttributeValue"


@pytest.mark.parametrize(
    "name", ["Nonsense", "QueueArn", "ApproximateNumberOfMessages", "ContentBasedDeduplication"]
)
def test_what_cannot_be_set(name: str) -> None:
    with pytest.raises(SqsError) as error:
        queue_attributes.check_attributes({name: "true"}, SqsRules(), is_of_fifo=False, is_new=True)
    assert error.value.name == "InvalidAttributeName"


def test_throughput_per_group_needs_the_scope_of_a_group() -> None:
    queue_attributes.check_together(
        {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    )
    with pytest.raises(SqsError):
        queue_attributes.check_together(
            {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "queue"}
        )


# Policies


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"maxReceiveCount": 1}',
        f'{{"deadLetterTargetArn": "{ARN}"}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 0}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 1001}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": true}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": "many"}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 1, "more": 1}}',
        '{"deadLetterTargetArn": "dead", "maxReceiveCount": 1}',
        '{"deadLetterTargetArn": 7, "maxReceiveCount": 1}',
    ],
)
def test_bad_redrive_policies(text: str) -> None:
    with pytest.raises(SqsError) as error:
        policies.RedrivePolicy.parse(text)
    assert error.value.query_name == "InvalidParameterValue"


@pytest.mark.parametrize("count", ["3", 3])
def test_a_redrive_policy_is_kept_in_one_form(count: object) -> None:
    text = f'{{"maxReceiveCount": "{count}", "deadLetterTargetArn": "{ARN}"}}'
    policy = policies.RedrivePolicy.parse(text)
    assert (policy.target, policy.receive_count_max) == ("dead", 3)
    assert policies.RedrivePolicy.parse(policy.text) == policy


@pytest.mark.parametrize(
    ("text", "lets_in"),
    [
        ('{"redrivePermission": "allowAll"}', True),
        ('{"redrivePermission": "denyAll"}', False),
        (f'{{"redrivePermission": "byQueue", "sourceQueueArns": ["{ARN}"]}}', True),
        (f'{{"redrivePermission": "byQueue", "sourceQueueArns": ["{ARN}2"]}}', False),
    ],
)
def test_a_queue_says_whose_dead_letters_it_takes(text: str, lets_in: bool) -> None:
    assert policies.lets_in(policies.normal_allow_policy(text), "dead") == lets_in
    assert policies.lets_in("{}", "dead")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"redrivePermission": "some"}',
        '{"redrivePermission": "byQueue"}',
        '{"redrivePermission": "byQueue", "sourceQueueArns": ["x"]}',
        f'{{"redrivePermission": "allowAll", "sourceQueueArns": ["{ARN}"]}}',
    ],
)
def test_bad_redrive_allow_policies(text: str) -> None:
    with pytest.raises(SqsError):
        policies.normal_allow_policy(text)


# Attributes of messages


def _value(data_type: str | None, text: str | None = "1", raw: bytes | None = None) -> Any:
    return AttributeValue(string_value=text, binary_value=raw, data_type=data_type)


@pytest.mark.parametrize(
    "attributes",
    [
        {"": _value("String")},
        {".a": _value("String")},
        {"a..b": _value("String")},
        {"AWS.x": _value("String")},
        {"amazon.x": _value("String")},
        {"a b": _value("String")},
        {"x" * 257: _value("String")},
        {"a": _value(None)},
        {"a": _value("Text")},
        {"a": _value("String", "")},
        {"a": _value("Binary", "1")},
        {"a": _value("Number", "one")},
        {"a": _value("String", "\0")},
        {str(n): _value("String") for n in range(11)},
        {"a": AttributeValue(string_list_values=["1"], data_type="String")},
    ],
)
def test_bad_message_attributes(attributes: dict[str, AttributeValue]) -> None:
    with pytest.raises(SqsError):
        message_attributes.check_attributes(attributes)


@pytest.mark.parametrize("number", ["0", "-1", "+1.5", ".5", "1e10", "-1.5E-7", "1" * 38])
def test_numbers(number: str) -> None:
    message_attributes.check_attributes({"a": _value("Number.float", number)})


def test_attributes_come_back_from_headers_as_they_were() -> None:
    given = {
        "a": _value("String"),
        "b": _value("Number.int", "7"),
        "c": _value("Binary.png", None, b"\xff"),
        "sqs.types": _value("String", "mine"),
        "goqueue-dead-topic": _value("String", "mine as well"),
        "goqueue-redriven-from": _value("String", "and mine"),
        "AWSTraceHeader": _value("String", "mine too"),
    }
    headers = message_attributes.to_headers(given, "Root=1", 123)
    read = message_attributes.read_headers(headers)
    assert read.attributes == given
    assert (read.trace, read.sent_ms) == ("Root=1", 123)
    only = message_attributes.to_headers(None, "Root=2", None)
    assert message_attributes.read_headers(only) == message_attributes.Read({}, trace="Root=2")


@pytest.mark.parametrize(
    "header",
    [
        ("sqs.types", b"nonsense"),
        ("sqs.types", b'{"a": 1}'),
        ("sqs.sent", b"soon"),
        ("sqs.id", b""),
        ("sqs.id", None),
        ("AWSTraceHeader", b"\xff"),
        ("x", None),
    ],
)
def test_headers_of_our_names_that_others_wrote_do_no_harm(header: Header) -> None:
    read = message_attributes.read_headers((header, ("a", b"1")))
    assert read.attributes["a"].string_value == "1"
    assert (read.message_id, read.sent_ms) == (None, None)


@pytest.mark.parametrize("text", ["", "a é \t\r\n \U0001f600 \ufffd", "\x7f\x80\ud7ff\ue000"])
def test_text_that_sqs_carries(text: str) -> None:
    assert message_attributes.encode_text(text) == text.encode()
    assert decode_text(text.encode()) == text


def test_what_is_forbidden_in_text_is_so_in_its_bytes() -> None:
    """One test is for characters and one for bytes; they must not differ."""
    for number in (*range(0x20), 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFE, 0x10FFFF):
        text = f"a{chr(number)}b"
        assert is_plain(text.encode()) == (FORBIDDEN.search(text) is None), hex(number)
    for bad in (b"\xff", b"\xed\xa0\x80"):
        assert decode_text(bad) is None
    with pytest.raises(SqsError):
        message_attributes.encode_text("\ud800")


def test_ids_are_uuids_and_differ() -> None:
    chance = Random(1)
    ids = [*new_ids(chance, 99), new_id(chance)]
    assert len(set(ids)) == 100
    assert {UUID(one).version for one in ids} == {4}
    assert {UUID(one).variant for one in ids} == {RFC_4122}


# What a node remembers


def test_pages_go_through_all_names() -> None:
    names = [f"q{n:02}" for n in range(25)]
    found: list[str] = []
    token = None
    while True:
        page, token = page_of(names, 10, token)
        found += page
        if token is None:
            break
    assert found == names
    assert page_of(names, None, None) == (names, None)
    for count, bad in ((0, None), (1001, None), (1, "\xff")):
        with pytest.raises(SqsError):
            page_of(names, count, bad)


def test_handles_of_tasks_are_read_back() -> None:
    assert read_handle(write_handle(ARN, "job")) == (ARN, "job")
    for bad in (None, "", "x", "e30=", "?"):
        with pytest.raises(SqsError):
            read_handle(bad)
