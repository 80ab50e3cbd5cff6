"""Disks of single nodes that fail, fill and rot, and what the cluster makes of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial

import pytest

from goqueue.broker.reading.records import Place, read_page
from goqueue.cluster.facts import NOTHING_CLAIMED, PartitionFact
from goqueue.model.errors import CorruptBatch, StorageFailed
from goqueue.storage.segment import LOG_SUFFIX, segment_name
from tests.simulation.cluster_work import Reader
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.disk import PAGE_BYTES, SimulatedFile
from tests.simulation.test_cluster import Writer

TOPIC = "orders"
HAND_OVER_MS = 6_000  # a session and an election, at most
POLLS_MAX = 50
FORMAT_BYTE = 16  # of a batch


def cluster_with_records(
    seed: int, *, node_count: int = 3, batches: int = 8
) -> tuple[ClusterWorld, Writer]:
    world = ClusterWorld(seed, node_count=node_count)
    world.heal()
    world.create(TOPIC, min_insync_replicas="2")
    writer = Writer(world, TOPIC)
    writer.send(batches)
    world.run_until(lambda: writer.out == 0)
    world.heal()
    return world, writer


def leader_of(world: ClusterWorld) -> ClusterNode:
    leader = world.leader_of(TOPIC)
    assert leader is not None
    return leader


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_leader_whose_disk_fails_leaves_its_place_to_another(seed: int) -> None:
    world, writer = cluster_with_records(seed)
    old = leader_of(world)
    old.disk.fail_syncs(1_000_000)
    writer.send(1)
    world.run_until(lambda: world.leader_of(TOPIC) not in (None, old), ms_max=HAND_OVER_MS)
    world.run_for(HAND_OVER_MS)
    acked = len(writer.acked[0])
    writer.send(3)
    world.run_until(lambda: writer.out == 0, ms_max=HAND_OVER_MS)
    assert len(writer.acked[0]) > acked
    assert writer.acked[0] <= set(world.read(leader_of(world), TOPIC))


def test_a_node_keeps_its_copies_of_a_new_topic_as_soon_as_it_has_room() -> None:
    world, _ = cluster_with_records(6)
    full = world.nodes[2]
    full.disk.fill_after(0)
    asker = world.nodes[1].broker.topics
    created = asker.create("late", partition_count=3, settings={})
    world.run_for(1_000)
    full.disk.make_room()
    world.wait(created)
    world.run_until(world.is_whole, ms_max=20_000)
    found = full.broker.topics.get("late")
    assert full.broker.cluster is not None
    copies = full.broker.cluster.quorum.metadata.partitions.of_topic(found.id)
    assert all(set(copy.in_sync) == {1, 2, 3} for copy in copies)


# Rot, and power that fails everywhere


def flip(node: ClusterNode, *, batch: int, byte: int | None = None) -> int:
    """A bit of one batch, by its number, flips on a node's disk; the offset of that batch.

    It is in the batch's last byte, unless another is named.
    """
    partition = node.partition(TOPIC)
    assert partition is not None
    places = [located for _, located in partition.log.located(0)]
    path = partition.log.active.file.path
    node.is_rotten = True
    end = places[batch].end if byte is None else places[batch].position + byte + 1
    node.disk.flip_bit(path, 8 * end - 1)
    return places[batch].header.base_offset


def is_damaged(node: ClusterNode) -> bool:
    partition = node.partition(TOPIC)
    return partition is not None and partition.replica.first_damage is not None


def poll_until(reader: Reader, is_so: Callable[[], bool]) -> None:
    """Some polls go to another copy than the leader's, as the seed says."""
    for _ in range(POLLS_MAX):
        if is_so():
            return
        reader.poll()
    raise AssertionError("the reader does not get there")


def has_controller(world: ClusterWorld) -> bool:
    clusters = [node.broker.cluster for node in world.up()]
    return any(one is not None and one.quorum.is_controller for one in clusters)


def placement(world: ClusterWorld) -> PartitionFact:
    """Who keeps the partition, as the controller knows it."""
    clusters = [node.broker.cluster for node in world.up()]
    metadata = next(one.quorum.metadata for one in clusters if one and one.quorum.is_controller)
    topic = metadata.topic(TOPIC)
    assert topic is not None
    return metadata.partitions.of_topic(topic.id)[0]


def power_cut(world: ClusterWorld, *nodes: ClusterNode) -> None:
    for node in nodes or world.up():
        node.crash()


def power_up(world: ClusterWorld, *nodes: ClusterNode) -> None:
    for node in nodes:
        node.start()
        world.run_for(100)


def check_nothing_is_lost(world: ClusterWorld, writer: Writer) -> None:
    """All nodes have everything again, and none shows damage."""
    world.heal()
    for node in world.nodes.values():
        node.is_rotten = False
    world.run_for(HAND_OVER_MS)
    for number in placement(world).members:
        assert writer.acked[0] <= set(world.read(world.nodes[number], TOPIC)), number
    world.watch.check_whole()


@pytest.mark.parametrize("batch", [0, 3, -1])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_flipped_bit_and_a_power_cut_of_all_nodes_lose_nothing(number: int, batch: int) -> None:
    """The copy that has rotted is cut off there, and whoever has more leads."""
    world, writer = cluster_with_records(7)
    rotten = world.nodes[number]
    flip(rotten, batch=batch)
    power_cut(world)
    others = [node for node in world.nodes.values() if node is not rotten]
    power_up(world, rotten, *others)
    check_nothing_is_lost(world, writer)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_last_in_sync_does_not_lead_with_what_rot_has_left_of_its_copy(place: int) -> None:
    """The others fell first and are not in sync any more, but have what was acknowledged."""
    world, writer = cluster_with_records(8, node_count=5)
    members = [world.nodes[number] for number in placement(world).members]
    last = members.pop(place)
    for node in members:
        node.crash()
        world.run_for(3_000)
    assert placement(world).in_sync == (last.number,)
    flip(last, batch=2)
    last.crash()
    power_up(world, last, members[0])
    world.run_for(HAND_OVER_MS)
    assert world.leader_of(TOPIC) is None
    power_up(world, members[1])
    check_nothing_is_lost(world, writer)


def test_a_copy_that_cannot_be_opened_for_now_is_kept_and_waited_for() -> None:
    """It is whole, and the other one that is in sync has rotted."""
    world, writer = cluster_with_records(11)
    rotten, full, outsider = (world.nodes[number] for number in placement(world).members)
    outsider.crash()
    wanted = {rotten.number, full.number}
    world.run_until(lambda: has_controller(world) and set(placement(world).in_sync) == wanted)
    writer.send(4)
    world.run_until(lambda: writer.out == 0)
    flip(rotten, batch=1)
    power_cut(world)
    full.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full.disk, "open", partial(refuse_copy, full.disk.open))
        power_up(world, outsider, rotten)
        world.run_for(HAND_OVER_MS)
        assert placement(world).claimed[full.number] == NOTHING_CLAIMED
        assert world.leader_of(TOPIC) is None
    world.run_until(lambda: world.leader_of(TOPIC) is full, ms_max=HAND_OVER_MS)
    check_nothing_is_lost(world, writer)


def test_a_copy_of_an_unknown_topic_is_neither_opened_nor_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may belong to another topic of that name, with records that nobody else has."""
    world, writer = cluster_with_records(13)
    rotten, other, _ = (world.nodes[number] for number in placement(world).members)
    flip_id(rotten)
    rotten.crash()
    power_up(world, rotten)
    world.run_for(HAND_OVER_MS)
    assert not has_opened(rotten)
    assert f"logs/{TOPIC}/id is damaged" in caplog.text
    world.create("late")  # the others are not affected
    flip_id(rotten)
    world.run_until(lambda: has_opened(rotten), ms_max=HAND_OVER_MS)
    check_nothing_is_lost(world, writer)

    flip_id(rotten)
    world.wait(other.broker.topics.delete(TOPIC))
    world.run_for(HAND_OVER_MS)
    assert rotten.disk.list(f"logs/{TOPIC}")


def test_a_copy_of_an_unknown_topic_is_in_doubt_when_it_is_opened_after_a_restart() -> None:
    """What the journal had of it is gone, and nobody was told of a copy that was not opened."""
    world, writer = cluster_with_records(13)
    rotten = world.nodes[placement(world).members[0]]
    flip_id(rotten)
    rotten.crash()
    power_up(world, rotten)
    world.run_for(HAND_OVER_MS)
    flip_id(rotten)
    rotten.crash()
    assert rotten.disk.exists("meta/doubt")
    power_up(world, rotten)
    world.run_until(lambda: has_opened(rotten), ms_max=HAND_OVER_MS)
    check_nothing_is_lost(world, writer)
    assert not rotten.disk.exists("meta/doubt")


def flip_id(node: ClusterNode) -> None:
    """A bit of the id of the topic flips, there or back."""
    file = f"logs/{TOPIC}/id"
    node.disk.flip_bit(file, 8 * len(node.disk.read_whole(file)) - 1)


def refuse_copy(opened: Callable[[str], SimulatedFile], path: str) -> SimulatedFile:
    """There is no room for what has to be written when a copy is opened."""
    if path.startswith(f"logs/{TOPIC}/"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return opened(path)


def test_a_copy_that_was_cut_and_then_not_opened_is_in_doubt_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second try finds a log that looks whole."""
    world, writer = cluster_with_records(12, node_count=5)
    numbers = placement(world).members
    rotten, *members = [world.nodes[number] for number in numbers]
    outsiders = [node for node in world.nodes.values() if node.number not in numbers]
    flip(rotten, batch=1)
    power_cut(world)
    failures: list[str] = []
    truncate = SimulatedFile.truncate

    def fail_after(file: SimulatedFile, size: int) -> None:
        truncate(file, size)
        if not failures and file.path.startswith(f"logs/{TOPIC}/"):
            failures.append(file.path)
            rotten.disk.fail_syncs(1)

    monkeypatch.setattr(SimulatedFile, "truncate", fail_after)
    power_up(world, *outsiders, rotten)
    world.run_for(HAND_OVER_MS)
    assert failures
    assert has_opened(rotten)
    assert world.leader_of(TOPIC) is None
    power_up(world, *members)
    check_nothing_is_lost(world, writer)


@pytest.mark.parametrize("seed", range(20, 26))
def test_rot_in_the_commit_journal_and_a_power_cut_of_all_nodes_lose_nothing(seed: int) -> None:
    world, writer = cluster_with_records(seed)
    for _ in range(4):
        writer.send(2)
        world.run_until(lambda: writer.out == 0)
    world.run_for(500)
    rotten = world.nodes[1 + seed % 3]
    rotten.is_rotten = True
    data = rotten.disk.read_whole("meta/commit-journal-0")
    used = len(data.rstrip(b"\0"))
    rotten.disk.flip_bit("meta/commit-journal-0", world.random.randrange(8 * 8192, 8 * used))
    for node in world.nodes.values():
        node.disk.survival = 0.0  # What only the journal has is gone from the logs.
    power_cut(world)
    power_up(world, rotten, *(node for node in world.nodes.values() if node is not rotten))
    check_nothing_is_lost(world, writer)


def test_a_node_that_falls_again_before_it_has_told_its_doubts_has_them_still() -> None:
    """Its log looks whole by then."""
    world, writer = cluster_with_records(9, node_count=5)
    numbers = placement(world).members
    rotten, *members = [world.nodes[number] for number in numbers]
    outsiders = [node for node in world.nodes.values() if node.number not in numbers]
    flip(rotten, batch=1)
    power_cut(world)
    power_up(world, *outsiders)
    rotten.start()
    world.run_until(lambda: has_opened(rotten))
    rotten.kill()
    power_up(world, rotten)
    world.run_for(HAND_OVER_MS)
    assert world.leader_of(TOPIC) is None
    power_up(world, *members)
    check_nothing_is_lost(world, writer)
    assert not any(node.disk.exists("meta/doubt") for node in world.nodes.values())


def has_opened(node: ClusterNode) -> bool:
    partition = node.partition(TOPIC)
    return partition is not None and node.broker.topics.keeps(partition)


def test_copies_that_were_torn_and_not_rotten_are_led_again_when_most_nodes_are_back() -> None:
    for seed in range(30, 36):
        world, writer = cluster_with_records(seed)
        writer.send(5)
        world.run_for(world.random.uniform(0, 3))
        power_cut(world)
        power_up(world, world.nodes[1], world.nodes[3])
        world.run_until(lambda: world.leader_of(TOPIC) is not None, ms_max=HAND_OVER_MS)  # noqa: B023
        check_nothing_is_lost(world, writer)


def test_a_leader_that_finds_its_copy_damaged_gives_it_up_and_has_it_again() -> None:
    world, writer = cluster_with_records(10)
    old = leader_of(world)
    partition = old.partition(TOPIC)
    assert partition is not None
    offset = flip(old, batch=2)
    partition.log.distrust(offset)
    found = partition.read(offset, bytes_max=1)
    assert found is not None
    with pytest.raises(CorruptBatch):
        found.read()
    world.run_until(lambda: world.leader_of(TOPIC) not in (None, old), ms_max=HAND_OVER_MS)
    check_nothing_is_lost(world, writer)
    assert partition.replica.first_damage is None


@pytest.mark.parametrize("is_known", [True, False])
def test_a_batch_whose_format_has_rotted_is_damage_to_a_reader(is_known: bool) -> None:
    """Its checksum is right still. A node that has not rotted must never show such a batch."""
    world, writer = cluster_with_records(11, batches=3)
    reader, old = Reader(world, TOPIC, 0), leader_of(world)
    offset = flip(old, batch=1, byte=FORMAT_BYTE)
    old.is_rotten = is_known
    if not is_known:
        with pytest.raises(AssertionError, match="shows damage"):
            poll_until(reader, lambda: reader.position > offset)
        return
    poll_until(reader, lambda: reader.position == offset)
    # Who asks for that very batch is told, and the leader knows it then.
    poll_until(reader, lambda: is_damaged(old))
    world.run_until(lambda: world.leader_of(TOPIC) not in (None, old), ms_max=HAND_OVER_MS)
    check_nothing_is_lost(world, writer)
    while reader.position < world.watch.ledger(TOPIC).end:
        reader.poll()
    assert set(reader.values) == writer.acked[0]


@pytest.mark.parametrize("page", [0, 1, 2])
def test_a_leader_that_cannot_read_its_disk_gives_its_copy_up_and_has_it_again(page: int) -> None:
    """Its followers are in sync, and would never ask for what is unreadable."""
    world, writer = cluster_with_records(12, batches=200)
    old = leader_of(world)
    partition = old.partition(TOPIC)
    assert partition is not None
    places = [located for _, located in partition.log.located(0)]
    unreadable = next(one for one in places if one.position >= page * PAGE_BYTES)
    assert partition.log.active.size > (page + 1) * PAGE_BYTES
    old.is_rotten = True
    old.disk.spoil(partition.log.active.file.path, unreadable.position)
    with pytest.raises(StorageFailed, match="Input/output error; retry"):
        read_page([Place(partition, unreadable.header.base_offset)], records_max=1, bytes_max=1)
    world.run_until(lambda: world.leader_of(TOPIC) not in (None, old), ms_max=HAND_OVER_MS)
    check_nothing_is_lost(world, writer)
    assert partition.replica.first_damage is None


JOURNAL = "meta/commit-journal-0"


def cluster_with_journals(seed: int) -> tuple[ClusterWorld, Writer, ClusterNode]:
    """A cluster without power, whose nodes have records in their journals; a former leader."""
    world, writer = cluster_with_records(seed)
    broken = leader_of(world)
    writer.send(40)
    world.run_until(lambda: writer.out == 0)
    assert broken.disk.exists(JOURNAL)
    power_cut(world)
    broken.is_rotten = True
    return world, writer, broken


def power_up_first(world: ClusterWorld, first: ClusterNode) -> None:
    power_up(world, first, *(node for node in world.nodes.values() if node is not first))


@pytest.mark.parametrize("seed", range(13, 17))
def test_a_commit_journal_that_cannot_be_read_does_not_stop_a_node(seed: int) -> None:
    """Others have what was acknowledged: the node starts, and its replicas are suspect."""
    world, writer, broken = cluster_with_journals(seed)
    for position in range(0, broken.disk.open(JOURNAL).size(), PAGE_BYTES):
        broken.disk.spoil(JOURNAL, position)
    power_up_first(world, broken)
    check_nothing_is_lost(world, writer)


@pytest.mark.parametrize("is_cured", [True, False])
@pytest.mark.parametrize("seed", range(17, 21))
def test_a_log_that_cannot_be_read_while_the_journal_is_replayed_stops_no_node(
    seed: int, is_cured: bool
) -> None:
    """Writing may cure a bad sector. If it does not, only this replica cannot be opened."""
    world, writer, broken = cluster_with_journals(seed)
    path = f"logs/{TOPIC}/0/{segment_name(0)}{LOG_SUFFIX}"
    broken.disk.spoil(path, 0)
    broken.disk.is_spoiled_for_good = not is_cured
    power_up_first(world, broken)
    assert broken.is_up
    world.run_until(lambda: world.leader_of(TOPIC) is not None, ms_max=4 * HAND_OVER_MS)
    world.run_until(lambda: writer.acked[0] <= set(world.read(leader_of(world), TOPIC)))
