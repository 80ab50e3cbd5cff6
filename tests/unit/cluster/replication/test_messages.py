"""Messages between replicas survive the way there and back; nothing else passes for one."""

from __future__ import annotations

import random

import msgspec
import pytest

from goqueue.cluster.replication import (
    FetchStatus,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    decode_message,
    encode_message,
)
from goqueue.cluster.replication.messages import Message
from goqueue.model.errors import MalformedRequest

MESSAGES: list[Message] = [
    ReplicaFetch(
        topic_id=b"t" * 16,
        partition=3,
        request=7,
        leader_epoch=5,
        last_epoch=-1,
        offset=1 << 40,
        durable_offset=12,
        start_offset=0,
        bytes_max=1 << 20,
    ),
    ReplicaFetched(
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
    ),
    ReplicaReport(topic_id=b"t" * 16, partition=3, leader_epoch=5, durable_offset=99),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("message", MESSAGES)
def test_part_of_a_message_is_none(message: Message) -> None:
    data = encode_message(message)
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_message(data[:end])


def test_random_bytes_are_refused_and_nothing_worse() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        data = bytearray(encode_message(chance.choice(MESSAGES)))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            decode_message(bytes(data))
        except MalformedRequest:
            pass


@pytest.mark.parametrize(
    ("name", "value"), [("offset", -2), ("offset", 1 << 63), ("leader_epoch", 1 << 31)]
)
def test_numbers_that_no_log_can_have_are_refused(name: str, value: int) -> None:
    message = msgspec.structs.replace(MESSAGES[0], **{name: value})
    with pytest.raises(MalformedRequest):
        decode_message(encode_message(message))


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        decode_message(b"\x09" + encode_message(MESSAGES[0])[1:])
