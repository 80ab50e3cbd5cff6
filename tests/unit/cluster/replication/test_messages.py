"""Notices between replicas survive the way there and back; nothing else passes for one."""

from __future__ import annotations

import random

import msgspec
import pytest

from goqueue.cluster.replication import (
    FetchStatus,
    FollowerNotice,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    Served,
    decode_answers,
    decode_follower_notice,
    encode_answers,
    encode_follower_notice,
)
from goqueue.model.errors import MalformedRequest

FETCH = ReplicaFetch(
    topic_id=b"t" * 16,
    partition=3,
    request=7,
    leader_epoch=5,
    last_epoch=-1,
    offset=1 << 40,
    durable_offset=12,
    start_offset=0,
    bytes_max=1 << 20,
)
REPORT = ReplicaReport(topic_id=b"t" * 16, partition=3, leader_epoch=5, durable_offset=99)
NOTICE = FollowerNotice(b"i" * 16, [FETCH, FETCH], [REPORT])
DIVERGING = ReplicaFetched(
    topic_id=b"t" * 16,
    partition=3,
    request=7,
    leader_epoch=5,
    last_epoch=4,
    offset=99,
    status=FetchStatus.DIVERGING,
    high_watermark=70,
    start_offset=10,
    diverging_epoch=3,
    diverging_end=60,
)
GOOD = msgspec.structs.replace(DIVERGING, status=FetchStatus.OK, batches_bytes=5)
BETTER = msgspec.structs.replace(GOOD, partition=4, batches_bytes=3)


def test_what_a_follower_says_comes_back_as_it_was() -> None:
    assert decode_follower_notice(encode_follower_notice(NOTICE)) == NOTICE


def test_answers_come_back_each_with_its_batches() -> None:
    head = encode_answers([GOOD, DIVERGING, BETTER])
    assert list(decode_answers(head, memoryview(b"aaaaabbb"))) == [
        Served(GOOD, b"aaaaa"),
        Served(DIVERGING, b""),
        Served(BETTER, b"bbb"),
    ]


@pytest.mark.parametrize("body", [b"", b"aaaaa", b"aaaaabbbc"])
def test_answers_whose_batches_are_missing_or_too_many_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_answers(encode_answers([GOOD, BETTER]), memoryview(body))


def test_part_of_a_notice_is_none() -> None:
    told, answered = encode_follower_notice(NOTICE), encode_answers([DIVERGING])
    for end in range(len(told)):
        with pytest.raises(MalformedRequest):
            decode_follower_notice(told[:end])
    for end in range(len(answered)):
        with pytest.raises(MalformedRequest):
            decode_answers(answered[:end], memoryview(b""))


def test_random_bytes_are_refused_and_nothing_worse() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        is_told = chance.random() < 0.5
        data = bytearray(encode_follower_notice(NOTICE) if is_told else encode_answers([GOOD]))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            if is_told:
                decode_follower_notice(bytes(data))
            else:
                list(decode_answers(bytes(data), memoryview(b"aaaaa")))
        except MalformedRequest:
            pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", -2),
        ("offset", 1 << 63),
        ("durable_offset", -2),
        ("leader_epoch", 1 << 31),
        ("topic_id", b"t" * 17),
    ],
)
def test_numbers_that_no_log_can_have_are_refused(name: str, value: object) -> None:
    fetch = msgspec.structs.replace(FETCH, **{name: value})
    with pytest.raises(MalformedRequest):
        decode_follower_notice(encode_follower_notice(FollowerNotice(b"", [fetch])))


def test_an_answer_cannot_have_fewer_bytes_than_none() -> None:
    # Another answer could make up for it, and take bytes that are not its own.
    answers = [
        msgspec.structs.replace(GOOD, batches_bytes=-3),
        msgspec.structs.replace(GOOD, batches_bytes=8),
    ]
    with pytest.raises(MalformedRequest):
        decode_answers(encode_answers(answers), memoryview(b"aaaaa"))


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        decode_follower_notice(b"\x09" + encode_follower_notice(NOTICE)[1:])
    with pytest.raises(MalformedRequest):
        decode_answers(b"\x09" + encode_answers([GOOD])[1:], memoryview(b"aaaaa"))
