"""The lag of groups: exact in messages and in seconds, without reading on the event loop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from goqueue.broker.metrics.lag import REFRESH_MS
from goqueue.broker.reading import records_ends
from goqueue.groups import CommitOffsets, ConsumerHeartbeat, Join, OffsetToCommit
from goqueue.groups.calls import JOIN_EPOCH
from goqueue.groups.classic import roster
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.groups.classic.membership import ClassicMembership
from goqueue.groups.consumer.membership import ConsumerMembership
from goqueue.metrics import Samples, catalogue
from goqueue.model.batch import Record, encode_batch
from goqueue.partition import partition as partition_module
from goqueue.partition import records_end
from goqueue.partition.records_end import NoRecords
from tests.simulation.scraping import SESSION, scrape
from tests.unit.broker.node import Node

GROUP, TOPIC = "readers", "orders"
AGES_MS = (90_000, 40_000, 7_000, 500)  # of the messages, when they are published


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create(TOPIC, partitions=2)
    now_ms = node.broker.clock.wall_ms()
    for partition in range(2):
        records = [Record(b"k", b"v", (), now_ms - age_ms) for age_ms in AGES_MS]
        node.wait(node.broker.publish(TOPIC, records, partition=partition))
    return node


def commit(node: Node, group: str = GROUP, **offsets: int) -> None:
    """Commit offsets by partition: `p0=2`."""
    wanted = [
        OffsetToCommit(topic=TOPIC, partition=int(name[1:]), offset=offset)
        for name, offset in offsets.items()
    ]
    call = CommitOffsets(group_id=group, offsets=wanted)
    node.wait(node.broker.gate.group_offsets.commit(SESSION, call=call))


def lag(node: Node) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    node.run_for(REFRESH_MS + 1)
    found = scrape(node.broker, node.wait)
    return found.get("group_lag_messages", {}), found.get("group_lag_seconds", {})


def age_s(node: Node, offset: int, partition: int = 0) -> float:
    """The age of a message, as its record says."""
    record = node.consume(TOPIC, partition=partition)[offset]
    return (node.broker.clock.wall_ms() - record.timestamp_ms) / 1000


def test_it_is_the_sum_of_partitions_and_the_age_of_the_oldest_message(node: Node) -> None:
    commit(node, p0=1, p1=3)
    messages, seconds = lag(node)
    assert messages == {(GROUP, TOPIC): 3 + 1}
    assert seconds[GROUP, TOPIC] == pytest.approx(age_s(node, 1), abs=0.05)
    details = scrape(node.broker, node.wait, "groups")
    assert details["group_partition_lag_messages"] == {
        (GROUP, TOPIC, "0"): 3,
        (GROUP, TOPIC, "1"): 1,
    }
    assert details["group_partition_committed_offset"] == {
        (GROUP, TOPIC, "0"): 1,
        (GROUP, TOPIC, "1"): 3,
    }
    found = details["group_partition_lag_seconds"][GROUP, TOPIC, "1"]
    assert found == pytest.approx(age_s(node, 3, 1), abs=0.05)


@pytest.mark.parametrize("offset", range(len(AGES_MS)))
def test_every_position_has_the_age_of_its_record(node: Node, offset: int) -> None:
    commit(node, p0=offset, p1=4)
    _, seconds = lag(node)
    assert seconds[GROUP, TOPIC] == pytest.approx(age_s(node, offset), abs=0.05)


def test_a_group_that_has_read_everything_is_not_behind(node: Node) -> None:
    commit(node, p0=4, p1=4)
    assert lag(node) == ({(GROUP, TOPIC): 0}, {(GROUP, TOPIC): 0})


def test_partitions_without_a_commit_count_from_the_start_of_their_log(node: Node) -> None:
    commit(node, p0=4)
    messages, seconds = lag(node)
    assert messages == {(GROUP, TOPIC): 4}
    assert seconds[GROUP, TOPIC] == pytest.approx(age_s(node, 0, 1), abs=0.05)
    details = scrape(node.broker, node.wait, "groups")
    assert details["group_partition_lag_messages"] == {
        (GROUP, TOPIC, "0"): 0,
        (GROUP, TOPIC, "1"): 4,
    }
    assert details["group_partition_committed_offset"] == {(GROUP, TOPIC, "0"): 4}
    node.broker.topics.get(TOPIC).partitions[1].retention.delete_before(1)
    assert lag(node)[0] == {(GROUP, TOPIC): 3}
    assert not any(scrape(node.broker, node.wait)["group_overtaken_messages_total"].values())


def transact(node: Node, *values: str, is_commit: bool, partition: int = 0) -> None:
    """Write values in a transaction, and end it; whose, and why, does not matter here."""
    target = node.broker.topics.get(TOPIC).partition(partition)
    now_ms, producer_id = node.broker.clock.wall_ms(), 100 + target.end_offset
    records = [Record(b"k", one.encode(), (), now_ms) for one in values]
    batch = encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    target.append(memoryview(batch), now_ms=now_ms)
    target.append_marker(
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=is_commit,
        coordinator_epoch=0,
        now_ms=now_ms,
    )
    node.run_until(lambda: target.high_watermark == target.end_offset)


def test_what_was_aborted_at_the_end_is_not_left(node: Node) -> None:
    transact(node, "a", "b", is_commit=True)
    for _ in range(35):  # The members, and some of the lag.
        transact(node, "gone", is_commit=False)
    commit(node, p0=6, p1=4)
    for _ in range(3):
        assert lag(node) == ({(GROUP, TOPIC): 0}, {(GROUP, TOPIC): 0})
        node.run_for(60_000)
    commit(node, p0=5)
    assert lag(node)[0] == {(GROUP, TOPIC): 1}
    [shown] = {
        one.lag
        for one in node.wait(node.broker.gate.groups.lag(SESSION, group=GROUP)).partitions
        if one.partition == 0
    }
    assert shown == 1


def test_the_age_is_that_of_the_first_message_that_was_not_aborted(node: Node) -> None:
    transact(node, "gone", "gone", is_commit=False)
    commit(node, p0=4, p1=4)
    node.run_for(90_000)
    transact(node, "here", is_commit=True)
    messages, seconds = lag(node)
    assert messages == {(GROUP, TOPIC): 4}  # what is aborted before it counts, as its offsets do
    assert seconds[GROUP, TOPIC] == pytest.approx(1, abs=0.2)


def test_many_aborted_records_are_searched_in_slices(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_ends, "SLICE_BATCHES", 10)
    for _ in range(300):
        transact(node, "gone", is_commit=False)
    commit(node, p0=3, p1=4)
    target = node.broker.topics.get(TOPIC).partition(0)
    searched: list[int] = []
    turns: list[int] = []
    original = node.broker.clock.call_soon

    def count(callback: Callable[[], None]) -> object:
        turns.append(len(searched))
        return original(callback)

    def search_back(*given: Any, **options: Any) -> NoRecords:
        searched.append(options["batches_max"])
        return records_end.search_back(*given, **options)

    monkeypatch.setattr(partition_module, "search_back", search_back)
    monkeypatch.setattr(node.broker.clock, "call_soon", count)
    assert lag(node)[0] == {(GROUP, TOPIC): 1}
    assert target.without_records.is_whole
    assert set(searched) == {10}
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 1


def test_it_grows_with_time_and_shrinks_with_a_commit(node: Node) -> None:
    commit(node, p0=2, p1=4)
    _, before = lag(node)
    node.run_for(10_000)
    _, after = lag(node)
    assert after[GROUP, TOPIC] - before[GROUP, TOPIC] == pytest.approx(11, abs=0.1)
    commit(node, p0=3)
    _, seconds = lag(node)
    assert seconds[GROUP, TOPIC] == pytest.approx(age_s(node, 3), abs=0.05)


def test_a_group_that_has_not_moved_costs_no_read(node: Node) -> None:
    commit(node, p0=2)
    lag(node)
    opened: list[str] = []
    original = node.disk.open

    def noted(path: str):  # type: ignore[no-untyped-def]
        opened.append(path)
        return original(path)

    node.disk.open = noted  # type: ignore[method-assign]
    lag(node)
    assert opened == []
    commit(node, p0=1)
    lag(node)
    assert opened


def test_scrapes_soon_after_each_other_use_the_same_answers(node: Node) -> None:
    commit(node, p0=2, p1=4)
    lag(node)
    commit(node, p0=4)
    found = scrape(node.broker, node.wait)
    assert found["group_lag_messages"] == {(GROUP, TOPIC): 2}
    assert lag(node)[0] == {(GROUP, TOPIC): 0}


def test_what_retention_takes_from_a_group_is_counted_once(node: Node) -> None:
    commit(node, p0=1, p1=4)
    lag(node)
    found = scrape(node.broker, node.wait)
    assert found["group_overtaken_messages_total"] == {(GROUP, TOPIC): 0}
    partition = node.broker.topics.get(TOPIC).partitions[0]
    partition.retention.delete_before(3)
    for _ in range(2):
        messages, _ = lag(node)
        assert messages == {(GROUP, TOPIC): 1}
        found = scrape(node.broker, node.wait)
        assert found["group_overtaken_messages_total"] == {(GROUP, TOPIC): 2}
    commit(node, p0=4)
    partition.retention.delete_before(4)
    lag(node)
    found = scrape(node.broker, node.wait)
    assert found["group_overtaken_messages_total"] == {(GROUP, TOPIC): 2}


def test_a_topic_that_is_deleted_takes_its_lag_with_it(node: Node) -> None:
    commit(node, p0=1)
    assert lag(node)[0]
    node.wait(node.broker.topics.delete(TOPIC))
    assert lag(node) == ({}, {})


def test_what_members_read_is_not_read_from_each_of_them_at_every_scrape(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed = (("range", encode_subscription([TOPIC])),)
    call = Join(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=subscribed,
    )
    node.wait(node.broker.gate.members.join(SESSION, call=call))
    heartbeat = ConsumerHeartbeat(
        group_id="others",
        member_id="",
        member_epoch=JOIN_EPOCH,
        rebalance_timeout_ms=10_000,
        subscribed_topics=(TOPIC, "missing"),
        owned=frozenset(),
    )
    node.wait(node.broker.gate.polling.join(SESSION, call=heartbeat))

    def refuse(*_: object) -> None:
        raise AssertionError("it costs as much as the group has members")

    with monkeypatch.context() as scraped:
        scraped.setattr(roster, "read_topics", refuse)
        scraped.setattr(ClassicMembership, "describe", refuse)
        scraped.setattr(ConsumerMembership, "describe", refuse)
        assert lag(node)[0] == {(GROUP, TOPIC): 8, ("others", TOPIC): 8}
    for name in (GROUP, "others"):
        _, shown = node.wait(node.broker.gate.groups.lag(SESSION, group=name))
        assert sum(one.lag for one in shown) == 8
    node.run_for(60_000)  # The sessions have ended.
    assert not any(lag(node)[0].values())


def test_many_groups_are_asked_about_in_slices(node: Node) -> None:
    for number in range(30):
        commit(node, f"group{number}", p0=number % 5, p1=4)
    messages, _ = lag(node)
    assert messages == {(f"group{number}", TOPIC): 4 - number % 5 for number in range(30)}


def test_a_scrape_goes_on_while_another_look_at_the_lag_begins(node: Node) -> None:
    for number in range(30):
        commit(node, f"group{number}", p0=number % 5, p1=4)
    known = node.broker.measuring._lag
    node.wait(known.refresh())
    samples = Samples(series_max=1_000)
    collecting = known.collect(samples)
    for _ in range(35):  # The members, and some of the lag.
        next(collecting)
    node.run_for(REFRESH_MS + 1)
    node.wait(known.refresh())  # for the history, say
    for _ in collecting:
        pass
    assert len(samples.take(catalogue.GROUP_LAG_MESSAGES)) == 30
