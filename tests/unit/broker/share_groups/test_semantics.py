"""Share groups have the abilities of queue groups: keys, lanes, expiry, positions, dead letters."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.configs import Change, ChangeKind
from goqueue.broker.gate.areas.members import ConsumerHeartbeat
from goqueue.model.batch import Record
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import (
    GoQueueError,
    GroupKindMismatch,
    GroupNotEmpty,
    InvalidRecordState,
    InvalidRequest,
    UnknownMember,
)
from goqueue.model.share_groups import AckType, ShareOffset
from tests.simulation.world import World
from tests.unit.broker.share_groups.member import SESSION, Member, acks, values_of
from tests.unit.broker.share_groups.test_fetching import send, share_world

ACCEPT, GAP, RELEASE, REJECT = AckType.ACCEPT, AckType.GAP, AckType.RELEASE, AckType.REJECT


def append(world: World, *records: Record, partition: int = 0) -> None:
    """Store records as one batch."""
    target = world.broker.topics.get("orders").partition(partition)
    outcomes: list[GoQueueError | None] = []
    world.append(target, list(records), outcomes.append)
    world.run_until(lambda: bool(outcomes))
    assert outcomes == [None]


# Which records


def test_a_key_is_busy_until_its_record_is_settled() -> None:
    world = share_world(key_order=True)
    append(world, Record(b"a", b"0"), Record(b"a", b"1"), Record(b"b", b"2"))
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take() == [(0, 0, 1), (2, 2, 1)]
    assert two.take() == []
    assert one.take(acks((0, 0, RELEASE))) == [(0, 0, 2)]
    assert one.acknowledge(acks((0, 0, ACCEPT))) == [None]
    assert two.take() == [(1, 1, 1)]


def test_members_read_a_fair_queue_past_its_shares() -> None:
    world = share_world(fair_keys=True)
    append(world, *(Record(b"noisy", b"%d" % one) for one in range(40)))
    member = Member(world, "one")
    assert member.take(records_max=10, is_record_limited=True) == [(0, 9, 1)]
    assert member.take(acks((0, 9, ACCEPT))) == [(10, 39, 1)]


def test_what_a_receive_has_set_aside_comes_to_members_too() -> None:
    world = share_world(fair_keys=True)
    append(world, *(Record(b"noisy", b"%d" % one) for one in range(100)))
    append(world, Record(b"quiet", b"100"))
    received = []
    for _ in range(7):  # The later ones look for other keys, and set some of the noisy one aside.
        receiver = world.broker.queues.receive(
            "workers", "orders", consumer="receiver", messages_max=10
        )
        received += [one.delivery.offset for one in world.wait(receiver.promise)]
    assert 100 in received
    member, taken = Member(world, "one"), list[int]()
    while ranges := member.take(records_max=20, is_record_limited=True):
        taken += [offset for first, last, _ in ranges for offset in range(first, last + 1)]
    assert sorted(taken + received) == list(range(101))


def test_urgent_records_go_first() -> None:
    world = share_world()
    send(world, 20)
    append(world, Record(None, b"urgent", (("goqueue-priority", b"0"),)))
    held = {
        offset
        for first, last, _ in Member(world, "one").take(records_max=8, is_record_limited=True)
        for offset in range(first, last + 1)
    }
    assert 20 in held
    assert len(held) == 8


def test_expired_records_are_not_delivered() -> None:
    world = share_world()
    now = world.broker.clock.wall_ms()
    append(world, Record(None, b"0", (("goqueue-ttl-ms", b"1000"),), now), Record(None, b"1"))
    world.run_for(1500)
    assert Member(world, "one").take() == [(1, 1, 1)]


def test_records_of_a_topic_that_lets_them_expire_are_not_delivered_late() -> None:
    world = share_world()
    world.wait(world.broker.topics.configure("orders", {"message_ttl_ms": "1000"}))
    append(world, Record(None, b"0", timestamp_ms=world.broker.clock.wall_ms()))
    world.run_for(1500)
    append(world, Record(None, b"1", timestamp_ms=world.broker.clock.wall_ms()))
    assert Member(world, "one").take() == [(1, 1, 1)]


def test_records_that_the_log_does_not_have_are_settled_as_gaps() -> None:
    world = share_world()
    send(world, 3)
    member = Member(world, "one")
    member.take()
    assert member.acknowledge(acks((0, 1, GAP), (2, 2, ACCEPT))) == [None]
    [offset, _] = world.wait(member.gate.offsets(SESSION, group="workers"))
    assert offset.start_offset == 3


def test_records_that_retention_has_removed_are_skipped() -> None:
    world = share_world()
    send(world, 10)
    member = Member(world, "one")
    member.take(records_max=2, is_record_limited=True)
    world.broker.topics.get("orders").partition(0).retention.delete_before(6)
    fetched = member.fetch()
    assert values_of(fetched) == ["6", "7", "8", "9"]
    [offset, _] = world.wait(member.gate.offsets(SESSION, group="workers"))
    assert offset.start_offset == 6 or offset.lag <= 6


def test_one_fetch_takes_records_of_several_topics_within_its_limit() -> None:
    world = share_world()
    world.create("returns", 2)
    send(world, 5)
    world.produce("returns", [str(one) for one in range(5)])
    member = Member(world, "one")
    fetched = member.fetch(topics=("orders", "returns"), records_max=7, is_record_limited=True)
    assert [(one.topic, len(values_of(fetched))) for one in fetched.parts] == [
        ("orders", 7),
        ("returns", 7),
    ]
    assert member.take(topics=("orders", "returns")) == [(2, 4, 1)]


def test_a_wait_for_several_topics_ends_with_the_first_record_of_any() -> None:
    world = share_world()
    world.create("returns", 2)
    member, other = Member(world, "one"), Member(world, "two")
    asked = member.ask(topics=("orders", "returns"), wait_ms=10_000)
    world.run_for(100)
    world.produce("returns", ["late"])
    assert values_of(world.wait(asked)) == ["late"]
    send(world, 1)
    assert other.take() == [(0, 0, 1)]


def test_a_partition_that_does_not_exist_fails_alone() -> None:
    world = share_world()
    send(world, 1)
    fetched = Member(world, "one").fetch(partitions=(7, 0))
    failed, found = fetched.parts
    assert (failed.partition, type(failed.error).__name__) == (7, "UnknownPartition")
    assert [one.last for one in found.acquired] == [0]


# Acknowledgements


@pytest.mark.parametrize(
    "settled",
    [
        acks((1, 0, ACCEPT)),
        acks((1, 2, ACCEPT), (2, 3, ACCEPT)),
        acks((2, 2, ACCEPT), (0, 0, ACCEPT)),
    ],
)
def test_malformed_acknowledgements_change_nothing(settled: object) -> None:
    world = share_world()
    send(world, 4)
    member = Member(world, "one")
    member.take()
    [error] = member.acknowledge(settled)  # type: ignore[arg-type]
    assert isinstance(error, InvalidRequest)
    assert member.acknowledge(acks((0, 3, ACCEPT))) == [None]


def test_a_group_may_forbid_to_renew_locks() -> None:
    world = share_world(lease_renewal=False)
    send(world, 1)
    member = Member(world, "one")
    member.take()
    [error] = member.acknowledge(acks((0, 0, AckType.RENEW)))
    assert isinstance(error, InvalidRequest)


def test_dead_letters_of_a_new_share_group_have_the_headers_that_its_clients_expect() -> None:
    world = World()
    world.create("orders", 1)
    member = Member(world, "one")
    member.heartbeat(topics=["orders"])
    member.take()  # The group begins at the end of the topic.
    send(world, 1)
    member.take()
    member.acknowledge(acks((0, 0, REJECT)))
    [letter] = world.consume("orders.dlq")
    found = dict(letter.headers)
    assert found["__dlq.errors.topic"] == b"orders"
    assert found["__dlq.errors.group"] == b"workers"
    assert found["__dlq.errors.offset"] == b"0"
    assert found["__dlq.errors.delivery.count"] == b"1"
    assert found["__dlq.errors.message"] == b"rejected"
    origin = read_origin(letter.headers)
    assert origin is not None
    assert origin.group == "workers"


def test_members_of_a_queue_that_delivers_whole_keys_get_them_in_order() -> None:
    world = share_world(key_order=True, key_batches=True)
    append(world, *(Record(b"ab"[one % 2 : one % 2 + 1], b"%d" % one) for one in range(8)))
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take(records_max=2, is_record_limited=True) == [(0, 1, 1)]
    assert two.take() == []
    assert one.acknowledge(acks((0, 0, ACCEPT), (1, 1, RELEASE))) == [None]
    assert two.take() == [(1, 1, 2), (2, 7, 1)]


def test_records_of_a_queue_with_a_delay_come_when_it_is_over() -> None:
    world = share_world(delay_ms=2_000)
    member = Member(world, "one")
    assert member.take() == []
    send(world, 2)
    asked = member.ask(wait_ms=10_000)
    world.run_for(1_000)
    assert not asked.is_done
    assert values_of(world.wait(asked)) == ["0", "1"]


def test_a_lock_that_expired_may_still_be_accepted_where_the_group_says_so() -> None:
    world = share_world(late_acks=True)
    send(world, 1)
    one, two = Member(world, "one"), Member(world, "two")
    one.take()
    world.run_for(30_001)
    [error] = one.acknowledge(acks((0, 0, ACCEPT)))
    assert isinstance(error, InvalidRecordState)  # What expired is no longer held by offset.
    assert two.take() == [(0, 0, 2)]


def test_dead_letters_go_where_the_group_config_says() -> None:
    world = share_world()
    changes = (Change("errors_deadletterqueue_topic_name", ChangeKind.SET, "letters"),)
    world.wait(
        world.broker.local_gate.configs.change_group(
            SESSION, group="workers", changes=changes, dry_run=False, is_whole=False
        )
    )
    send(world, 1)
    member = Member(world, "one")
    member.take()
    assert member.acknowledge(acks((0, 0, REJECT))) == [None]
    assert [one.value for one in world.consume("letters")] == [b"0"]


def test_records_that_compaction_has_removed_are_skipped() -> None:
    world = World(
        storage__segment_bytes="1KiB",
        compaction__check_ms="100",
        compaction__dirty_ratio_min="0.01",
    )
    world.create("orders", 1, cleanup_policy="compact")
    world.wait(world.broker.queues.groups.create("workers", {"start": "earliest"}))
    for number in range(60):
        append(world, Record(b"%d" % (number % 3), b"%d" % number + b"." * 100))
    world.run_for(20_000)
    left = [record.offset for record in world.consume("orders")]
    assert len(left) < 30
    member = Member(world, "one")
    fetched = member.fetch()
    held = [one for part in fetched.parts for one in part.acquired]
    offsets = [offset for one in held for offset in range(one.first, one.last + 1)]
    assert len(values_of(fetched)) == len(left)
    assert set(left) <= set(offsets)
    settled = tuple((one.first, one.last, ACCEPT) for one in held)
    assert member.acknowledge(acks(*settled)) == [None]
    [offset] = world.wait(member.gate.offsets(SESSION, group="workers"))
    assert (offset.start_offset, offset.lag) == (60, 0)


# Members


def test_the_first_member_of_a_missing_group_creates_it() -> None:
    world = World()
    world.create("orders", 2)
    answer = Member(world, "one").heartbeat(topics=["orders"])
    assert answer.assignment == {("orders", 0), ("orders", 1)}
    settings = world.broker.queues.groups.get("workers").settings
    assert (settings.deliveries_max, settings.start) == (5, "latest")


def test_a_member_joins_a_group_that_others_receive_from_and_its_settings_stay() -> None:
    world = share_world(deliveries_max=7)
    Member(world, "one").heartbeat(topics=["orders"])
    assert world.broker.queues.groups.get("workers").settings.deliveries_max == 7


def test_a_stream_group_is_no_share_group_and_a_share_group_no_stream_group() -> None:
    world = share_world()
    with pytest.raises(GroupKindMismatch):
        _join_stream(world, "workers")
    _join_stream(world, "readers")
    with pytest.raises(GroupKindMismatch):
        Member(world, "one", group="readers").heartbeat(topics=["orders"])
    with pytest.raises(GroupKindMismatch):
        Member(world, "one", group="readers").take()


def test_a_group_with_members_is_neither_moved_nor_deleted() -> None:
    world = share_world()
    send(world, 4)
    member = Member(world, "one")
    member.heartbeat(topics=["orders"])
    offsets = (ShareOffset("orders", 0, 2),)
    gate = member.gate
    for refused in (
        gate.alter_offsets(SESSION, group="workers", offsets=offsets),
        gate.delete_offsets(SESSION, group="workers", topics=("orders",)),
        gate.delete(SESSION, group="workers"),
    ):
        with pytest.raises(GroupNotEmpty):
            world.wait(refused)
    member.heartbeat(epoch=-1)
    [moved] = world.wait(gate.alter_offsets(SESSION, group="workers", offsets=offsets))
    assert (moved.start_offset, moved.error) == (2, None)
    assert member.take() == [(2, 3, 1)]


def test_deleted_offsets_let_a_group_begin_again() -> None:
    world = share_world()
    send(world, 3)
    member = Member(world, "one")
    member.take()
    member.acknowledge(acks((0, 2, ACCEPT)))
    gate = member.gate
    outcomes = world.wait(
        gate.delete_offsets(SESSION, group="workers", topics=("orders", "orders"))
    )
    assert outcomes["orders"] is None or isinstance(outcomes["orders"], InvalidRequest)
    assert world.wait(gate.offsets(SESSION, group="workers")) == []
    assert member.take() == [(0, 2, 1)]


def test_a_deleted_group_has_no_members_left() -> None:
    world = share_world()
    member = Member(world, "one")
    member.heartbeat(topics=["orders"])
    world.wait(world.broker.gate.groups.delete(SESSION, group="workers"))
    with pytest.raises(UnknownMember):
        member.heartbeat()
    assert member.heartbeat(topics=["orders"], epoch=0).assignment


def test_groups_are_listed_with_the_state_of_their_members() -> None:
    world = share_world()
    member = Member(world, "one")
    assert [one.state for one in world.wait(member.gate.list(SESSION))] == ["Empty"]
    member.heartbeat(topics=["orders"])
    [listed] = world.wait(member.gate.list(SESSION))
    assert (listed.group_id, listed.state, listed.members) == ("workers", "Stable", ())
    described = world.wait(member.gate.describe(SESSION, group="workers"))
    assert [one.member_id for one in described.members] == ["one"]


# Where groups begin


def test_a_group_may_begin_some_time_before_its_first_fetch() -> None:
    world = share_world(start="by_duration:PT10S")
    append(world, Record(None, b"0", timestamp_ms=world.broker.clock.wall_ms()))
    world.run_for(20_000)
    append(world, Record(None, b"1", timestamp_ms=world.broker.clock.wall_ms()))
    world.run_for(5_000)
    assert Member(world, "one").take() == [(1, 1, 1)]


def test_a_group_that_begins_at_the_end_gets_what_comes_after_its_first_fetch() -> None:
    world = share_world(start="latest")
    send(world, 3)
    member = Member(world, "one")
    assert member.take() == []
    send(world, 1)
    assert member.take() == [(3, 3, 1)]


def _join_stream(world: World, group: str) -> None:
    call = ConsumerHeartbeat(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topics=("orders",),
        owned=(),
    )
    world.wait(world.broker.local_gate.members.consumer_heartbeat(SESSION, call=call))
