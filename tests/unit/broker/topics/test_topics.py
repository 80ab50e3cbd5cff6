"""Topics come, change, go and come again; a crash at any step shows one state or the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.broker.controller.metadata import PRODUCER_ID_BLOCK
from goqueue.broker.topics.topics import PARTITIONS_MAX
from goqueue.model.batch import Record
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    InvalidPartitionCount,
    InvalidTopicName,
    InvalidTopicSetting,
    StorageFailed,
    StorageFull,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from goqueue.model.names import OFFSETS_TOPIC
from goqueue.storage.segment import LOG_SUFFIX, segment_name
from tests.simulation.disk import PAGE_BYTES, PowerLost
from tests.unit.broker.node import Node


def names(node: Node) -> list[str]:
    return sorted(topic.name for topic in node.broker.topics)


def delete(node: Node, name: str) -> None:
    node.wait(node.broker.topics.delete(name))


# Making


def test_a_topic_is_usable_at_once_and_durable_when_its_promise_is_kept() -> None:
    node = Node()
    promise = node.broker.topics.create("orders", partition_count=2)
    assert node.broker.topics.get("orders").partition(1).end_offset == 0
    assert not promise.is_done
    topic = node.wait(promise)
    node.restart_after_crash()
    assert node.broker.topics.get("orders").id == topic.id
    assert len(node.broker.topics.get("orders").partitions) == 2


@pytest.mark.parametrize("step", range(8))
def test_a_crash_while_a_topic_is_made_leaves_it_whole_or_not_at_all(step: int) -> None:
    node = Node(seed=step)
    node.disk.crash_at(step)
    try:
        node.create("orders", 3)
        raise PowerLost
    except PowerLost:
        node.restart_after_crash()
    if names(node):
        assert len(node.broker.topics.get("orders").partitions) == 3
    else:
        node.create("orders", 3)
    node.produce("orders", ["works"], partition=2)
    assert node.values("orders", partition=2) == [b"works"]


def test_a_topic_is_found_by_its_name_and_by_its_id() -> None:
    node = Node()
    topic = node.create("orders")
    topics = node.broker.topics
    assert topics.find("orders") is topics.find_by_id(topic.id) is topics.get_by_id(topic.id)
    assert (topics.find("nowhere"), topics.find_by_id(bytes(16))) == (None, None)
    with pytest.raises(UnknownTopic, match="'nowhere'"):
        topics.get("nowhere")
    with pytest.raises(UnknownTopicId):
        topics.get_by_id(bytes(16))
    for number in (-1, 1):
        with pytest.raises(UnknownPartition, match=f"orders/{number}"):
            topic.partition(number)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "a" * 250, "deleted~1"])
def test_a_name_that_could_not_be_a_folder_everywhere_is_refused(name: str) -> None:
    node = Node()
    with pytest.raises(InvalidTopicName):
        node.broker.topics.create(name, partition_count=1)
    assert names(node) == []


def test_a_name_is_taken_once() -> None:
    node = Node()
    node.create("orders")
    with pytest.raises(TopicExists, match="'orders'"):
        node.create("orders")


@pytest.mark.parametrize(("there", "new"), [("a.b", "a_b"), ("a_b.c", "a.b_c"), ("a_b", "a.b")])
def test_names_that_metrics_could_not_tell_apart_are_refused(there: str, new: str) -> None:
    node = Node()
    node.create(there)
    with pytest.raises(InvalidTopicName, match=f"mistaken for '{there}'"):
        node.create(new)


@pytest.mark.parametrize("count", [-1, 0, PARTITIONS_MAX + 1])
def test_an_impossible_number_of_partitions_is_refused(count: int) -> None:
    with pytest.raises(InvalidPartitionCount, match=f"1 to {PARTITIONS_MAX}, not {count}"):
        Node().create("orders", count)


def test_wrong_settings_are_refused_before_anything_is_made() -> None:
    node = Node()
    with pytest.raises(InvalidTopicSetting, match="retention_ms"):
        node.create("orders", retention_ms="soon")
    assert names(node) == []


def test_a_full_disk_refuses_a_topic() -> None:
    node = Node()
    node.disk.fill_after(0)
    with pytest.raises(StorageFull):
        node.create("orders")
    node.disk.make_room()
    node.create("orders")


# Deleting


def test_a_deleted_topic_is_gone_with_its_files() -> None:
    node = Node(journeys__enabled="false")
    topic = node.create("orders", 2)
    node.produce("orders", ["a"])
    delete(node, "orders")
    node.run_for(100)
    assert names(node) == []
    assert node.broker.topics.find_by_id(topic.id) is None
    assert node.disk.list("logs") == []
    node.restart_after_crash()
    assert names(node) == []


def test_producers_and_consumers_of_a_deleted_topic_are_told() -> None:
    node = Node()
    partition = node.create("orders").partition(0)
    outcomes: list[GoQueueError | None] = []
    node.append(partition, [Record(None, b"late", timestamp_ms=1)], outcomes.append)
    delete(node, "orders")
    assert isinstance(outcomes[0], UnknownTopic)
    with pytest.raises(UnknownTopic):
        partition.read(0, bytes_max=100)


def test_what_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(UnknownTopic):
        Node().broker.topics.delete("nowhere")


def test_the_same_name_may_be_used_again_at_once_and_shows_nothing_old() -> None:
    node = Node()
    first = node.create("orders")
    node.produce("orders", ["old"])
    node.broker.topics.delete("orders")
    second = node.create("orders")
    assert second.id != first.id
    assert node.values("orders") == []
    node.produce("orders", ["new"])
    node.run_for(1_000)
    assert node.values("orders") == [b"new"], "the old folder's removal has not touched it"
    node.restart_after_crash()
    assert node.values("orders") == [b"new"]


@pytest.mark.parametrize("step", range(30))
def test_after_a_crash_at_any_step_of_deleting_nothing_old_is_shown_under_the_name(
    step: int,
) -> None:
    node = Node(seed=step, storage__segment_bytes="1KiB", journeys__enabled="false")
    node.create("orders", 2)
    node.produce("orders", [f"old-{number}" for number in range(30)])
    is_deleted = False
    node.disk.crash_at(step)
    try:
        delete(node, "orders")
        is_deleted = True
        node.run_for(50)
        raise PowerLost
    except PowerLost:
        node.restart_after_crash()
    if is_deleted:
        assert names(node) == [], "the deletion was answered"
    if names(node):
        # It was not answered, and may be asked for again. Until then what is there is in order.
        left = node.values("orders")
        assert left in ([], [b"old-%d" % number for number in range(30)])
        delete(node, "orders")
    # A client comes at once, before anything in the background has run.
    node.create("orders", 2)
    assert node.values("orders") == []
    node.produce("orders", ["new"])
    node.run_for(1_000)
    assert node.values("orders") == [b"new"]
    node.restart_after_crash()
    assert node.values("orders") == [b"new"]
    node.run_for(1_000)
    assert node.disk.list("logs") == ["orders"]


@pytest.mark.parametrize("step", range(30))
def test_after_a_crash_at_any_step_of_making_a_topic_again_nothing_old_is_shown(
    step: int,
) -> None:
    node = Node(seed=step)
    first = node.create("orders")
    node.produce("orders", ["old"])
    node.disk.crash_at(step)
    try:
        node.broker.topics.delete("orders")
        node.create("orders")
        node.run_for(20)
        raise PowerLost
    except PowerLost:
        node.restart_after_crash()
    found = node.broker.topics.find("orders")
    if found is not None and found.id != first.id:
        assert node.values("orders") == []


def test_folders_that_belong_to_no_topic_are_removed_at_the_start() -> None:
    node = Node(journeys__enabled="false")
    node.create("orders")
    node.produce("orders", ["kept"])
    for stray in ("logs/stranger/0", "logs/deleted~0123"):
        node.disk.create(f"{stray}/00000000000000000000.log").sync()
    node.restart_after_crash()
    node.run_for(100)
    assert node.disk.list("logs") == ["orders"]
    assert node.values("orders") == [b"kept"]


def test_records_of_a_topic_that_nobody_deleted_are_set_aside_and_not_removed() -> None:
    node = Node()
    node.create("orders")
    file = node.disk.create("logs/payments/0/00000000000000000000.log")
    file.append(b"records of a topic whose metadata was damaged")
    file.sync()
    node.restart_after_crash()
    node.run_for(100)
    (lost,) = [name for name in node.disk.list("logs") if name.startswith("lost~payments~")]
    assert node.disk.list(f"logs/{lost}/0") == ["00000000000000000000.log"]
    node.create("payments")
    node.produce("payments", ["new"])
    node.restart_after_crash()
    assert node.values("payments") == [b"new"]
    assert lost in node.disk.list("logs")


def test_a_stray_folder_is_out_of_the_way_before_anyone_can_take_its_name() -> None:
    node = Node()
    node.create("orders")
    node.produce("orders", ["old"])
    node.disk.create("logs/payments/0/00000000000000000000.log").sync()
    node.restart_after_crash()
    node.create("payments")
    node.produce("payments", ["new"])
    node.run_for(1_000)
    node.restart_after_crash()
    assert node.values("payments") == [b"new"]


# Growing


def test_a_topic_grows_and_stays_grown() -> None:
    node = Node()
    node.create("orders", 2)
    node.produce("orders", ["a"], partition=1)
    node.wait(node.broker.topics.grow("orders", 4))
    node.produce("orders", ["b"], partition=3)
    node.restart_after_crash()
    assert node.values("orders", partition=1) == [b"a"]
    assert node.values("orders", partition=3) == [b"b"]


@pytest.mark.parametrize(
    ("count", "reason"),
    [(2, "would not be an increase"), (1, "would not"), (PARTITIONS_MAX + 1, "at most")],
)
def test_a_topic_never_shrinks_nor_grows_without_bound(count: int, reason: str) -> None:
    node = Node()
    node.create("orders", 2)
    with pytest.raises(InvalidPartitionCount, match=reason):
        node.broker.topics.grow("orders", count)


def test_a_grown_topic_opens_after_a_stop_in_between() -> None:
    node = Node()
    node.create("orders", 2)
    node.produce("orders", ["a"])
    node.wait(node.broker.topics.grow("orders", 3))
    node.stop()
    node.start()
    assert node.values("orders") == [b"a"]
    node.produce("orders", ["b"], partition=2)


# Settings


def test_a_changed_segment_size_takes_effect_with_the_next_batch() -> None:
    node = Node()
    partition = node.create("orders").partition(0)
    node.produce("orders", ["a" * 600] * 3)
    assert len(partition.log.segments) == 1
    node.wait(node.broker.topics.configure("orders", {"segment_bytes": "1024"}))
    node.produce("orders", ["a" * 600] * 3)
    assert len(partition.log.segments) == 4


def test_a_changed_retention_takes_effect_with_the_next_check() -> None:
    node = Node(storage__retention_check_ms="1s")
    node.create("orders", segment_bytes="1024")
    node.produce("orders", [letter * 600 for letter in "abcd"])
    node.run_for(5_000)
    assert len(node.values("orders")) == 4
    node.wait(node.broker.topics.configure("orders", {"retention_bytes": "1000"}))
    node.run_for(2_000)
    assert len(node.values("orders")) == 2


def test_settings_are_replaced_as_a_whole_and_kept() -> None:
    node = Node()
    node.create("orders", retention_ms="1000", segment_bytes="1024")
    node.wait(node.broker.topics.configure("orders", {"max_message_bytes": "50"}))
    node.restart_after_crash()
    topic = node.broker.topics.get("orders")
    assert topic.fact.settings == {"max_message_bytes": "50"}
    assert topic.settings.message_bytes_max == 50
    assert topic.settings.log.segment_bytes == node.settings.storage.segment_bytes


def test_wrong_settings_change_nothing() -> None:
    node = Node()
    node.create("orders", retention_ms="1000")
    with pytest.raises(InvalidTopicSetting):
        node.broker.topics.configure("orders", {"retention_ms": "-2"})
    assert node.broker.topics.get("orders").fact.settings == {"retention_ms": "1000"}


# Who may do what


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node.broker.topics.delete(OFFSETS_TOPIC),
        lambda node: node.broker.topics.grow(OFFSETS_TOPIC, 99),
        lambda node: node.produce(OFFSETS_TOPIC, ["a"]),
        lambda node: node.broker.administration.delete_records(OFFSETS_TOPIC, 0, before_offset=-1),
    ],
    ids=["delete", "grow", "produce", "delete_records"],
)
def test_the_brokers_own_topics_are_not_changed_from_outside(
    change: Callable[[Node], object],
) -> None:
    node = Node(groups__offsets_partitions="2")
    node.host_groups()
    with pytest.raises(InternalTopic):
        change(node)


def test_everybody_who_wants_to_know_is_told_of_every_change() -> None:
    node = Node()
    seen: list[list[str]] = []
    node.broker.topics.on_change(lambda: seen.append(names(node)))
    node.create("a")
    node.create("b")
    delete(node, "a")
    node.wait(node.broker.topics.grow("b", 2))
    assert seen == [["a"], ["a", "b"], ["b"], ["b"]]


# Producer ids


def test_producer_ids_are_never_handed_out_twice_whatever_happens() -> None:
    node = Node()
    handed_out: list[int] = []
    for _ in range(4):
        handed_out += [node.wait(node.broker.new_producer_id()) for _ in range(3)]
        node.restart_after_crash()
    assert len(set(handed_out)) == len(handed_out)


def test_a_block_of_producer_ids_costs_one_write() -> None:
    node = Node()
    node.wait(node.broker.new_producer_id())
    rounds = node.broker.flusher.rounds
    for _ in range(PRODUCER_ID_BLOCK - 1):
        assert node.broker.new_producer_id().is_done
    assert node.broker.flusher.rounds == rounds
    assert not node.broker.new_producer_id().is_done


# Stopping


def test_a_node_stops_though_the_disk_is_full_and_starts_again_with_everything() -> None:
    node = Node(storage__segment_bytes="1KiB", storage__index_interval_bytes="1")
    node.create("orders")
    node.produce("orders", ["a" * 300] * 5)
    node.disk.fill_after(0)
    node.stop()
    node.disk.make_room()
    node.start()
    assert len(node.values("orders")) == 5


def test_a_partition_that_failed_is_examined_at_the_next_start() -> None:
    node = Node()
    node.create("orders")
    node.create("sound")
    node.produce("sound", ["a"])
    node.produce("orders", ["durable"])
    node.disk.fail_syncs(2)  # the commit journal, then the log itself
    with pytest.raises(StorageFailed):
        node.produce("orders", ["doubtful"])
    node.stop()
    node.disk.crash()  # The machine restarts too: what was never synced is lost.
    node.start()
    assert node.values("orders") == [b"durable"]
    assert node.values("sound") == [b"a"]
    node.produce("orders", ["again"])
    assert node.values("orders") == [b"durable", b"again"]


def test_a_single_node_does_not_start_without_a_journal_that_it_cannot_read() -> None:
    """No other node has what may be there; whoever removes the file decides so."""
    node = Node()
    node.create("orders")
    for value in "abc":
        node.produce("orders", [value])
    node.crash()
    journal = "meta/commit-journal-0"
    for page in range(3):
        node.disk.spoil(journal, page * PAGE_BYTES)
    for _ in range(2):
        with pytest.raises(OSError, match=journal):
            node.start()
        node.disk.life += 1
    node.disk.remove(journal)
    node.start()
    node.produce("orders", ["d"])
    assert node.values("orders")[-1] == b"d"
    assert set(node.values("orders")) <= {b"a", b"b", b"c", b"d"}


def test_a_single_node_starts_without_a_partition_that_was_moved_away() -> None:
    node = Node()
    for topic in ("orders", "sound"):
        node.create(topic)
        node.produce(topic, ["a"])
    node.crash()
    node.disk.spoil(f"logs/orders/0/{segment_name(0)}{LOG_SUFFIX}", 0)
    node.disk.is_spoiled_for_good = True
    with pytest.raises(OSError, match="Input/output error"):
        node.start()
    node.disk.life += 1
    node.disk.rename("logs/orders/0", "elsewhere")
    node.start()
    assert node.values("sound") == [b"a"]
    node.produce("orders", ["b"])
    assert node.values("orders") == [b"b"]


def test_a_note_of_a_clean_stop_is_believed_once() -> None:
    node = Node()
    node.create("orders")
    node.produce("orders", ["a"])
    node.stop()
    node.start()
    node.produce("orders", ["b"])
    node.restart_after_crash()
    assert node.values("orders") == [b"a", b"b"]


def test_a_note_that_does_not_fit_the_topic_is_not_believed() -> None:
    node = Node()
    node.create("orders", 2)
    node.produce("orders", ["a"])
    node.stop()
    node.disk.flip_bit("meta/clean-stop", 100)
    node.start()
    assert node.values("orders") == [b"a"]
