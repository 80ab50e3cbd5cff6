"""Whatever a node takes for a command or a fact it can write down and read back."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from goqueue.broker.replication.leaders import Marker
from goqueue.cluster.bootstrap import Ballot, Prepare, decode_question, encode_question
from goqueue.cluster.commands import (
    ChangeInSync,
    ClusterCommand,
    CreateTopic,
    EndRouting,
    Heartbeat,
    PutJob,
    PutNamedQueue,
    Reassign,
    RegisterNode,
    ReserveProducerIds,
    TakeOverProducer,
    decode_command,
    encode_command,
)
from goqueue.cluster.facts import (
    Change,
    Claim,
    JobFact,
    NamedProducer,
    NamedQueueFact,
    NextProducerId,
    NodeFact,
    PartitionFact,
    TopicFact,
    decode_decision,
    encode_decision,
    encode_readable,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.replication.messages import (
    FollowerNotice,
    ReplicaFetch,
    ReplicaReport,
    decode_follower_notice,
    encode_follower_notice,
)
from goqueue.model.batch import encode_marker
from goqueue.model.errors import GoQueueError, MalformedRequest

ID = bytes(16)
EXTREMES = [
    *(-(1 << 63), -(1 << 31), -32768, -2, -1, 0, 1, 5, 32766, 32767, 32768, (1 << 24) + 1),
    *((1 << 30), (1 << 30) + 1, (1 << 31) - 1, 1 << 31, 1 << 48, (1 << 48) + 1, 1 << 62),
    *((1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
]


def commands(number: int) -> list[ClusterCommand]:
    """Commands with this number in every place where there is one."""
    queue = NamedQueueFact(ID, "q", "q", "q", number, number, version=number)
    return [
        CreateTopic(ID, "t", number, {}, number, ((number,),)),
        ReserveProducerIds(number),
        TakeOverProducer("p"),
        RegisterNode(number, b"life", {}),
        Heartbeat(number, b"life", number),
        ChangeInSync(number, ID, number, (number,), {number: b"life"}, number, number),
        Reassign(ID, number, (number,), number),
        EndRouting(number, ID, {number: (number, number)}),
        PutNamedQueue(queue),
        PutNamedQueue(msgspec.structs.replace(queue, version=1, ids_forgotten=((number, number),))),
        PutJob(JobFact("k", "i", b"", number)),
    ]


def facts(number: int) -> list[Change]:
    return [
        TopicFact(ID, "t", number, {}, number),
        NextProducerId(number),
        NamedProducer("p", number, number, number),
        NodeFact(number, b"life"),
        PartitionFact(
            ID,
            number,
            (number,),
            (number,),
            leader=number,
            leader_epoch=number,
            version=number,
            claims=((number, Claim(number, number)),),
        ),
        JobFact("k", "i", b"", number),
    ]


@pytest.mark.parametrize("number", EXTREMES)
def test_what_is_decided_by_a_command_that_was_taken_can_be_read_back(number: int) -> None:
    for command in commands(number):
        try:
            taken = decode_command(encode_command(command))
        except MalformedRequest:
            continue
        decide = getattr(taken, "decide", None)
        if decide is None:
            continue
        for before in (0, 1 << 61):
            metadata = Metadata()
            metadata.apply_all((NextProducerId(before),))
            try:
                decision, _ = decide(metadata)
            except GoQueueError:
                continue
            assert decode_decision(encode_decision(decision)) == decision


@pytest.mark.parametrize("number", EXTREMES)
def test_a_fact_can_be_read_or_is_not_proposed(number: int) -> None:
    for fact in facts(number):
        try:
            data = encode_readable([fact])
        except MalformedRequest:
            continue
        assert decode_decision(data) == (fact,)


@pytest.mark.parametrize("number", [1 << 64, 1 << 80, -(1 << 70)])
def test_a_number_that_cannot_even_be_written_is_refused(number: int) -> None:
    with pytest.raises(MalformedRequest):
        encode_readable([NextProducerId(number)])


@pytest.mark.parametrize("number", EXTREMES)
def test_what_replicas_say_is_refused_or_can_be_said_again(number: int) -> None:
    fetch = ReplicaFetch(
        topic_id=ID,
        partition=number,
        request=number,
        leader_epoch=number,
        last_epoch=number,
        offset=number,
        durable_offset=number,
        start_offset=number,
        bytes_max=number,
        version=number,
    )
    report = ReplicaReport(
        topic_id=ID, partition=number, leader_epoch=number, durable_offset=number
    )
    for notice in (FollowerNotice(b"life", [fetch]), FollowerNotice(b"life", [], [report])):
        try:
            taken = decode_follower_notice(encode_follower_notice(notice))
        except MalformedRequest:
            assert not -1 <= number <= 1 << 30
            continue
        assert taken == notice
        assert number <= 1 << 30  # What follows an epoch fits into a batch.


@pytest.mark.parametrize("number", EXTREMES)
def test_a_marker_that_was_taken_can_be_stored(number: int) -> None:
    decoder = msgspec.msgpack.Decoder(Marker)
    made = [
        Marker(ID, 0, number, 0, True, 0, 0, 0),
        Marker(ID, 0, 0, number, True, 0, 0, 0),
        Marker(ID, 0, 0, 0, True, number, 0, 0),
    ]
    for marker in made:
        try:
            taken = decoder.decode(msgspec.msgpack.encode(marker))
        except msgspec.ValidationError:
            continue
        encode_marker(
            is_commit=taken.is_commit,
            producer_id=taken.producer_id,
            producer_epoch=taken.producer_epoch,
            coordinator_epoch=taken.coordinator_epoch,
            timestamp_ms=0,
        )


@pytest.mark.parametrize("number", EXTREMES)
def test_rounds_of_founding_stay_within_what_can_be_stored(number: int) -> None:
    question = Prepare(Ballot(number, 1, b"disk"), (1, 2, 3), True)
    try:
        taken = decode_question(encode_question(question))
    except MalformedRequest:
        assert not 0 <= number <= 1 << 48
        return
    assert taken == question


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_and_changed_ones_raise_nothing_else(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(100):
        some: Any = source.choice(commands(source.choice(EXTREMES)))
        data = bytearray(encode_command(some))
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        for text in (bytes(data), source.randbytes(source.randrange(60))):
            try:
                command = decode_command(text)
            except MalformedRequest:
                continue
            assert decode_command(encode_command(command)) == command
