"""A member of a stream group follows its assignments and loses no message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec
import pytest

from goqueue.client.errors import ConnectionLost
from goqueue.client.http.consumers.membership import Membership, Rebalance, StreamSettings
from goqueue.client.http.messages import Message
from goqueue.client.http.request import Request
from goqueue.client.http.requests.members import MemberRequests, MemberResult, Polled
from goqueue.client.http.steps import Callback, Steps
from goqueue.model.errors import FencedMemberEpoch, InvalidRequest, UnknownMember
from goqueue.model.names import TopicPartition
from goqueue.wire.http.bodies.messages import Damage

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def told(epoch: int, *partitions: TopicPartition, changed: bool = True) -> MemberResult:
    assignment = frozenset(partitions) if changed else None
    return MemberResult(member_id="m", member_epoch=epoch, heartbeat_ms=1000, assignment=assignment)


def polled(
    epoch: int, *messages: Message, assignment: frozenset[TopicPartition] | None = None
) -> Polled:
    return Polled(messages=messages, member_epoch=epoch, assignment=assignment)


def message(partition: TopicPartition, offset: int) -> Message:
    return Message(
        id="",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        timestamp_ms=0,
        key=None,
        value=None,
    )


class Broker:
    """Plays the other side: answers in turn, and notes what it was asked."""

    def __init__(self, **settings: Any) -> None:
        self.rebalances: list[Rebalance] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.member = Membership(
            MemberRequests("g", "m"),
            StreamSettings(topics=("t",), on_rebalance=self.rebalances.append, **settings),
        )

    def play(self, steps: Steps[Any], *answers: object) -> Any:
        waiting = list(answers)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Callback):
                    step.function(step.argument)
                    step = next(steps)
                    continue
                self.asked.append(_asked(step))
                answer = waiting.pop(0)
                if not isinstance(answer, Exception):
                    step = steps.send(answer)
                    continue
                step = steps.throw(answer)
        except StopIteration as end:
            assert not waiting, f"nobody asked for {waiting}"
            return end.value

    def poll(self, *answers: object) -> Sequence[Message]:
        found: Sequence[Message] = self.play(self.member.poll(limit=10, wait_ms=100), *answers)
        return found

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


def _asked(request: Request[Any]) -> tuple[str, dict[str, Any]]:
    verb = request.path.rsplit("/", 1)[1]
    if request.body is not None:
        return verb, msgspec.json.decode(request.body)
    return verb, {name: one[0] for name, one in parse_qs(urlencode(request.query)).items()}


def test_a_member_joins_and_polls_where_it_is_assigned() -> None:
    broker = Broker()
    broker.play(broker.member.join(), told(1, A))
    assert broker.member.owned == {A}
    assert broker.poll(polled(1, message(A, 4))) == (message(A, 4),)
    assert broker.rebalances == [Rebalance(assigned=frozenset({A}))]
    assert broker.asked[1][1]["member_epoch"] == "1"
    assert broker.asked[1][1]["auto_commit"] == "true"


def test_a_revoked_partition_is_given_up_only_after_the_user_was_told() -> None:
    broker = Broker(auto_commit=False)
    broker.play(broker.member.join(), told(1, A, B))
    broker.poll(polled(1, message(A, 4), message(B, 9)))
    broker.poll(polled(1, assignment=frozenset({A})), told(2, changed=False))
    assert broker.rebalances[-1] == Rebalance(revoked=frozenset({B}))
    assert broker.asked[-1] == (
        "revoke",
        {
            "member_id": "m",
            "member_epoch": 1,
            "instance_id": None,
            "owned": [{"topic": "t", "partitions": [0]}],
        },
    )
    assert broker.member.epoch == 2
    broker.play(broker.member.commit(), {})
    _, body = broker.asked.pop()
    assert [one["offset"] for one in body["offsets"]] == [5]  # of A alone


def test_what_a_heartbeat_brings_waits_for_the_next_poll() -> None:
    broker = Broker()
    broker.play(broker.member.join(), told(1, A))
    broker.play(broker.member.heartbeat(), told(2, A, B))
    assert broker.member.owned == {A}
    broker.poll(polled(2))
    assert broker.member.owned == {A, B}


@pytest.mark.parametrize(
    "error", [UnknownMember("g", "m"), FencedMemberEpoch("old"), ConnectionLost("lost")]
)
def test_a_member_that_does_not_know_where_it_is_joins_again(error: Exception) -> None:
    broker = Broker()
    broker.play(broker.member.join(), told(1, A))
    broker.poll(polled(1, message(A, 4)))
    assert broker.poll(error, told(3, A), polled(3, message(A, 4))) == (message(A, 4),)
    assert broker.verbs == ["join", "poll", "poll", "join", "poll"]
    assert broker.rebalances[1:] == [
        Rebalance(revoked=frozenset({A}), lost=True),
        Rebalance(assigned=frozenset({A})),
    ]


def test_joining_again_has_a_bound() -> None:
    broker = Broker()
    broker.play(broker.member.join(), told(1, A))
    lost = ConnectionLost("lost")
    with pytest.raises(ConnectionLost):
        broker.poll(lost, told(2, A), lost, told(3, A), lost)


def test_when_the_user_fails_in_a_callback_the_messages_come_again() -> None:
    def refuse(damage: Damage) -> None:
        raise ValueError(damage.detail)

    broker = Broker(on_damage=refuse)
    broker.play(broker.member.join(), told(1, A))
    damage = Damage(partition=0, offset=1, next_offset=2, detail="torn")
    answer = Polled(messages=(message(A, 4),), member_epoch=1, assignment=None, damaged=(damage,))
    steps = broker.member.poll(limit=10, wait_ms=0)
    next(steps)
    step = steps.send(answer)
    assert isinstance(step, Callback)
    with pytest.raises(ValueError, match="torn"):
        step.function(step.argument)
    steps.close()
    assert not broker.member.is_joined  # so that the next poll starts at the committed offset


def test_commits_name_the_place_behind_the_last_message() -> None:
    broker = Broker(auto_commit=False)
    broker.play(broker.member.join(), told(1, A))
    broker.play(broker.member.commit([message(A, 7), message(A, 3)]), {})
    assert broker.asked[-1][1]["offsets"] == [
        {"topic": "t", "partition": 0, "offset": 8, "metadata": ""}
    ]
    broker.play(broker.member.commit([]))  # nothing to say, so nothing is sent
    with pytest.raises(FencedMemberEpoch):
        broker.play(broker.member.commit([message(A, 7)]), {A: FencedMemberEpoch("old")})


def test_leaving_a_group_that_went_on_without_us_is_fine() -> None:
    broker = Broker()
    broker.play(broker.member.join(), told(1, A))
    broker.play(broker.member.leave(), UnknownMember("g", "m"))
    broker.play(broker.member.leave())
    assert broker.verbs == ["join", "leave"]


def test_a_poll_is_never_sent_twice() -> None:
    request = MemberRequests("g", "m").poll(1, limit=1, wait=0, auto_commit=True, start="latest")
    assert request.repeat.name == "AMBIGUOUS"


def test_somebody_who_wants_to_read_says_what() -> None:
    with pytest.raises(InvalidRequest):
        StreamSettings()
