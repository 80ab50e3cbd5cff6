"""Stream groups share partitions as members come, go and die, in all three protocols."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from .clients import Confluent, Message
from .members import COOPERATIVE, EAGER, NEW_PROTOCOL, Member, settle
from .topics import committed
from .waiting import eventually

EVERY_PROTOCOL = pytest.mark.parametrize(
    "protocol", [EAGER, COOPERATIVE, NEW_PROTOCOL], ids=["eager", "cooperative", "consumer"]
)
Protocol = dict[str, Any]
NewTopicName = Callable[..., str]


@contextmanager
def members_of(
    bootstrap: str, group: str, topic: str, protocol: Protocol, count: int
) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Member(bootstrap, group, [topic], protocol)) for _ in range(count)
        ]


@EVERY_PROTOCOL
def test_a_lone_member_gets_every_partition(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], protocol) as member:
        settle([member], topic, 4)


@EVERY_PROTOCOL
def test_members_share_the_partitions_evenly(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=6)
    with members_of(bootstrap, group, topic, protocol, 3) as members:
        settle(members, topic, 6)
        eventually(lambda: [len(member.assignment) for member in members] == [2, 2, 2])


@EVERY_PROTOCOL
def test_a_joining_member_takes_over_part_of_the_work(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], protocol) as first:
        settle([first], topic, 4)
        with Member(bootstrap, group, [topic], protocol) as second:
            settle([first, second], topic, 4)
            eventually(lambda: len(first.assignment) == len(second.assignment) == 2)


@EVERY_PROTOCOL
def test_a_leaving_members_work_goes_to_the_others(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with members_of(bootstrap, group, topic, protocol, 2) as (first, second):
        settle([first, second], topic, 4)
        first.leave()
        settle([second], topic, 4)


@EVERY_PROTOCOL
def test_a_dead_members_work_goes_to_the_others(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with (
        Member(bootstrap, group, [topic], protocol) as survivor,
        doomed_member(bootstrap, group, topic, protocol) as doomed,
    ):
        eventually(lambda: len(survivor.assignment) == 2, because="the two share the work")
        doomed.kill()
        settle([survivor], topic, 4)


DOOMED = """
import json, sys
from confluent_kafka import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(1)
"""


@contextmanager
def doomed_member(
    bootstrap: str, group: str, topic: str, protocol: Protocol
) -> Iterator[subprocess.Popen[bytes]]:
    """A member in a process of its own, which can be killed before it says goodbye."""
    settings = protocol | {"bootstrap.servers": bootstrap, "group.id": group}
    if protocol is not NEW_PROTOCOL:
        settings |= {"session.timeout.ms": 1_500}
    with subprocess.Popen([sys.executable, "-c", DOOMED, json.dumps(settings), topic]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("protocol", [COOPERATIVE, NEW_PROTOCOL], ids=["cooperative", "consumer"])
def test_partitions_that_do_not_move_are_never_taken_away(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], protocol) as first:
        settle([first], topic, 4)
        with Member(bootstrap, group, [topic], protocol) as second:
            settle([first, second], topic, 4)
            taken = frozenset().union(*first.revoked)
            assert taken == second.assignment
            assert first.assignment.isdisjoint(taken)


def test_an_eager_rebalance_takes_everything_away_first(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], EAGER) as first:
        settle([first], topic, 4)
        everything = first.assignment
        with Member(bootstrap, group, [topic], EAGER) as second:
            settle([first, second], topic, 4)
            assert first.revoked[0] == everything


@EVERY_PROTOCOL
def test_no_message_is_missed_over_a_rebalance(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    client = Confluent(bootstrap)
    values = [b"%d" % number for number in range(600)]

    def write(part: list[bytes]) -> None:
        client.write(topic, [Message(value, key=value) for value in part])

    with Member(bootstrap, group, [topic], protocol) as first:
        write(values[:200])
        eventually(lambda: len(first.messages) >= 200)
        with Member(bootstrap, group, [topic], protocol) as second:
            settle([first, second], topic, 4)
            write(values[200:400])
            eventually(lambda: read_by(first, second) == set(values[:400]))
            first.leave()
            settle([second], topic, 4)
            write(values[400:])
            eventually(lambda: read_by(first, second) == set(values))


def read_by(*members: Member) -> set[bytes | None]:
    return {message.value for member in members for message in member.messages}


@EVERY_PROTOCOL
def test_partitions_added_to_a_topic_are_handed_out(
    protocol: Protocol, bootstrap: str, admin: AdminClient, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=2)
    with Member(bootstrap, group, [topic], protocol) as member:
        settle([member], topic, 2)
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
        settle([member], topic, 5)


@EVERY_PROTOCOL
def test_a_pattern_follows_topics_as_they_appear(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    first = new_topic(partitions=2)
    pattern = "^" + first.removesuffix("-0") + "-[0-9]+$"
    with Member(bootstrap, group, [pattern], protocol) as member:
        settle([member], first, 2)
        second = new_topic(partitions=1)
        eventually(
            lambda: member.assignment == {(first, 0), (first, 1), (second, 0)},
            because="the new topic matches the pattern",
        )


@EVERY_PROTOCOL
def test_more_members_than_partitions_leaves_some_waiting(
    protocol: Protocol, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=2)
    with members_of(bootstrap, group, topic, protocol, 3) as members:
        eventually(lambda: sorted(len(member.assignment) for member in members) == [0, 1, 1])
        busy = [member for member in members if member.assignment]
        busy[0].leave()
        idle = [member for member in members if member is not busy[0]]
        settle(idle, topic, 2)


@EVERY_PROTOCOL
def test_a_leaving_member_commits_what_it_has_read(
    protocol: Protocol, bootstrap: str, topic: str, group: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"%d" % number) for number in range(10)])
    with Member(bootstrap, group, [topic], protocol, auto_commit_interval_ms=3_600_000) as member:
        eventually(lambda: len(member.messages) == 10)
        assert committed(bootstrap, group, topic) == {}
    assert committed(bootstrap, group, topic) == {0: 10}


@EVERY_PROTOCOL
def test_automatic_commits_happen_while_reading(
    protocol: Protocol, bootstrap: str, topic: str, group: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"%d" % number) for number in range(10)])
    with Member(bootstrap, group, [topic], protocol, auto_commit_interval_ms=100):
        eventually(lambda: committed(bootstrap, group, topic) == {0: 10})


@EVERY_PROTOCOL
def test_manual_commits_are_where_the_next_member_starts(
    protocol: Protocol, bootstrap: str, topic: str, group: str
) -> None:
    client = Confluent(bootstrap)
    client.write(topic, [Message(b"%d" % number) for number in range(10)])
    with Member(bootstrap, group, [topic], protocol, enable_auto_commit=False) as member:
        eventually(lambda: len(member.messages) == 10)
        member.commit()
        client.write(topic, [Message(b"uncommitted")])
        eventually(lambda: len(member.messages) == 11)
    with Member(bootstrap, group, [topic], protocol, enable_auto_commit=False) as member:
        eventually(lambda: member.messages)
        assert member.messages[0].value == b"uncommitted"


def test_a_static_member_returns_without_a_rebalance(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], EAGER, group_instance_id="stays") as stays:
        returns = Member(bootstrap, group, [topic], EAGER, group_instance_id="returns")
        settle([stays, returns], topic, 4)
        held, changes = returns.assignment, len(stays.assignments)
        returns.leave()  # a static member says no goodbye
        with Member(bootstrap, group, [topic], EAGER, group_instance_id="returns") as returned:
            eventually(lambda: returned.assignment == held, because="it has its old partitions")
            assert len(stays.assignments) == changes, "the other member noticed nothing"


def test_a_static_member_that_stays_away_is_replaced(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], EAGER, group_instance_id="stays") as stays:
        leaves = Member(
            bootstrap, group, [topic], EAGER, group_instance_id="leaves", session_timeout_ms=1_500
        )
        settle([stays, leaves], topic, 4)
        leaves.leave()
        settle([stays], topic, 4)


def test_a_second_member_with_the_same_instance_id_fences_the_first(
    bootstrap: str, topic: str, group: str
) -> None:
    first = Member(bootstrap, group, [topic], EAGER, group_instance_id="same")
    settle([first], topic, 1)
    with Member(bootstrap, group, [topic], EAGER, group_instance_id="same") as second:
        settle([second], topic, 1)
        eventually(lambda: any("fenced" in error for error in first.errors), because="fenced")
    first.leave()


def test_a_static_member_of_the_new_protocol_gets_its_partitions_back(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with Member(bootstrap, group, [topic], NEW_PROTOCOL, group_instance_id="stays") as stays:
        returns = Member(bootstrap, group, [topic], NEW_PROTOCOL, group_instance_id="returns")
        settle([stays, returns], topic, 4)
        eventually(lambda: len(stays.assignment) == 2)
        held, changes = returns.assignment, len(stays.assignments)
        returns.leave()
        with Member(
            bootstrap, group, [topic], NEW_PROTOCOL, group_instance_id="returns"
        ) as returned:
            eventually(lambda: returned.assignment == held, because="it has its old partitions")
            assert len(stays.assignments) == changes, "the other member noticed nothing"


def test_members_move_from_the_classic_to_the_new_protocol_without_a_stop(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    old = Member(bootstrap, group, [topic], COOPERATIVE)
    settle([old], topic, 4)
    with Member(bootstrap, group, [topic], NEW_PROTOCOL) as new:
        settle([old, new], topic, 4)
        old.leave()
        settle([new], topic, 4)
