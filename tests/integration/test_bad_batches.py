"""Batches that break a rule get the error that Apache Kafka gives, and none harms a consumer.

With GOQUEUE_TEST_PEER=kafka the same batches go to Apache Kafka, whose answers are in
`bad_batch_answers.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from goqueue.model.batch import read_header
from goqueue.model.compression import Compression

from .bad_batch_answers import (
    APPEND_TIME_ANSWERS,
    COMPACTED_ANSWERS,
    DIFFERENT,
    FRAME_ANSWERS,
    PACKED_ANSWERS,
    PACKED_RECOMPRESSED_ANSWERS,
    PACKED_RECORD_ANSWERS,
    RECOMPRESSED_ANSWERS,
    RECORD_ANSWERS,
    RECORD_ERRORS,
)
from .bad_batches import FRAME_CASES, PACKED_CASES, RECORD_CASES, Make, Produced, produce
from .clients import Confluent
from .conftest import PEER
from .topics import FOREVER, leader_address
from .wire import FETCH, connect, fetch_v4, fetched_v4

NONE, ZSTD = Compression.NONE, Compression.ZSTD
PACKED = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
RECOMPRESSED = {"compression.type": "gzip"}
NO_CONFIG: dict[str, str] = {}

NewTopic = Callable[..., str]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _answers(
    bootstrap: str, topic: str, cases: Mapping[str, Make], codec: Compression
) -> dict[str, Produced]:
    answers = {}
    leader = leader_address(bootstrap, topic)
    for name, make in cases.items():
        with connect(leader) as wire:
            answers[name] = produce(wire, topic, bytes(make(_now_ms(), codec)))
    return answers


def _expected(answers: Mapping[str, int]) -> dict[str, int]:
    """Kafka's answers when Kafka is asked, and else GoQueue's."""
    if PEER == "kafka":
        return dict(answers)
    return {name: DIFFERENT.get(name, (code, ""))[0] for name, code in answers.items()}


@pytest.mark.parametrize(
    ("codec", "config", "others"),
    [
        pytest.param(NONE, NO_CONFIG, {}, id="plain"),
        *[
            pytest.param(codec, NO_CONFIG, PACKED_RECORD_ANSWERS, id=codec.name.lower())
            for codec in PACKED
        ],
        pytest.param(NONE, APPEND_TIME, APPEND_TIME_ANSWERS, id="append time"),
        pytest.param(
            ZSTD, APPEND_TIME, PACKED_RECORD_ANSWERS | APPEND_TIME_ANSWERS, id="append time, zstd"
        ),
        pytest.param(NONE, RECOMPRESSED, RECOMPRESSED_ANSWERS, id="recompressed"),
        pytest.param(ZSTD, RECOMPRESSED, PACKED_RECOMPRESSED_ANSWERS, id="recompressed, zstd"),
    ],
)
def test_bad_records_are_answered_as_by_kafka(
    codec: Compression,
    config: dict[str, str],
    others: dict[str, int],
    bootstrap: str,
    new_topic: NewTopic,
) -> None:
    topic = new_topic(**FOREVER | config)
    answers = _answers(bootstrap, topic, RECORD_CASES, codec)
    codes = {name: answer.error for name, answer in answers.items()}
    assert codes == _expected(RECORD_ANSWERS | others)
    if config is NO_CONFIG:
        assert _record_errors(answers) == _named(RECORD_CASES)
    if PEER != "kafka":  # which stores some that cannot be read
        stored = sum(
            read_header(RECORD_CASES[name](0, NONE)).record_count
            for name, answer in answers.items()
            if answer.error == 0
        )
        assert len(Confluent(bootstrap).read(topic, stored)) == stored


def _record_errors(answers: Mapping[str, Produced]) -> dict[str, list[int]]:
    named = {name: [index for index, _ in one.record_errors] for name, one in answers.items()}
    return {name: indexes for name, indexes in named.items() if indexes and name in RECORD_ERRORS}


def _named(cases: Mapping[str, Make]) -> dict[str, list[int]]:
    return {name: indexes for name, indexes in RECORD_ERRORS.items() if name in cases}


def test_bad_frames_are_answered_as_by_kafka(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(**FOREVER)
    answers = _answers(bootstrap, topic, FRAME_CASES, NONE)
    assert {name: one.error for name, one in answers.items()} == _expected(FRAME_ANSWERS)


def test_a_compacted_topic_refuses_records_without_keys(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(**FOREVER | {"cleanup.policy": "compact"})
    answers = _answers(bootstrap, topic, FRAME_CASES, NONE)
    codes = {name: one.error for name, one in answers.items()}
    assert codes == _expected(FRAME_ANSWERS | COMPACTED_ANSWERS)
    assert _record_errors(answers) == _named(FRAME_CASES)


@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name.lower())
def test_bytes_that_cannot_be_unpacked_are_refused(
    codec: Compression, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(**FOREVER)
    answers = _answers(bootstrap, topic, PACKED_CASES, codec)
    codes = {name: one.error for name, one in answers.items()}
    assert codes == _expected(PACKED_ANSWERS[codec.name])


@pytest.mark.parametrize("codec", [NONE, ZSTD], ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize(
    ("name", "newest_ms"),
    [
        ("record times later than the batch's", -4000),
        ("batch time later than its records'", -5000),
        ("batch time in the far future, not its records'", 0),
    ],
)
def test_a_batch_gets_the_time_of_its_newest_record(
    name: str,
    newest_ms: int,
    codec: Compression,
    bootstrap: str,
    new_topic: NewTopic,
) -> None:
    topic = new_topic(**FOREVER)
    now_ms = _now_ms()
    with connect(leader_address(bootstrap, topic)) as wire:
        assert produce(wire, topic, bytes(RECORD_CASES[name](now_ms, codec))).error == 0
        wire.request(FETCH, 4, fetch_v4(topic))
        body = wire.answer()[1]
    size = fetched_v4(body)[2]
    assert read_header(body[-size:]).max_timestamp == now_ms + newest_ms
