"""Share sessions: a member names its partitions once, and its epochs order its requests."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.model.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    UnknownShareSession,
)
from goqueue.wire.kafka.share_sessions import (
    EPOCH_MAX,
    SESSION_PARTITIONS_MAX,
    PartitionRef,
    SessionKey,
    ShareSession,
    ShareSessions,
)

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16
KEY = SessionKey("", "ada", "shop", "member-1")


def places(*numbers: int, topic: bytes = ORDERS) -> list[PartitionRef]:
    return [(topic, number) for number in numbers]


def opened(sessions: ShareSessions, *numbers: int, key: SessionKey = KEY) -> ShareSession:
    return sessions.open(key, places(*numbers), has_acks=False)


def test_each_request_has_the_next_epoch() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0)
    for epoch in range(1, 5):
        assert sessions.resume(KEY, epoch).epoch == epoch + 1


def test_the_epoch_after_the_last_is_1() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0).epoch = EPOCH_MAX
    assert sessions.resume(KEY, EPOCH_MAX).epoch == 1


@pytest.mark.parametrize("epoch", [0, 2, -2, EPOCH_MAX])
def test_another_epoch_than_the_next_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = ShareSessions(10)
    session = opened(sessions, 0)
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.resume(KEY, epoch, places(1), places(0))
    assert (list(session.partitions), session.epoch) == (places(0), 1)


def test_a_request_that_opens_a_session_cannot_acknowledge_and_leaves_the_earlier_one() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions, 0)
    with pytest.raises(InvalidRequest):
        sessions.open(KEY, places(0), has_acks=True)
    assert sessions.find(KEY) is session


def test_a_member_without_a_session_is_told_so() -> None:
    with pytest.raises(UnknownShareSession):
        ShareSessions(10).resume(KEY, 1)


@pytest.mark.parametrize("field", ["tenant", "principal", "group", "member"])
def test_nobody_continues_the_session_of_another(field: str) -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0)
    with pytest.raises(UnknownShareSession):
        sessions.resume(KEY._replace(**{field: "other"}), 1)


def test_a_session_that_is_opened_again_begins_anew() -> None:
    sessions = ShareSessions(1)
    first = opened(sessions, 0, 1)
    sessions.resume(KEY, 1)
    second = opened(sessions, 2)
    assert (list(second.partitions), second.epoch, len(sessions)) == (places(2), 1, 1)
    assert not sessions.close(first)
    assert sessions.find(KEY) is second


def test_partitions_are_added_and_forgotten() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0, 1)
    session = sessions.resume(KEY, 1, places(1, 2), places(0))
    assert set(session.partitions) == set(places(1, 2))


def test_a_partition_that_is_named_and_forgotten_at_once_is_forgotten() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0)
    session = sessions.resume(KEY, 1, places(1), places(1))
    assert list(session.partitions) == places(0)
    assert not session.overdue


def test_only_partitions_that_the_client_has_not_heard_of_are_overdue() -> None:
    sessions = ShareSessions(10)
    assert not opened(sessions, 0).overdue
    assert sessions.resume(KEY, 1, places(0, 1)).overdue == set(places(1))


def test_each_partition_comes_first_in_turn() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0, 1, 2)
    first = [sessions.resume(KEY, epoch).in_turn()[0] for epoch in range(1, 7)]
    assert {one: first.count(one) for one in first} == dict.fromkeys(places(0, 1, 2), 2)


def test_a_session_without_partitions_has_no_turns() -> None:
    assert opened(ShareSessions(10)).in_turn() == []


def test_the_number_of_sessions_is_limited() -> None:
    sessions = ShareSessions(2)
    for number in range(2):
        opened(sessions, 0, key=KEY._replace(member=str(number)))
    with pytest.raises(ShareSessionLimitReached):
        opened(sessions, 0)
    assert sessions.close(sessions.find(KEY._replace(member="0")))
    opened(sessions, 0)


def test_the_number_of_partitions_of_all_sessions_is_limited() -> None:
    sessions = ShareSessions(10, partitions_max=4)
    opened(sessions, 0, 1, 2)
    with pytest.raises(ShareSessionLimitReached):
        opened(sessions, 0, 1, key=KEY._replace(member="other"))
    with pytest.raises(ShareSessionLimitReached):
        sessions.resume(KEY, 1, places(3, 4))
    # The refused request did not count.
    session = sessions.resume(KEY, 1, places(3), places(0, 1))
    assert list(session.partitions) == places(2, 3)
    opened(sessions, 0, 1, key=KEY._replace(member="other"))


def test_the_number_of_partitions_of_one_session_is_limited() -> None:
    sessions = ShareSessions(10)
    with pytest.raises(ShareSessionLimitReached):
        opened(sessions, *range(SESSION_PARTITIONS_MAX + 1))
    opened(sessions, *range(SESSION_PARTITIONS_MAX))
    with pytest.raises(ShareSessionLimitReached):
        sessions.resume(KEY, 1, places(SESSION_PARTITIONS_MAX))


def test_what_holds_a_session_learns_of_its_end_once() -> None:
    sessions, ended = ShareSessions(10), []
    first = opened(sessions, 0)
    first.let_go = lambda: ended.append("replaced")
    second = opened(sessions, 0)
    second.let_go = lambda: ended.append("closed")
    assert sessions.close(second)
    assert not sessions.close(second)
    assert ended == ["replaced", "closed"]


@pytest.mark.parametrize("seed", range(20))
def test_partitions_are_counted_exactly_whatever_happens(seed: int) -> None:
    random = Random(seed)
    sessions = ShareSessions(3, partitions_max=12)
    for _ in range(300):
        key = KEY._replace(member=str(random.randrange(5)))
        some = places(*(random.randrange(8) for _ in range(random.randrange(6))))
        try:
            if random.random() < 0.3:
                sessions.open(key, some, has_acks=random.random() < 0.2)
            elif random.random() < 0.2:
                sessions.close(sessions.find(key))
            else:
                epoch = sessions.find(key).epoch + (random.random() < 0.1)
                sessions.resume(key, epoch, some, places(random.randrange(8)))
        except (
            InvalidRequest,
            InvalidShareSessionEpoch,
            ShareSessionLimitReached,
            UnknownShareSession,
        ):
            pass
        held = [one.partitions for one in sessions._sessions.values()]
        assert sessions._partitions == sum(map(len, held)) <= 12
        assert len(sessions) <= 3
