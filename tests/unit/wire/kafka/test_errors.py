"""The one table from our errors to Kafka's codes."""

from __future__ import annotations

import inspect

import kafka.errors
import pytest

from goqueue.model import errors
from goqueue.wire.kafka.errors import CODES, ErrorCode, code_of, message_of

OURS = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, errors.GoQueueError) and one is not errors.GoQueueError
]
THEIRS = {
    one.errno: one.message
    for _, one in inspect.getmembers(kafka.errors, inspect.isclass)
    if issubclass(one, kafka.errors.BrokerResponseError)
}


@pytest.mark.parametrize("error", OURS)
def test_every_error_has_a_code(error: type[errors.GoQueueError]) -> None:
    assert error in CODES, (
        f"{error.__name__} of goqueue.model.errors has no code in goqueue.wire.kafka.errors; "
        "a client that meets it would be hung up on."
    )


def test_the_table_names_nothing_that_is_not_an_error_of_ours() -> None:
    assert set(CODES) == set(OURS)


@pytest.mark.parametrize("error", OURS)
def test_no_error_passes_for_success(error: type[errors.GoQueueError]) -> None:
    assert CODES[error] not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code > 0])
def test_every_code_has_the_name_that_another_library_gives_it(code: ErrorCode) -> None:
    if code in THEIRS:
        assert _alike(THEIRS[code]) == _alike(code.name)


def _alike(name: str) -> str:
    """Names as far as libraries agree about them."""
    for more in ("_ERROR", "_NUMBER", "INVALID_", "UNSUPPORTED_"):
        name = name.replace(more, "")
    return {
        "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
        "REPLICATION_ASSIGNMENT": "REPLICA_ASSIGNMENT",
        "GROUP_LOAD_IN_PROGRESS": "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
        "TOPIC_EXCEPTION": "TOPIC",
    }.get(name, name)


def test_an_error_is_translated_by_its_class() -> None:
    assert code_of(errors.UnknownTopic("orders")) == 3
    assert code_of(errors.RequestTooLarge("huge")) == ErrorCode.INVALID_REQUEST


def test_settings_are_named_as_tools_know_them() -> None:
    error = errors.InvalidTopicSetting("it is no number.", setting="retention_ms")
    assert "retention.ms" in message_of(error)
    assert message_of(errors.UnknownTopic("orders")) == str(errors.UnknownTopic("orders"))
