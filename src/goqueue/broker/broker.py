"""The broker: joins the parts of a node, which front ends use through its gate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from goqueue.broker.administration import Administration
from goqueue.broker.confirming import Confirming
from goqueue.broker.controller.identity import cluster_id_of
from goqueue.broker.controller.metadata import LocalLog
from goqueue.broker.controller.node import Environment, new_id
from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.dynamic_settings import DynamicSettings
from goqueue.broker.gate import Gate
from goqueue.broker.gate.authentication import Authentication
from goqueue.broker.gate.authoriser import Authoriser
from goqueue.broker.gate.namespaces import Namespaces
from goqueue.broker.gate.tenant_purges import TenantPurges
from goqueue.broker.identities.access import Access
from goqueue.broker.identities.identities import Identities
from goqueue.broker.identities.tenants import Tenants
from goqueue.broker.limiting import limit_use
from goqueue.broker.measuring import Measuring
from goqueue.broker.named_queues.claims import ClusterClaims, NoClaims, Publish
from goqueue.broker.named_queues.counting import QueueCounting
from goqueue.broker.named_queues.deduplication_ids import RecentIds
from goqueue.broker.named_queues.moves import NamedQueueMoves
from goqueue.broker.named_queues.named_queues import NamedQueues
from goqueue.broker.named_queues.purging import QueuePurging
from goqueue.broker.named_queues.receiving import QueueReceiving
from goqueue.broker.named_queues.sending import QueueSender
from goqueue.broker.observing import (
    create_auditor,
    create_counters,
    create_journeys,
    create_registry,
)
from goqueue.broker.producing import Producing
from goqueue.broker.publishing.outbox import Outbox, OwnersOutbox
from goqueue.broker.publishing.publisher import Outgoing, Publisher, PublishResult
from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.queues import Queues
from goqueue.broker.queues.transactions import TransactionalAcks
from goqueue.broker.quotas.quotas import Quotas
from goqueue.broker.reading.reads import Reads
from goqueue.broker.redrives.dead_letters import DeadLetters
from goqueue.broker.redrives.jobs import Redrives
from goqueue.broker.replication.clustering import Addresses, Clustering, facts_of_single_node
from goqueue.broker.replication.leaders import (
    ClusterLeaders,
    Leaders,
    NearestInCluster,
    NearestReplicas,
)
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.schemas.registry import Schemas
from goqueue.broker.schemas.validation import Validation
from goqueue.broker.shards.leadership import Leadership
from goqueue.broker.share_groups.leasing import ShareLeases
from goqueue.broker.share_groups.members import ShareMembers
from goqueue.broker.share_groups.offsets import ShareOffsets
from goqueue.broker.share_groups.serving import ShareServing
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.streams.polling import StreamPolling
from goqueue.broker.streams.progress import StreamProgress
from goqueue.broker.topics.auto_creation import AutoCreation
from goqueue.broker.topics.compactor import Compactor
from goqueue.broker.topics.housekeeping import Upkeep, release_reserve
from goqueue.broker.topics.internal_topics import InternalTopics, audit_settings
from goqueue.broker.topics.partition_files import PartitionFiles
from goqueue.broker.topics.placement import Placement
from goqueue.broker.topics.settings import TopicDefaults
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.broker.transactions.entry import TransactionEntry
from goqueue.broker.transactions.epochs import Epochs
from goqueue.broker.transactions.ids import TransactionIds
from goqueue.broker.transactions.publishing import TransactionPublisher
from goqueue.broker.transactions.remote_writes import TransactionLines
from goqueue.broker.transactions.sessions import Transacting
from goqueue.broker.transactions.transactions import Transactions
from goqueue.cluster.metadata import Metadata
from goqueue.config import Settings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import Record
from goqueue.model.names import (
    AUDIT_TOPIC,
    DELIVERY_TOPIC,
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTION_TOPIC,
)
from goqueue.model.observer import MESSAGE_EVENTS, Observer, interested, together
from goqueue.model.session import Session, unpack_session
from goqueue.partition import Partition
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.disk import Disk
from goqueue.tenancy.acls import AccessControl

if TYPE_CHECKING:
    from goqueue.broker.audit.auditor import Auditor

_log = logging.getLogger(__name__)


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
        self.metrics = create_registry(settings.metrics)
        self._disk = disk
        release_reserve(disk, settings.storage)
        self._own_cluster_id = cluster_id_of(disk, settings.node, new_id=self.new_id)
        self._keep_topics(addresses)
        self.audit = create_auditor(self)
        self.observer = observer = together([observer, *create_counters(self), self.audit])
        self._find_leaders()
        self.leaders.is_full = self._is_full
        self.topics.internal = InternalTopics(clock, self.topics, self.leaders, settings)
        self.journeys = create_journeys(self, disk)
        recorder = None if self.journeys is None else self.journeys.recorder
        self.topics.observer = interested(together([observer, recorder]), MESSAGE_EVENTS)
        self.tenants = Tenants(clock, self.topics.facts.log)
        self.identities = Identities(clock, self.topics.facts.log, random, settings.security)
        self.quotas = Quotas(clock, self.topics.facts.log, observer=observer)
        self.reads = Reads(clock, self.topics, self.leaders, peers)
        self.auto_creation = AutoCreation(clock, self.topics, settings.topics)
        self._coordinate_groups()
        self.upkeep = Upkeep(
            disk, clock, self.topics, self.flusher, settings.storage, settings.producers
        )
        self._schedule_and_validate()
        self._redrive_dead_letters()
        self._take_messages()
        self.compactor = Compactor(disk, clock, self.topics, self.flusher, settings.compaction)
        self.administration = Administration(
            self.node_id, self.topics, self.cluster, self.compactor, addresses, clock.wall_ms
        )
        limit_use(self)
        self.measuring = Measuring(self, disk)
        self._control_access()

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
            self.cluster.attach(self.topics, self.flusher)

    def _find_leaders(self) -> None:
        cluster = self.cluster
        if cluster is None:
            self.leaders = Leaders(self.node_id, self.topics, self.clock)
            self.nearest = NearestReplicas()
        else:
            self.leaders = ClusterLeaders(cluster, self.topics, self.clock)
            self.nearest = NearestInCluster(cluster, self.settings.cluster.rack)

    def _coordinate_groups(self) -> None:
        """Create stream groups, transactions and queue groups."""
        settings, clock = self.settings, self.clock
        self.dynamic_settings = DynamicSettings(self.topics.facts.log, settings.groups)
        self.groups = Groups(
            clock,
            self.topics,
            self.leaders,
            settings.groups,
            self.dynamic_settings.group_times,
        )
        if self.cluster is not None:
            quorum = self.cluster.quorum
            confirming = Confirming(
                clock, lambda: quorum.catch_up(timeout_ms=settings.cluster.session_ms // 2)
            )
            self.groups.catch_up = confirming.confirm
        self.stream_progress = StreamProgress(self.groups, self.topics, self.reads.look)
        self.stream_polling = StreamPolling(
            clock,
            self.groups,
            self.topics,
            self.reads.look,
            self.reads.read,
            heartbeat_ms=settings.groups.consumer_heartbeat_ms,
        )
        self.transactions = Transactions(
            clock, self.topics, self.groups, settings.transactions, self.leaders
        )
        self.epochs = Epochs(self.transactions)
        hosts = QueueHosts(
            clock, self._disk, self.topics, settings.delivery, self.random, self.leaders
        )
        queue_groups = QueueGroups(
            self.topics, hosts, new_id=self.new_id, is_stream_group=self.groups.is_known
        )
        self.queues = Queues(self.topics, hosts, queue_groups, self.reads.look)
        self.share_leases = ShareLeases(self.topics, hosts, queue_groups, self.queues.positions)
        self.share_offsets = ShareOffsets(self.topics, hosts, queue_groups)
        self.share_serving = ShareServing(self.topics, is_curable=self.leaders.is_curable)
        self.share_members = ShareMembers(
            clock, self.topics, self.groups, queue_groups, node_id=self.node_id
        )
        self._transactional_acks = TransactionalAcks(hosts, queue_groups)
        self.groups.is_queue_group = queue_groups.is_known
        self.transactions.on_end[DELIVERY_TOPIC] = self._transactional_acks.ended

    def _schedule_and_validate(self) -> None:
        """Create schedules for delayed messages, and schema validation."""
        clock = self.clock
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
        self.transactions.on_end[SCHEDULED_TOPIC] = self.schedules.transaction_ended
        self.schemas = Schemas(clock, self.topics, self.leaders, is_full=self._is_full)
        self.validation = Validation(self.schemas, self.topics.defaults.values)
        self.topics.check_record = self.validation.check_record
        self.producing = Producing(
            clock,
            self.schedules,
            self.validation,
            TransactionEntry(self.topics, self.transactions, is_alone=self.cluster is None),
            self.upkeep,
            waiting_bytes_max=self.settings.schedules.waiting_bytes_max,
        )

    def _redrive_dead_letters(self) -> None:
        self.dead_letters = DeadLetters(
            self.topics, self.queues.journal, look=self.reads.look, read=self.reads.read
        )
        self.redrives = Redrives(
            self.clock,
            self.topics,
            self.dead_letters,
            new_id=self.new_id,
            is_full=self._is_full,
            leaders=self.leaders,
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
            self._transactional_acks,
            TransactionPublisher(
                clock,
                self.topics,
                self.schedules,
                self.transactions,
                TransactionLines(self.topics, self.leaders),
                is_full=self._is_full,
            ),
            ids=TransactionIds(lambda: self.cluster_id),
            new_id=self.new_id,
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
            RecentIds(clock, look=self.reads.look, read=self.reads.read),
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
        )
        self.queue_receiving = QueueReceiving(clock, self.queues)
        self.queue_purging = QueuePurging(clock, self.named_queues, self.queues, self.schedules)
        self.queue_counting = QueueCounting(
            self.topics, self.queues, self.schedules, self.reads.look
        )
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

    def _control_access(self) -> None:
        """Create the gates, and what decides who may do what."""
        namespaces = self._namespaces = Namespaces(
            self.topics.facts.log, self.identities.super_users
        )
        authoriser = Authoriser(self.observer, namespaces)
        self.access = Access(
            self.topics.facts.log,
            AccessControl(
                self.identities.super_users,
                allows_without_rules=self.settings.security.allow_if_no_acl,
            ),
            on_change=authoriser.changed,
        )
        if self.settings.controls_access:
            authoriser.replace(self.access)

        authentication = Authentication(self)

        def may_write(started_by: bytes, topic: str) -> bool:
            if not started_by:
                return True  # A job of an earlier version.
            session, resource = unpack_session(started_by), Resource(ResourceKind.TOPIC, topic)
            is_active = namespaces.permits(session, Action.WRITE) and authentication.may_act(
                session
            )
            return is_active and authoriser.allows(session, Action.WRITE, resource)

        self.redrives.may_write = self.named_queue_moves.may_write = may_write
        self.gate = Gate(self, authoriser, authentication)
        self.local_gate = Gate(self, authoriser, authentication, routes_by=self.gate)
        self._tenant_purges = TenantPurges(self, self.gate)
        namespaces.on_change(self._tenant_purges.resume)

    def _clustering(
        self, peers: Peers, addresses: Addresses, single_node: Callable[[], Metadata | None]
    ) -> Clustering:
        return Clustering(
            self.settings,
            Environment(self._disk, self.clock, peers, self.random),
            addresses=addresses,
            offered_id=self._own_cluster_id,
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
        leadership = self._follow_leadership()
        self.queues.open()
        self.schemas.open()
        leadership.open()
        self.transactions.open()
        if self.cluster is not None:
            self._join(self.cluster)
        self.upkeep.start()
        self.compactor.start()
        if self.journeys is not None:
            self.journeys.start()
        self._namespaces.refresh()
        if self.observer is not None:
            self.observer.started(self.node_id)

    def _follow_leadership(self) -> Leadership:
        """Connect the owners of internal partitions with their leadership."""
        leadership = Leadership(self.clock, self.topics, self.cluster)
        if self.journeys is not None:
            self.journeys.follow(leadership, self.cluster)
        groups, transactions = self.groups.shards, self.transactions.shards
        leadership.register(OFFSETS_TOPIC, lead=groups.lead, resign=groups.resign)
        leadership.register(OFFSETS_TOPIC, resign=self.stream_polling.resign)
        queues, redrives, schedules = self.queues, self.redrives, self.schedules.shards
        leadership.register(DELIVERY_TOPIC, lead=queues.lead, resign=queues.resign)
        forget, resume = self._queue_sender.forget, self.named_queue_moves.resume
        leadership.register(DELIVERY_TOPIC, lead=forget, resign=forget)
        leadership.register(DELIVERY_TOPIC, lead=redrives.lead, resign=redrives.resign)
        leadership.register(DELIVERY_TOPIC, lead=resume, resign=resume)
        leadership.register(SCHEDULED_TOPIC, lead=schedules.lead, resign=schedules.resign)
        schedules.on_unreadable = leadership.hand_over
        leadership.register(SCHEMAS_TOPIC, lead=self.schemas.lead, resign=self.schemas.resign)
        self.schemas.on_unreadable(leadership.hand_over)
        # After the other participants of transactions, which it notifies of outcomes.
        leadership.register(TRANSACTION_TOPIC, lead=transactions.lead, resign=transactions.resign)
        if self.audit is not None:
            self._write_audit(self.audit, leadership)
        return leadership

    def _write_audit(self, auditor: Auditor, leadership: Leadership) -> None:
        """Write the audit log to its topic, whose settings are those of the node that leads it."""
        from goqueue.broker.audit.outlets import AuditTopic

        auditor.write_to(AuditTopic(self.topics, self.leaders, self.new_producer_id))
        wanted = audit_settings(self.settings.security)

        def lead(_: Partition) -> None:
            own = self.topics.get(AUDIT_TOPIC).own_settings
            if any(own.get(name) != value for name, value in wanted.items()):
                self.topics.configure(AUDIT_TOPIC, {**own, **wanted})

        leadership.register(AUDIT_TOPIC, lead=lead)

    def _join(self, cluster: Clustering) -> None:
        """Take part in the cluster, now that everything follows its decisions."""
        cluster.replicas.on_role(self.producing.role_changed)
        # Remove folders of topics that were deleted while the node was down; by then the metadata
        # is current.
        cluster.when_trusted(partial(self.topics.remove_strays, cluster.quorum.node_id))
        cluster.start()

    def close(self, done: Callable[[], None]) -> None:
        """Make everything durable, such that the next start is quick."""
        if self.observer is not None:
            self.observer.stopping(self.node_id)
        close = partial(self._close, done)
        if self.journeys is not None:
            close = partial(self.journeys.stop, close)
        if self.audit is None:
            close()
        else:
            self.audit.close(close)

    def _close(self, done: Callable[[], None]) -> None:
        self.upkeep.stop()
        if self.cluster is not None:
            self.cluster.stop()
        self.quotas.stop()
        self.queues.stop()
        self.redrives.stop()
        self.named_queue_moves.stop()
        self._tenant_purges.stop()

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
        return new_id(self.random)

    def publish(
        self,
        topic: str,
        outgoing: Sequence[Record | Outgoing],
        *,
        partition: int | None = None,
        waits: bool = True,
        now_ms: int | None = None,
        session: Session | None = None,
    ) -> Promise[list[PublishResult]]:
        """Store records, or schedule delayed ones; the promise has a result for each.

        Without `waits` it resolves when the records are written, maybe not yet synced. `now_ms` is
        their time of arrival, if it is already set.
        """
        return self._publisher.publish(
            topic, outgoing, partition=partition, waits=waits, now_ms=now_ms, session=session
        )

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()

    def new_producer_id(self) -> Promise[int]:
        return self.topics.facts.reserve_producer_id()
