"""Share consumers that misbehave cost nobody else anything: records come to another at once."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from goqueue.wire.kafka.errors import ErrorCode
from tests.judge.asking import Asking
from tests.judge.share_cases import ACCEPT, Member, acquired

from .conftest import NewTopicName
from .sharing import commit, configure, fill, received, share_consumer, text
from .topics import leader_address
from .waiting import eventually

pytestmark = pytest.mark.single_node("its requests by hand go to one node")

SOON_SECONDS = 20  # long before a lock of 30 s is over
LARGE = "x" * 100_000
MEMBERS = 30


class Impatient(Asking):
    """A client that resets its connection while it waits for an answer, or reads one."""

    reads_max: int | None = None  # how much of the next answer it reads

    def _exactly(self, size: int) -> bytes:
        if self.reads_max is None:
            return super()._exactly(size)
        if self.reads_max:
            self._socket.recv(self.reads_max)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
        raise ConnectionAbortedError


def values_of_another(bootstrap: str, group: str, topic: str, count: int) -> dict[str, int]:
    """What a good consumer gets soon, with its delivery counts."""
    found: dict[str, int] = {}

    with share_consumer(bootstrap, group, topic) as consumer:

        def has_all() -> bool:
            for one in received(consumer):
                found[text(one)[:10]] = one.delivery_count()
                consumer.acknowledge(one)
            commit(consumer)
            return len(found) == count

        eventually(has_all, within=SOON_SECONDS)
    return found


def member_at(bootstrap: str, ask: Asking, group: str, topic: str, **fields: Any) -> Member:
    member = Member(ask, group, topic, **fields)
    member.join()
    return member


def test_records_of_an_answer_that_was_not_read_come_to_another(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, share_auto_offset_reset="earliest")
    fill(bootstrap, topic, [f"{number:10}{LARGE}" for number in range(40)])
    with Impatient(leader_address(bootstrap, topic)) as ask:
        member = member_at(bootstrap, ask, unique, topic)
        assert member.fetch(0).error_code == 0  # A group that has begun has a session.
        ask.reads_max = 1_000
        with pytest.raises(ConnectionAbortedError):
            member.fetch(1, max_bytes=8 << 20)
    found = values_of_another(bootstrap, unique, topic, 40)
    assert max(found.values()) == 2


def test_a_consumer_that_hangs_up_while_it_waits_gets_nothing_afterwards(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, share_auto_offset_reset="earliest")
    with Impatient(leader_address(bootstrap, topic)) as ask:
        member = member_at(bootstrap, ask, unique, topic)
        assert acquired(member.fetch(0)) == []
        ask.reads_max = 0
        with pytest.raises(ConnectionAbortedError):
            member.fetch(1, max_wait_ms=30_000)
    fill(bootstrap, topic, ["a", "b"])
    assert set(values_of_another(bootstrap, unique, topic, 2)) == {"a", "b"}


def test_members_that_do_nothing_right_do_not_disturb_one_that_does(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, share_auto_offset_reset="earliest")
    values = [str(number) for number in range(200)]
    with Asking(leader_address(bootstrap, topic)) as ask:
        strangers = [
            member_at(bootstrap, ask, unique, topic, member=f"stranger-{number}")
            for number in range(MEMBERS)
        ]
        fill(bootstrap, topic, values)
        for one in strangers:
            held = one.fetch(0, max_records=1, share_acquire_mode=1)
            assert held.error_code == 0
            assert one.fetch(7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert one.acknowledge([(0, 1 << 60, [ACCEPT])], epoch=1)[1] == (
                ErrorCode.INVALID_RECORD_STATE
            )
    # Their connection has ended, so that what they held is free.
    found = values_of_another(bootstrap, unique, topic, len(values))
    assert set(found) == set(values)
