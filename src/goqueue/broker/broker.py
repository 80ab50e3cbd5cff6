"""The broker: joins the parts of a node, which front ends use through its gate."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from uuid import UUID

import msgspec

from goqueue.broker.administration import Administration
from goqueue.broker.confirming import Confirming
from goqueue.broker.controller.metadata import LocalLog
from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.dynamic_settings import DynamicSettings
from goqueue.broker.gate import Gate
from goqueue.broker.named_queues.claims import ClusterClaims, NoClaims, Publish
from goqueue.broker.named_queues.counting import QueueCounting
from goqueue.broker.named_queues.deduplication_ids import RecentIds
from goqueue.broker.named_queues.moves import NamedQueueMoves
from goqueue.broker.named_queues.named_queues import NamedQueues
from goqueue.broker.named_queues.purging import QueuePurging
from goqueue.broker.named_queues.receiving import QueueReceiving
from goqueue.broker.named_queues.sending import QueueSender
from goqueue.broker.publishing.outbox import Outbox, OwnersOutbox
from goqueue.broker.publishing.publisher import Outgoing, Publisher, PublishResult
from goqueue.broker.publishing.split_batches import PendingBatches, Split, scheduled_participant
from goqueue.broker.queues.queues import Queues
from goqueue.broker.reading.fetching import Fetch, FetchDone, Wanted
from goqueue.broker.reading.gathered import GatheredReading
from goqueue.broker.reading.records import Place, Reading
from goqueue.broker.reading.remote import Bounds, RemoteReader
from goqueue.broker.redrives.dead_letters import DeadLetters
from goqueue.broker.redrives.jobs import Redrives
from goqueue.broker.replication.clustering import Addresses, Clustering
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.replication.led import DELETION_TIMEOUT_MS
from goqueue.broker.replication.nearest import NearestReplicas
from goqueue.broker.replication.single_to_cluster import facts_of_single_node
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.schemas.registry import Schemas
from goqueue.broker.schemas.validation import Validation
from goqueue.broker.shards.leadership import CoordinatorLifecycle
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.streams.polling import StreamPolling
from goqueue.broker.streams.progress import StreamProgress
from goqueue.broker.topics.compactor import Compactor
from goqueue.broker.topics.housekeeping import Upkeep, release_reserve
from goqueue.broker.topics.internal_topics import InternalTopics, internal_topics
from goqueue.broker.topics.partition_files import PartitionFiles
from goqueue.broker.topics.placement import Placement
from goqueue.broker.topics.settings import TopicDefaults
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.broker.transactions.entry import Entrant, TransactionEntry
from goqueue.broker.transactions.epochs import Epochs
from goqueue.broker.transactions.joining import Joining, is_transactional
from goqueue.broker.transactions.sessions import Transacting
from goqueue.broker.transactions.transactions import Transactions
from goqueue.cluster.metadata import Metadata
from goqueue.config import Settings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers
from goqueue.loop.promise import Promise
from goqueue.model.attributes import (
    may_have_attributes,
    payload_has_attributes,
    produced_payload,
)
from goqueue.model.batch import HEADER_BYTES, Record, read_header
from goqueue.model.compression import Buffer
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    InvalidRequest,
    NotCompacted,
    RecordsKept,
    StorageFull,
    TopicExists,
    UnknownTopic,
)
from goqueue.model.names import (
    DELIVERY_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTION_TOPIC,
    ProducerIdentity,
    TopicPartition,
    check_topic_name,
)
from goqueue.model.observer import Observer
from goqueue.model.session import Session
from goqueue.partition import Appended, Partition
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed

# Waiting time for a topic that this node has not applied yet: two seconds in all.
_KNOWN_CHECK_MS = 50
_KNOWN_CHECKS_MAX = 40

_NODE_FILE = "meta/node"
_NODE_MAGIC = b"GQND"
_NODE_VERSION = 1

_log = logging.getLogger(__name__)


class _Node(msgspec.Struct, frozen=True):
    node_id: int
    cluster_id: str


class Broker:
    """One node's topics and groups."""

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        clock: Clock,
        random: Random,
        *,
        peers: Peers | None = None,
        addresses: Addresses = dict,
        observer: Observer | None = None,
    ) -> None:
        """With `peers` it is one node of a cluster, and registers there with its `addresses`."""
        self.settings = settings
        self.clock = clock
        self.random = random
        self.peers = peers
        self.node_id = settings.node.id
        self._disk = disk
        release_reserve(disk, settings.storage)
        self._own_cluster_id = self._identify()
        self._keep_topics(addresses)
        self.topics.observer = observer
        self.leaders = Leaders(self.node_id, self.topics, clock, self.cluster, peers)
        self.leaders.is_full = self._is_full
        self.topics.internal = InternalTopics(clock, self.topics, self.leaders, settings)
        self.administration = Administration(
            self.node_id, self.topics, self.cluster, addresses, clock.wall_ms
        )
        self.nearest = NearestReplicas(self.node_id, self.cluster, settings.cluster.rack)
        self.remote = None if peers is None else self._remote_reader(peers)
        self._coordinate_groups()
        self.upkeep = Upkeep(
            disk, clock, self.topics, self.flusher, settings.storage, settings.producers
        )
        self._schedule_and_validate()
        self._redrive_dead_letters()
        self._take_messages()
        self.compactor = Compactor(disk, clock, self.topics, self.flusher, settings.compaction)
        self.gate = Gate(self)
        self.local_gate = Gate(self, routes=False)

    def _is_full(self) -> bool:
        return self.upkeep.is_full

    def _keep_topics(self, addresses: Addresses) -> None:
        """Create the topic logs and the metadata log: local, or a quorum."""
        disk, clock, storage = self._disk, self.clock, self.settings.storage
        commit_journal = CommitJournal(disk, file_bytes=storage.commit_journal_bytes // 2)
        is_every = storage.fsync == "every"
        self.flusher = Flusher(
            clock,
            mode=storage.fsync,
            interval_ms=storage.fsync_interval_ms,
            # In any mode, an earlier process with another mode may have left a journal.
            journal=commit_journal if is_every else None,
        )
        files = PartitionFiles(
            disk,
            clock,
            self.flusher,
            commit_journal,
            waits_for_sync=is_every,
            new_id=self.new_id,
        )

        def single_node() -> Metadata | None:
            return facts_of_single_node(disk, clock, self.flusher, commit_journal, files)

        peers = self.peers
        self.cluster = None if peers is None else self._clustering(peers, addresses, single_node)
        self.topics = Topics(
            files,
            self.cluster.quorum
            if self.cluster is not None
            else LocalLog(disk, clock, self.flusher, commit_journal),
            TopicDefaults(storage, self.settings.compaction, self.settings.topics),
            keeps_all=self.cluster is None,
            node_id=self.node_id,
            new_id=self.new_id,
        )
        if self.cluster is not None:
            self.cluster.attach(self.topics, self.flusher, self.settings.replication)

    def _remote_reader(self, peers: Peers) -> RemoteReader:
        return RemoteReader(
            self.topics,
            self.leaders,
            peers,
            start=lambda reading, wait_ms: reading.start(self.fetch, wait_ms),
        )

    def _coordinate_groups(self) -> None:
        """Create stream groups, transactions and queue groups."""
        settings, clock = self.settings, self.clock
        self.dynamic_settings = DynamicSettings(self.topics.facts.log, settings.groups)
        self.groups = Groups(clock, self.topics, settings.groups, self.dynamic_settings.group_times)
        if self.cluster is not None:
            quorum = self.cluster.quorum
            confirming = Confirming(
                clock, lambda: quorum.catch_up(timeout_ms=settings.cluster.session_ms // 2)
            )
            self.groups.catch_up = confirming.confirm
        self.stream_progress = StreamProgress(self.groups, self.topics, self.look)
        self.stream_polling = StreamPolling(
            self.groups,
            self.topics,
            self.look,
            self.read,
            heartbeat_ms=settings.groups.consumer_heartbeat_ms,
        )
        self.transactions = Transactions(
            clock, self.topics, self.groups, settings.transactions, self.leaders
        )
        self.epochs = Epochs(self.transactions)
        self._entry = TransactionEntry(
            self.topics, self.transactions, is_alone=self.cluster is None
        )
        self.queues = Queues(
            clock,
            self._disk,
            self.topics,
            settings.delivery,
            self.random,
            new_id=self.new_id,
            is_stream_group=self.groups.is_known,
            leaders=self.leaders,
            look=self.look,
            is_alone=self.cluster is None,
        )
        self.groups.is_queue_group = self.queues.is_known
        self.transactions.on_end[DELIVERY_TOPIC] = self.queues.transaction_ended

    def _schedule_and_validate(self) -> None:
        """Create schedules for delayed messages, and schema validation."""
        clock, peers = self.clock, self.peers
        self.schedules = Schedules(
            clock,
            self._disk,
            self.topics,
            self.leaders,
            self.random,
            self.settings.schedules,
            self.settings.producers,
            is_full=self._is_full,
        )
        self._pending = PendingBatches(
            clock, self.schedules, bytes_max=self.settings.schedules.waiting_bytes_max
        )
        self.transactions.on_end[SCHEDULED_TOPIC] = self.schedules.transaction_ended
        self.schemas = Schemas(
            clock,
            self.topics,
            is_full=self._is_full,
            cluster=None
            if peers is None or self.cluster is None
            else (self.leaders, peers, self.cluster),
        )
        self.validation = Validation(self.schemas, self.topics.defaults.values)
        self.topics.check_record = self.validation.check_record

    def _redrive_dead_letters(self) -> None:
        self.dead_letters = DeadLetters(
            self.topics, self.queues.journal, look=self.look, read=self.read
        )
        self.redrives = Redrives(
            self.clock,
            self.topics,
            self.dead_letters,
            new_id=self.new_id,
            is_full=self._is_full,
            leaders=None if self.cluster is None else self.leaders,
        )

    def _take_messages(self) -> None:
        """Create the publishers, with and without transactions."""
        clock = self.clock
        self._publisher = Publisher(
            clock,
            self.topics,
            self.schedules,
            self.random,
            is_full=self._is_full,
            outbox=None
            if self.cluster is None
            else Outbox(clock, self.leaders, self.new_producer_id),
        )
        self._name_queues()
        self.transacting = Transacting(
            clock,
            self.topics,
            self.transactions,
            self.groups,
            self.queues,
            self.schedules,
            self.leaders,
            cluster_id=lambda: self.cluster_id,
            new_id=self.new_id,
            is_full=self._is_full,
        )

    def _name_queues(self) -> None:
        """Create named queues and their senders."""
        clock, quorum = self.clock, None if self.cluster is None else self.cluster.quorum
        wait_ms = self.settings.cluster.session_ms // 2
        self._queue_sender = QueueSender(
            clock,
            self.topics,
            self.queues,
            self.publish,
            RecentIds(clock, look=self.look, read=self.read),
            NoClaims(self.publish)
            if quorum is None
            else ClusterClaims(clock, self.topics, self.leaders, self._owners_publisher),
        )
        self.named_queues = NamedQueues(
            clock,
            self.topics,
            self.queues,
            self._queue_sender,
            partition_count=self.settings.topics.partitions,
            replication_factor=self.settings.cluster.replication_factor,
            new_id=self.new_id,
            catch_up=None if quorum is None else partial(quorum.catch_up, timeout_ms=wait_ms),
            maker_of=self.coordinator_of,
        )
        self.queue_receiving = QueueReceiving(clock, self.queues)
        self.queue_purging = QueuePurging(clock, self.named_queues, self.queues, self.schedules)
        self.queue_counting = QueueCounting(self.topics, self.queues, self.schedules, self.look)
        self.named_queue_moves = NamedQueueMoves(
            clock,
            self.topics.facts,
            self.named_queues,
            self.queues,
            self.queue_counting,
            self.publish,
            node_id=self.node_id,
            new_id=self.new_id,
        )

    def _owners_publisher(self, outbox: OwnersOutbox) -> Publish:
        """Return a publisher for the owner of a queue that fences former owners."""
        publisher = Publisher(
            self.clock,
            self.topics,
            self.schedules,
            self.random,
            is_full=self._is_full,
            outbox=outbox,
        )
        return partial(publisher.publish, partition=None)

    def coordinator_of(self, group: str) -> int:
        """Return the coordinator of stream groups of this name; -1 if there is none."""
        topic = self.topics.find(OFFSETS_TOPIC)
        if self.cluster is None:
            return self.node_id
        if topic is None:
            return -1
        return self.leaders.node_of(topic, self.groups.partition_of(group))

    def _clustering(
        self, peers: Peers, addresses: Addresses, single_node: Callable[[], Metadata | None]
    ) -> Clustering:
        settings = self.settings
        return Clustering(
            self.node_id,
            settings.cluster,
            self._disk,
            self.clock,
            peers,
            self.random,
            internal_topics=internal_topics(settings),
            addresses=addresses,
            new_id=self.new_id,
            offered_id=self._own_cluster_id,
            configured_id=settings.node.cluster_id,
            single_node=single_node,
        )

    @property
    def cluster_id(self) -> str:
        return self._own_cluster_id if self.cluster is None else self.cluster.cluster_id

    @property
    def controller_id(self) -> int:
        """Return the controller; -1 if there is none."""
        return self.node_id if self.cluster is None else self.cluster.quorum.leader

    def placement(self, topic: Topic, number: int) -> Placement:
        """Return the replicas of a partition and its leader."""
        if self.cluster is not None:
            fact = self.cluster.quorum.metadata.partitions.get(topic.id, number)
            if fact is not None:
                return Placement(fact.leader, fact.leader_epoch, fact.members, fact.in_sync)
        here = (self.node_id,)
        return Placement(self.node_id, topic.partitions[number].leader_epoch, here, here)

    def open(self) -> None:
        """Open everything on disk; afterwards the node can serve."""
        self.topics.open()
        self.dynamic_settings.open()
        if self.cluster is not None:
            self._open_in_cluster(self.cluster)
            return
        self.groups.open()
        self.queues.open()
        self.schedules.open()
        self.schemas.open()
        # After all participants of transactions: it notifies them of outcomes.
        self.transactions.open()
        self.redrives.open()
        self.named_queue_moves.resume()
        self.upkeep.start()
        self.compactor.start()

    def _open_in_cluster(self, cluster: Clustering) -> None:
        """Start coordinators with the leadership of internal partitions."""
        lifecycle = CoordinatorLifecycle(self.clock, cluster, self._role_changed)
        cluster.replicas.on_role(lifecycle.role_changed)
        self.transactions.open_in_cluster()
        self.queues.open()
        # Remove folders of topics that were deleted while the node was down; by now the metadata is
        # current.
        cluster.when_trusted(partial(self.topics.remove_strays, cluster.quorum.node_id))
        cluster.start()
        self.schemas.open()
        self.upkeep.start()
        self.compactor.start()

    def _role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        if not leads:
            self._pending.resign(partition)
        if topic.name == OFFSETS_TOPIC:
            (self.groups.lead if leads else self.groups.resign)(partition)
            if not leads:
                self.stream_polling.resign(partition)
        if topic.name == TRANSACTION_TOPIC:
            (self.transactions.lead if leads else self.transactions.resign)(partition)
        if topic.name == DELIVERY_TOPIC:
            (self.queues.lead if leads else self.queues.resign)(partition)
            self._queue_sender.forget(partition.name.partition)
            (self.redrives.lead if leads else self.redrives.resign)(partition)
            self.named_queue_moves.resume()
        if topic.name == SCHEDULED_TOPIC:
            (self.schedules.lead if leads else self.schedules.resign)(partition)
        if topic.name == SCHEMAS_TOPIC:
            (self.schemas.lead if leads else self.schemas.resign)()

    def close(self, done: Callable[[], None]) -> None:
        """Make everything durable, such that the next start is quick."""
        self.upkeep.stop()
        if self.cluster is not None:
            self.cluster.stop()
        self.queues.stop()
        self.redrives.stop()
        self.named_queue_moves.stop()

        def flushed() -> None:
            _log.debug(
                "%d rounds have synced %d files", self.flusher.rounds, self.flusher.files_synced
            )
            self.queues.close()
            self.topics.close()
            done()

        def unscheduled() -> None:
            self.compactor.stop(lambda: self.flusher.flush_now(flushed))

        self.schedules.stop(unscheduled, self.flusher.flush_now)

    def new_id(self) -> bytes:
        """Return sixteen random bytes, as used for ids of topics and members."""
        return UUID(int=self.random.getrandbits(128), version=4).bytes

    def produce(
        self,
        topic: Topic,
        partition: Partition,
        batch: memoryview,
        *,
        transactional_id: str | None = None,
        joins_transaction: bool = False,
        session: Session | None = None,
    ) -> Appended | Split | Joining:
        """Append a client's batch; `partition.when_committed` notifies when it is committed.

        A batch with delayed records is split, and its result has its own `when_committed`. So has
        that of a transactional batch whose partition has yet to join, if `joins_transaction` allows
        it.
        """
        if topic.is_internal:
            raise InternalTopic(topic.name)
        if topic.settings.has_schemas:
            self.validation.check_batch(topic, batch, now_ms=self.clock.wall_ms())
        if not is_transactional(batch):
            return self._store(topic, partition, batch, session)
        if transactional_id is None:
            raise InvalidRequest("A transactional batch needs its producer's transactional id.")
        header = read_header(batch)
        entrant = Entrant(
            transactional_id,
            ProducerIdentity(header.producer_id, header.producer_epoch),
            partition,
            self._scheduled_by(topic, partition, batch),
            joins_transaction,
            partial(self._store, topic, partition, batch, session),
        )

        def refused(error: GoQueueError | None) -> None:
            if error is not None:
                self._pending.note_refused(partition, header, error)

        try:
            admitted = self._entry.admit(entrant)
        except GoQueueError as error:
            refused(error)
            raise
        if isinstance(admitted, Joining):
            admitted.when_committed(refused)
        return admitted

    def refused(self, partition: Partition, batch: Buffer, error: GoQueueError) -> GoQueueError:
        """Record and return the error of a refused batch, which its producer will resend."""
        if len(batch) >= HEADER_BYTES:
            self._pending.note_refused(partition, read_header(batch), error)
        return error

    def takes_runs(self, topic: Topic) -> bool:
        """Return whether batches for a topic may go to its partitions without `produce`."""
        return not (topic.is_internal or self.upkeep.is_full)

    def _scheduled_by(
        self, topic: Topic, partition: Partition, batch: memoryview
    ) -> list[TopicPartition]:
        """Return where the delayed records of a transactional batch are stored, if any."""
        if not (topic.settings.has_attributes and may_have_attributes(batch)):
            return []
        now_ms = self.clock.wall_ms()
        name = scheduled_participant(self.schedules, topic, partition, batch, now_ms=now_ms)
        return [] if name is None else [name]

    def _store(
        self, topic: Topic, partition: Partition, batch: memoryview, session: Session | None
    ) -> Appended | Split:
        try:
            return self._store_now(topic, partition, batch, session)
        except GoQueueError as error:
            self.refused(partition, batch, error)
            raise

    def _store_now(
        self, topic: Topic, partition: Partition, batch: memoryview, session: Session | None
    ) -> Appended | Split:
        if self.upkeep.is_full:
            raise StorageFull("The disk is full; retry when there is room again.")
        now_ms = self.clock.wall_ms()
        payload = produced_payload(batch) if topic.settings.has_attributes else None
        if payload is not None and payload_has_attributes(payload):
            return self._pending.append(topic, partition, batch, now_ms=now_ms)
        if self._pending.is_idle:
            return partition.append(batch, now_ms=now_ms, payload=payload, session=session)
        return self._pending.append_plain(partition, batch, now_ms=now_ms)

    def publish(
        self,
        topic: str,
        outgoing: Sequence[Record | Outgoing],
        *,
        partition: int | None = None,
        waits: bool = True,
        now_ms: int | None = None,
    ) -> Promise[list[PublishResult]]:
        """Store records, or schedule delayed ones; the promise has a result for each.

        Without `waits` it resolves when the records are written, maybe not yet synced. `now_ms` is
        their time of arrival, if it is already set.
        """
        return self._publisher.publish(
            topic, outgoing, partition=partition, waits=waits, now_ms=now_ms
        )

    def fetch(
        self,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        done: FetchDone,
    ) -> Fetch:
        """Read committed batches, now or when enough have arrived; `done` gets the results."""
        fetch = Fetch(self.clock, wanted, bytes_min=bytes_min, bytes_max=bytes_max, done=done)
        fetch.start(wait_ms)
        return fetch

    def read(
        self,
        places: Sequence[Place],
        *,
        records_max: int,
        bytes_max: int,
        wait_ms: int = 0,
        is_committed_only: bool = True,
    ) -> Reading:
        """Read records one by one, waiting for the first if there is none.

        Unless `is_committed_only`, this includes those of open and aborted transactions.
        """
        if self.remote is not None:
            gathered = GatheredReading(
                self.remote,
                places,
                records_max=records_max,
                bytes_max=bytes_max,
                is_committed_only=is_committed_only,
            )
            gathered.begin(wait_ms)
            return gathered
        reading = Reading(
            places,
            records_max=records_max,
            bytes_max=bytes_max,
            is_committed_only=is_committed_only,
        )
        reading.start(self.fetch, wait_ms)
        return reading

    async def look(
        self,
        topic: Topic,
        numbers: Sequence[int],
        *,
        times_ms: Sequence[int] = (),
        may_guess: bool = False,
        with_records_end: bool = False,
    ) -> Sequence[Bounds]:
        """Return the start and end offsets of partitions from their leaders.

        For partitions of other nodes, the result has only the offsets at `times_ms`, and the end of
        the records only `with_records_end`. With `may_guess`, this node's replica answers if no
        leader does.
        """
        if self.remote is None:
            return [topic.partition(number) for number in numbers]
        return await self.remote.look(
            topic,
            numbers,
            times_ms=times_ms,
            may_guess=may_guess,
            with_records_end=with_records_end,
        )

    async def auto_create(self, name: str, *, may_create: bool) -> Topic:
        """Create a missing topic on demand, if that is allowed."""
        check_topic_name(name)
        if not may_create or not self.settings.topics.auto_create or name in INTERNAL_TOPICS:
            raise UnknownTopic(name)
        try:
            return await self.topics.create(name, partition_count=self.settings.topics.partitions)
        except TopicExists:
            # Another client has created it meanwhile, maybe on another node.
            return await self._when_known(name)

    async def _when_known(self, name: str) -> Topic:
        """Return a topic of the cluster as soon as this node has it too."""
        for _ in range(_KNOWN_CHECKS_MAX):
            found = self.topics.find(name)
            if found is not None:
                return found
            pause: Promise[None] = Promise()
            self.clock.call_later(_KNOWN_CHECK_MS, partial(pause.resolve, None))
            await pause
        raise UnknownTopic(name)

    async def topic_in_use(self, name: str) -> Topic:
        """Return a topic to be used; create it if it is missing and settings allow that."""
        found = self.topics.find(name)
        return await self.auto_create(name, may_create=True) if found is None else found

    def delete_records(
        self,
        topic: str,
        number: int,
        *,
        before_offset: int,
        timeout_ms: int = DELETION_TIMEOUT_MS,
    ) -> Promise[int]:
        """Delete the records before an offset, or with -1 all committed ones.

        Resolves when no in-sync replica has them any more, with the lowest start offset of these.
        """
        found = self.topics.get(topic)
        if found.is_internal:
            raise InternalTopic(topic)
        policy = found.settings.log
        if policy.is_compacting and not policy.is_deleting:
            raise RecordsKept(topic)
        start = found.partition(number).delete_before(before_offset)
        if self.cluster is not None:
            wanted = start if before_offset < 0 else min(start, before_offset)
            return self.cluster.replicas.when_deleted(
                (found.id, number), wanted, timeout_ms=timeout_ms
            )
        deleted: Promise[int] = Promise()
        deleted.resolve(start)
        return deleted

    def compact(self, topic: str) -> int:
        """Request compaction of a topic; return the number of its partitions."""
        found = self.topics.get(topic)
        if found.is_internal:
            raise InternalTopic(topic)
        if not found.settings.log.is_compacting:
            raise NotCompacted(topic)
        self.compactor.request(found.partitions)
        return len(found.partitions)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()

    def new_producer_id(self) -> Promise[int]:
        return self.topics.facts.reserve_producer_id()

    def _identify(self) -> str:
        """Return the cluster id of this data folder; a new folder gets one."""
        known = read_framed(
            self._disk, _NODE_FILE, magic=_NODE_MAGIC, version=_NODE_VERSION, body=_Node
        )
        if known is not None:
            return known.cluster_id
        cluster_id = self.settings.node.cluster_id or _short(self.new_id())
        node = _Node(self.node_id, cluster_id)
        write_framed(self._disk, _NODE_FILE, magic=_NODE_MAGIC, version=_NODE_VERSION, body=node)
        return cluster_id


def _short(unique: bytes) -> str:
    """Encode sixteen bytes as 22 characters that are safe in a name."""
    return base64.urlsafe_b64encode(unique).decode().rstrip("=")
