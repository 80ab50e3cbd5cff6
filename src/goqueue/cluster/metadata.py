"""The metadata state machine: entries in, current state out.

An entry is the complete state of one thing (a topic, the next free producer id) under a key. A
later entry under the same key replaces it, and a key without a value removes it. So the log of
entries can be compacted, and replaying it in order gives the same state on every node.

A single node stores the entries as records of a compacted log (`replay`, `change_record`). A
cluster stores them as decisions in a consensus log, with snapshots instead of compaction; entries
about partitions exist only there, because they are meaningful only in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from goqueue.cluster.facts import (
    CONFIG_PREFIX,
    JOB_PREFIX,
    NAMED_PRODUCER_PREFIX,
    NAMED_QUEUE_PREFIX,
    NO_LEADER,
    NODE_PREFIX,
    PARTITION_PREFIX,
    QUEUE_GROUP_PREFIX,
    ROUTING_PREFIX,
    TOPIC_PREFIX,
    Change,
    ClusterFact,
    ConfigFact,
    Decision,
    Fact,
    Forget,
    JobFact,
    NamedProducer,
    NamedQueueFact,
    NextProducerId,
    NodeFact,
    PartitionFact,
    PartitionKey,
    QueueGroupFact,
    RoutingFact,
    TopicFact,
    decode_decision,
    encode_decision,
)
from goqueue.cluster.identity_counts import IdentityCounts
from goqueue.cluster.identity_facts import (
    ACL_PREFIX,
    KEY_PREFIX,
    KEY_USE_PREFIX,
    QUOTA_PREFIX,
    ROLE_PREFIX,
    TENANT_PREFIX,
    USER_PREFIX,
    AclFact,
    KeyFact,
    KeyUseFact,
    QuotaFact,
    RoleFact,
    SigningSecretFact,
    TenantFact,
    UserFact,
)
from goqueue.model.batch import Record
from goqueue.model.errors import MalformedRequest, UnsupportedVersion
from goqueue.model.names import folded_topic_name
from goqueue.model.support import LEVEL_MAX, SUPPORT, Support, check_level

FactT = TypeVar("FactT", bound=Fact)
# A dictionary keeps its order, which a set of bytes does not from run to run.
_Places = dict[PartitionKey, None]

DELETED_NAMES_MAX = 10_000  # the oldest are dropped; their folders are then kept, not removed
_VERSION = b"\x01"
_SNAPSHOT_MAGIC = b"GQMD"
_SNAPSHOT_VERSION = 1

# The tables of entries about users by the prefix of their keys, and whether they use whole keys.
_IDENTITY_TABLES = {
    USER_PREFIX: ("users", False),
    KEY_PREFIX: ("keys", False),
    KEY_USE_PREFIX: ("key_uses", False),
    ACL_PREFIX: ("acls", True),
    ROLE_PREFIX: ("roles", False),
    QUOTA_PREFIX: ("quotas", True),
    TENANT_PREFIX: ("tenants", False),
}

_decoder = msgspec.msgpack.Decoder(Fact)
_encoder = msgspec.msgpack.Encoder()
_snapshot_decoder = msgspec.msgpack.Decoder(tuple[tuple[str, ...], bytes])


def check_supported(changes: Iterable[Change], support: Support) -> None:
    """Raise if changes, which are not applied yet, need another release."""
    for change in changes:
        if isinstance(change, ClusterFact):
            check_level(change.feature_level, support)


class Metadata:
    """The current cluster metadata."""

    __slots__ = (
        "_by_id",
        "_folded",
        "_topics",
        "acls",
        "cluster",
        "configs",
        "deleted",
        "identity_counts",
        "jobs",
        "key_uses",
        "keys",
        "named_queues",
        "next_producer_id",
        "nodes",
        "partitions",
        "producers",
        "queue_groups",
        "quotas",
        "roles",
        "routing",
        "signing_secret",
        "tenants",
        "users",
    )

    def __init__(self) -> None:
        self._topics: dict[str, TopicFact] = {}
        self._folded: dict[str, str] = {}  # topic names by the name that metrics give them
        self._by_id: dict[bytes, TopicFact] = {}
        self.next_producer_id = 0
        self.producers: dict[str, NamedProducer] = {}
        self.queue_groups: dict[str, QueueGroupFact] = {}
        self.named_queues: dict[str, NamedQueueFact] = {}
        self.jobs: dict[bytes, JobFact] = {}
        self.configs: dict[bytes, ConfigFact] = {}
        self.cluster: ClusterFact | None = None
        self.nodes: dict[int, NodeFact] = {}
        self.partitions = PartitionTable()
        self.routing: dict[bytes, RoutingFact] = {}
        self.users: dict[str, UserFact] = {}
        self.keys: dict[str, KeyFact] = {}
        self.key_uses: dict[str, KeyUseFact] = {}
        self.acls: dict[bytes, AclFact] = {}
        self.roles: dict[str, RoleFact] = {}
        self.identity_counts = IdentityCounts()
        self.quotas: dict[bytes, QuotaFact] = {}
        self.tenants: dict[str, TenantFact] = {}
        self.signing_secret: SigningSecretFact | None = None
        # Deleted topic names that the log still contains, oldest first.
        self.deleted: dict[str, None] = {}

    @property
    def level(self) -> int:
        """The feature level that the logs may use; a single node uses that of its release."""
        return LEVEL_MAX if self.cluster is None else self.cluster.feature_level

    def topic(self, name: str) -> TopicFact | None:
        return self._topics.get(name)

    def topic_mistaken_for(self, name: str) -> str | None:
        """Return a topic whose metrics would collide with this one's: metrics turn "." into "_"."""
        return self._folded.get(folded_topic_name(name))

    def topic_by_id(self, topic_id: bytes) -> TopicFact | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Iterator[TopicFact]:
        return iter(list(self._topics.values()))

    def is_alive(self, node: int) -> bool:
        """Return whether a node may lead and be in sync."""
        fact = self.nodes.get(node)
        return fact is not None and not fact.is_fenced

    # Changing

    def apply_all(self, decision: Decision) -> None:
        """Apply a whole decision; its effects must wait until all of it is applied."""
        for change in decision:
            self.apply(change)

    def apply(self, change: Change) -> None:
        _APPLY[type(change)](self, change)

    def forget_topic(self, name: str) -> None:
        self._note_deleted(name)
        gone = self._topics.pop(name, None)
        if gone is not None:
            del self._by_id[gone.id]
            if self._folded.get(folded_topic_name(name)) == name:
                del self._folded[folded_topic_name(name)]
            self.partitions.drop_topic(gone.id)
            self.routing.pop(gone.id, None)

    def replay(self, record: Record) -> None:
        """Apply one record of the log of a single node."""
        if record.value is None:
            self._forget(record.key or b"")
        else:
            self.apply(_read_fact(record))

    def _put_topic(self, fact: TopicFact) -> None:
        before = self._topics.get(fact.name)
        if before is not None and before.id != fact.id:
            self.forget_topic(fact.name)
        self.deleted.pop(fact.name, None)
        self._topics[fact.name] = fact
        self._folded[folded_topic_name(fact.name)] = fact.name
        self._by_id[fact.id] = fact

    def _put_next_producer_id(self, fact: NextProducerId) -> None:
        self.next_producer_id = max(self.next_producer_id, fact.value)

    def _put_partition(self, fact: PartitionFact) -> None:
        # A partition lives and dies with its topic; an entry that arrives later is ignored.
        if fact.topic_id in self._by_id:
            self.partitions.put(fact)

    def _put_routing(self, fact: RoutingFact) -> None:
        if fact.topic_id in self._by_id:
            self.routing[fact.topic_id] = fact

    def _put_cluster(self, fact: ClusterFact) -> None:
        self.cluster = fact

    def _put_signing_secret(self, fact: SigningSecretFact) -> None:
        self.signing_secret = fact

    def _put_user(self, fact: UserFact) -> None:
        self.users[fact.name] = fact
        self.identity_counts.put_user(fact)

    def _put_key(self, fact: KeyFact) -> None:
        self.keys[fact.value.id] = fact
        owner = self.users.get(fact.value.user)
        self.identity_counts.put_key(fact, "" if owner is None else owner.tenant)

    def _put_rule(self, fact: AclFact) -> None:
        self.acls[fact.key] = fact
        self.identity_counts.put_rule(fact)

    def _put_role(self, fact: RoleFact) -> None:
        self.roles[fact.name] = fact
        self.identity_counts.put_role(fact)

    def _forget(self, key: bytes) -> None:
        prefix, slash, rest = key.partition(b"/")
        prefix += slash
        if prefix in _IDENTITY_TABLES:
            name, by_key = _IDENTITY_TABLES[prefix]
            gone = getattr(self, name).pop(key if by_key else rest.decode(), None)
            if isinstance(gone, KeyFact):
                self.identity_counts.forget_key(gone)
            else:
                self.identity_counts.forget(key)
        elif prefix == TOPIC_PREFIX:
            self.forget_topic(rest.decode())
        elif prefix == QUEUE_GROUP_PREFIX:
            self.queue_groups.pop(rest.decode(), None)
        elif prefix == NAMED_QUEUE_PREFIX:
            self.named_queues.pop(rest.decode(), None)
        elif prefix == CONFIG_PREFIX:
            self.configs.pop(key, None)
        elif prefix == JOB_PREFIX:
            self.jobs.pop(key, None)
        elif prefix == NAMED_PRODUCER_PREFIX:
            self.producers.pop(rest.decode(), None)
        elif prefix == NODE_PREFIX:
            self.nodes.pop(int(rest), None)
        elif prefix == ROUTING_PREFIX:
            self.routing.pop(bytes.fromhex(rest.decode()), None)
        elif prefix == PARTITION_PREFIX:
            topic_id, _, number = rest.decode().partition("/")
            self.partitions.drop(bytes.fromhex(topic_id), int(number))

    def _note_deleted(self, name: str) -> None:
        self.deleted.pop(name, None)
        self.deleted[name] = None
        if len(self.deleted) > DELETED_NAMES_MAX:
            del self.deleted[next(iter(self.deleted))]

    # The whole state at once

    def facts(self) -> Iterator[Fact]:
        """Yield all entries, in an order that does not depend on their history."""
        if self.cluster is not None:
            yield self.cluster
        if self.next_producer_id:
            yield NextProducerId(self.next_producer_id)
        yield from _in_order(self.nodes)
        yield from _in_order(self._topics)
        yield from _in_order(self.routing)
        for name in sorted(self._topics):
            yield from self.partitions.of_topic(self._topics[name].id)
        yield from _in_order(self.producers)
        yield from _in_order(self.queue_groups)
        yield from _in_order(self.named_queues)
        yield from _in_order(self.jobs)
        yield from _in_order(self.configs)
        yield from _in_order(self.users)
        yield from _in_order(self.keys)
        yield from _in_order(self.key_uses)
        yield from _in_order(self.acls)
        yield from _in_order(self.roles)
        yield from _in_order(self.quotas)
        yield from _in_order(self.tenants)
        if self.signing_secret is not None:
            yield self.signing_secret

    def identity_keys(self) -> set[bytes]:
        """Return the keys of all entries about users and their rights."""
        return {
            key if by_key else prefix + key.encode()
            for prefix, (table, by_key) in _IDENTITY_TABLES.items()
            for key in getattr(self, table)
        }

    def snapshot(self) -> bytes:
        """Encode the whole state; equal states give equal bytes on every node."""
        body = _encoder.encode((tuple(self.deleted), encode_decision(self.facts())))
        return _SNAPSHOT_MAGIC + bytes([_SNAPSHOT_VERSION]) + body

    def restore(self, snapshot: bytes, *, support: Support = SUPPORT) -> None:
        """Replace the whole state by that of `snapshot`; raise if it needs a later release."""
        deleted, encoded = _split_snapshot(snapshot)
        facts = decode_decision(encoded)
        check_supported(facts, support)
        restored = Metadata()
        restored.apply_all(facts)
        restored.deleted = dict.fromkeys(deleted)
        for name in self.__slots__:
            setattr(self, name, getattr(restored, name))

    def copy(self) -> Metadata:
        """Return an independent copy of the state."""
        twin = Metadata()
        twin.apply_all(tuple(self.facts()))
        twin.deleted = dict(self.deleted)
        return twin


def _read_fact(record: Record) -> Fact:
    """Decode the entry of a record; skipping one that is not understood would undo it."""
    assert record.value is not None
    key = (record.key or b"").decode(errors="replace")
    if record.value[:1] != _VERSION:
        raise UnsupportedVersion(
            f"The metadata entry {key!r} has version {record.value[:1].hex()}, and this node "
            f"supports version {_VERSION.hex()}; upgrade this node."
        )
    try:
        fact: Fact = _decoder.decode(record.value[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(
            f"The metadata entry {key!r} cannot be decoded: {error}. If a later release has "
            "written it, upgrade this node."
        ) from error
    return fact


def _split_snapshot(snapshot: bytes) -> tuple[tuple[str, ...], bytes]:
    if snapshot[:4] != _SNAPSHOT_MAGIC:
        raise MalformedRequest("The data is not a metadata snapshot: its magic number is wrong.")
    if snapshot[4:5] != bytes([_SNAPSHOT_VERSION]):
        raise UnsupportedVersion(
            f"The metadata snapshot has version {snapshot[4:5].hex()}, and this node supports "
            f"version {_SNAPSHOT_VERSION}; upgrade this node."
        )
    try:
        return _snapshot_decoder.decode(snapshot[5:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"The metadata snapshot cannot be decoded: {error}.") from error


def _in_order(table: Mapping[Any, FactT]) -> Iterator[FactT]:
    return (table[key] for key in sorted(table))


def _put(table: str, key: str) -> Callable[[Metadata, Any], None]:
    def put(metadata: Metadata, fact: Any) -> None:
        getattr(metadata, table)[getattr(fact, key)] = fact

    return put


_APPLY: dict[type, Callable[[Metadata, Any], None]] = {
    TopicFact: Metadata._put_topic,
    NextProducerId: Metadata._put_next_producer_id,
    NamedProducer: _put("producers", "name"),
    QueueGroupFact: _put("queue_groups", "name"),
    NamedQueueFact: _put("named_queues", "name"),
    JobFact: _put("jobs", "key"),
    ConfigFact: _put("configs", "key"),
    ClusterFact: Metadata._put_cluster,
    NodeFact: _put("nodes", "id"),
    PartitionFact: Metadata._put_partition,
    RoutingFact: Metadata._put_routing,
    UserFact: Metadata._put_user,
    KeyFact: Metadata._put_key,
    KeyUseFact: _put("key_uses", "id"),
    AclFact: Metadata._put_rule,
    RoleFact: Metadata._put_role,
    QuotaFact: _put("quotas", "key"),
    TenantFact: _put("tenants", "name"),
    SigningSecretFact: Metadata._put_signing_secret,
    Forget: lambda metadata, change: metadata._forget(change.key),
}


def change_record(change: Change, *, now_ms: int) -> Record:
    """Encode a change as a record of a single node's log."""
    value = None if isinstance(change, Forget) else _VERSION + _encoder.encode(change)
    return Record(change.key, value, timestamp_ms=now_ms)


class PartitionTable:
    """All partitions by topic, with indexes by node, by leader and by pending change.

    The failure of one of five nodes that share ten thousand partitions must not require a scan of
    all of them. Every change costs as many steps as the partition has replicas.
    """

    __slots__ = ("_by_topic", "_led", "_moving", "_on_node", "_strayed", "count")

    def __init__(self) -> None:
        self._by_topic: dict[bytes, dict[int, PartitionFact]] = {}
        self._on_node: dict[int, _Places] = {}
        self._led: dict[int, _Places] = {}
        self._strayed: _Places = {}
        self._moving: _Places = {}
        self.count = 0

    def get(self, topic_id: bytes, number: int) -> PartitionFact | None:
        its = self._by_topic.get(topic_id)
        return None if its is None else its.get(number)

    def at(self, place: PartitionKey) -> PartitionFact:
        return self._by_topic[place[0]][place[1]]

    def of_topic(self, topic_id: bytes) -> list[PartitionFact]:
        """Return the partitions of a topic by number; none for a topic of a single node."""
        its = self._by_topic.get(topic_id, {})
        return [its[number] for number in sorted(its)]

    def of_node(self, node: int) -> list[PartitionFact]:
        """Return the partitions with a replica on a node, also those being added or removed."""
        return self._facts(self._on_node.get(node, {}))

    def led_by(self, node: int) -> list[PartitionFact]:
        return self._facts(self._led.get(node, {}))

    def leaderless(self) -> list[PartitionFact]:
        return self._facts(self._led.get(NO_LEADER, {}))

    def strayed(self) -> list[PartitionFact]:
        """Return the partitions that are not led by their preferred replica."""
        return self._facts(self._strayed)

    def moving(self) -> list[PartitionFact]:
        """Return the partitions whose replicas are being moved."""
        return self._facts(self._moving)

    def replica_count(self, node: int) -> int:
        return len(self._on_node.get(node, ()))

    def leader_count(self, node: int) -> int:
        return len(self._led.get(node, ()))

    def __iter__(self) -> Iterator[PartitionFact]:
        for its in self._by_topic.values():
            yield from its.values()

    def put(self, fact: PartitionFact) -> None:
        its = self._by_topic.setdefault(fact.topic_id, {})
        before = its.get(fact.number)
        if before is not None:
            self._unlist(before)
        else:
            self.count += 1
        its[fact.number] = fact
        self._list(fact)

    def drop_topic(self, topic_id: bytes) -> None:
        for fact in self._by_topic.pop(topic_id, {}).values():
            self._unlist(fact)
            self.count -= 1

    def drop(self, topic_id: bytes, number: int) -> None:
        its = self._by_topic.get(topic_id, {})
        fact = its.pop(number, None)
        if fact is not None:
            self._unlist(fact)
            self.count -= 1
            if not its:
                del self._by_topic[topic_id]

    def _list(self, fact: PartitionFact) -> None:
        place = fact.place
        for node in fact.members:
            self._on_node.setdefault(node, {})[place] = None
        self._led.setdefault(fact.leader, {})[place] = None
        if fact.leader not in (NO_LEADER, fact.replicas[0]):
            self._strayed[place] = None
        if fact.is_moving:
            self._moving[place] = None

    def _unlist(self, fact: PartitionFact) -> None:
        place = fact.place
        for node in fact.members:
            _strike(self._on_node, node, place)
        _strike(self._led, fact.leader, place)
        self._strayed.pop(place, None)
        self._moving.pop(place, None)

    def _facts(self, places: _Places) -> list[PartitionFact]:
        return [self._by_topic[topic_id][number] for topic_id, number in places]


def _strike(lists: dict[int, _Places], node: int, place: PartitionKey) -> None:
    places = lists.get(node, {})
    places.pop(place, None)
    if not places:
        lists.pop(node, None)
