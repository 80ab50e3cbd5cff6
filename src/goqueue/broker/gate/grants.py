"""The hot paths: partitions that an identity may write to and read from, checked once.

A producer sends thousands of batches to a partition and a consumer fetches as often. So the gate
checks access at the first of them, and returns a `Writer` or a `Reader`, whose use needs no more
checks. All of them are dropped when topics or the policy change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.broker.gate.views import FetchDone, FetchedData, Waiting
from goqueue.broker.publishing.split_batches import Split
from goqueue.broker.quotas.meters import Meter
from goqueue.broker.reading.fetching import Fetched, Wanted
from goqueue.broker.transactions.joining import Joining
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import HEADER_BYTES, read_header
from goqueue.model.compression import Buffer
from goqueue.model.errors import GoQueueError, UnknownTopicId
from goqueue.model.observer import Observer
from goqueue.model.runs import Piece
from goqueue.model.session import Session
from goqueue.model.tenants import NameKind
from goqueue.partition import Appended, Partition
from goqueue.partition.rules import RunLimits
from goqueue.tenancy.namespaces import Namespace

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.authoriser import Authoriser
    from goqueue.broker.topics.topics import Topic

__all__ = ["Grants", "Meter", "Reader", "RunLimits", "Stored", "Wanted", "Writer"]

TopicRef = str | bytes  # a name or an id

PARTITIONS = "partitions"  # stands for the hot paths where operations are named
Done = Callable[[GoQueueError | None], None]


class Stored(Protocol):
    """The offsets of a batch; -1 while it waits for its turn, or if it got no offsets."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...


class Grants:
    """The writers and readers of one identity."""

    __slots__ = (
        "__weakref__",
        "_authoriser",
        "_broker",
        "_observer",
        "_readers",
        "_session",
        "_writers",
        "meter",
        "routes",
        "topic_names",
    )

    def __init__(
        self,
        broker: Broker,
        authoriser: Authoriser,
        session: Session,
        observer: Observer | None = None,
    ) -> None:
        self._broker = broker
        self._authoriser = authoriser
        self._observer = observer  # of traffic
        self._session = session
        # The quotas of the identity, charged per batch; None if it has none.
        self.meter: Meter | None = None
        self._writers: dict[tuple[TopicRef, int], Writer] = {}
        self._readers: dict[tuple[TopicRef, int], Reader] = {}
        # Data that a front end caches per writer, under its own keys.
        self.routes: dict[bytes, Any] = {}
        # Names by id of topics that the identity may describe, cached by a front end.
        self.topic_names: dict[bytes, str] = {}

    def writer(self, topic: TopicRef, number: int) -> Writer:
        """Return a partition to write to; raise if it does not exist or access is denied."""
        place = (topic, number)
        known = self._writers.get(place)
        if known is None:
            known = self._writers[place] = self._new_writer(topic, number)
        return known

    def reader(self, topic: TopicRef, number: int) -> Reader:
        """Return a partition to read from; raise if it does not exist or access is denied."""
        place = (topic, number)
        known = self._readers.get(place)
        if known is None:
            known = self._readers[place] = self._new_reader(topic, number)
        return known

    def _new_writer(self, topic: TopicRef, number: int) -> Writer:
        space = self._authoriser.namespaces.of(self._session)
        if space is None:
            found = self._find(Action.WRITE, topic, number)
            return Writer(*found, self._session, self.meter)
        found = self._find_in(space, Action.WRITE, topic, number)
        return TenantWriter(*found, self._session, self.meter, space)

    def _new_reader(self, topic: TopicRef, number: int) -> Reader:
        space = self._authoriser.namespaces.of(self._session)
        if space is None:
            return Reader(*self._find(Action.READ, topic, number))
        return Reader(*self._find_in(space, Action.READ, topic, number))

    def _find_in(
        self, space: Namespace, action: Action, topic: TopicRef, number: int
    ) -> tuple[Broker, Topic, int]:
        """Find a partition that is named as a tenant's clients name it."""
        try:
            if isinstance(topic, str):
                topic = space.inward(NameKind.TOPIC, topic)
            elif not space.holds_name(self._broker.topics.get_by_id(topic).name):
                raise UnknownTopicId(topic.hex())
            return self._find(action, topic, number)
        except GoQueueError as error:
            raise space.error(error) from None

    def fetch(
        self,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        done: FetchDone,
    ) -> Waiting:
        """Read from places that readers returned, now or when there is enough data."""
        meter, observer = self.meter, self._broker.topics.observer
        if observer is not None:
            done = _observed(observer, self._session, wanted, done)
        if self._authoriser.policy is not None:
            done = self._checked_again(done)
        if meter is not None:
            bytes_max = meter.fetch_bytes_max(bytes_max)
            bytes_min, done = min(bytes_min, bytes_max), _charged(meter, done)
        return self._broker.reads.fetch(
            wanted, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms=wait_ms, done=done
        )

    def _checked_again(self, done: FetchDone) -> FetchDone:
        """Withhold what a fetch returns if access to it has ended while the fetch waited."""
        authoriser, epoch = self._authoriser, self._authoriser.epoch

        def check(results: Sequence[FetchedData]) -> None:
            done(results if authoriser.epoch == epoch else [self._readable(one) for one in results])

        return check

    def _readable(self, found: FetchedData) -> FetchedData:
        if found.partition is None:
            return found
        try:
            self._check(Action.READ, found.partition.name.topic)
        except GoQueueError as error:
            return Fetched(None, None, error)
        return found

    def racks(self, rack: str) -> Mapping[int, str]:
        """Return the nodes of a rack that its consumers may be sent to; none if this is one."""
        return self._broker.nearest.racks(rack)

    def use_meter(self, meter: Meter | None) -> None:
        """Charge these quotas from now on."""
        if meter is not self.meter:
            self.meter = meter
            self.clear()

    def clear(self) -> None:
        """Drop all writers and readers, because topics or the policy have changed."""
        self._writers.clear()
        self._readers.clear()
        self.routes.clear()
        self.topic_names.clear()

    def _find(self, action: Action, topic: TopicRef, number: int) -> tuple[Broker, Topic, int]:
        broker = self._broker
        if isinstance(topic, str):
            self._check(action, topic)
            found = broker.topics.get(topic)
        else:
            found = self._find_by_id(topic)
            self._check(action, found.name)
        found.partition(number)
        if self._observer is not None:
            self._observer.opened(self._session, action, Resource(ResourceKind.TOPIC, found.name))
        return broker, found, number

    def _find_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic of an id; one that the session may not describe appears unknown."""
        found = self._broker.topics.get_by_id(topic_id)
        resource = Resource(ResourceKind.TOPIC, found.name)
        if not self._authoriser.allows(self._session, Action.DESCRIBE, resource):
            raise UnknownTopicId(topic_id.hex())
        return found

    def check_transactional_id(self, name: str) -> None:
        """Raise unless the session may write in transactions of a transactional id."""
        if self._authoriser.policy is None:
            return
        space = self._authoriser.namespaces.of(self._session)
        if space is None:
            self._check_id(name)
            return
        try:
            self._check_id(space.inward(NameKind.TRANSACTIONAL_ID, name))
        except GoQueueError as error:
            raise space.error(error) from None

    def _check_id(self, name: str) -> None:
        resource = Resource(ResourceKind.TRANSACTIONAL_ID, name)
        self._authoriser.check(self._session, Action.WRITE, resource, operation=PARTITIONS)

    def _check(self, action: Action, topic: str) -> None:
        resource = Resource(ResourceKind.TOPIC, topic)
        self._authoriser.check(self._session, action, resource, operation=PARTITIONS)


def _charged(meter: Meter, done: FetchDone) -> FetchDone:
    """Charge what a fetch returns just before it is answered."""

    def charge(results: Sequence[FetchedData]) -> None:
        size = count = 0
        for one in results:
            if one.batches is not None:
                size += one.batches.length
                if meter.counts_consumed:
                    count += one.batches.end_offset - one.batches.offset
        meter.consumed(size, count)
        done(results)

    return charge


def _observed(
    observer: Observer, session: Session, wanted: Sequence[Wanted], done: FetchDone
) -> FetchDone:
    """Report what a fetch returns: the records from the requested offsets on."""

    def report(results: Sequence[FetchedData]) -> None:
        for one, result in zip(wanted, results, strict=True):
            batches, partition = result.batches, result.partition
            if batches is not None and partition is not None:
                count = batches.end_offset - max(one.offset, batches.offset)
                observer.fetched(partition.name.topic, count, size=batches.length, session=session)
        done(results)

    return report


class _Place:
    """A partition of this node, looked up at each use because it may be reopened."""

    __slots__ = ("_broker", "_number", "_topic")

    def __init__(self, broker: Broker, topic: Topic, number: int) -> None:
        self._broker = broker
        self._topic = topic
        self._number = number

    @property
    def partition(self) -> Partition:
        return self._topic.partitions[self._number]


class Writer(_Place):
    """A partition to which batches are written as their producers encoded them."""

    __slots__ = ("_clock", "_meter", "_session", "_upkeep")

    def __init__(
        self,
        broker: Broker,
        topic: Topic,
        number: int,
        session: Session,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(broker, topic, number)
        self._meter = meter
        self._session = session
        self._clock = broker.clock
        self._upkeep = broker.upkeep

    @property
    def shortage(self) -> GoQueueError | None:
        """Why a batch that needs all in-sync replicas cannot be stored now."""
        return self._topic.partitions[self._number].shortage

    @property
    def log_start_offset(self) -> int:
        return self._topic.partitions[self._number].log.start_offset

    def produce(
        self,
        batch: memoryview,
        *,
        transactional_id: str | None = None,
        joins_transaction: bool = False,
    ) -> Appended | Split | Joining:
        """Store a batch, now or when it is its turn; use `when_stored` to wait until durable.

        With `joins_transaction`, the partition may join the transaction of the batch.
        """
        if self._meter is not None:
            self._charge(self._meter, batch)
        return self._broker.producing.produce(
            self._topic,
            self._topic.partitions[self._number],
            batch,
            transactional_id=transactional_id,
            joins_transaction=joins_transaction,
            session=self._session,
        )

    def _charge(self, meter: Meter, batch: memoryview) -> None:
        """Charge a batch, also one that is refused: it has cost as much."""
        meter.check_storage()
        is_counted = meter.counts_produced and len(batch) >= HEADER_BYTES
        meter.produced(len(batch), read_header(batch).record_count if is_counted else 0)

    def refuse(self, batch: Buffer, error: GoQueueError) -> GoQueueError:
        """Return the error for a batch that cannot be stored now, and that will be retried."""
        return self._broker.producing.refused(self.partition, batch, error)

    def when_stored(
        self, stored: Appended | Split | Joining, done: Done, *, is_replicated: bool
    ) -> None:
        """Call `done` when a batch is durable here, or on all in-sync replicas."""
        partition = self._topic.partitions[self._number]
        if not isinstance(stored, Appended):
            stored.when_committed(done)
        elif is_replicated:
            partition.when_committed(stored.last_offset, done)
        else:
            partition.when_durable(stored.last_offset, done)

    def is_committed(self, stored: Appended | Split | Joining) -> bool:
        """Whether a batch is already committed, so that no callback is needed."""
        if not isinstance(stored, Appended):
            return False
        return stored.last_offset < self._topic.partitions[self._number].high_watermark

    # Runs of small batches

    def run_limits(self) -> RunLimits | None:
        """Return the limits for batches stored without further checks; None: check all."""
        topic = self._topic
        if topic.is_internal or self._upkeep.is_full:
            return None
        return topic.partitions[self._number].run_limits(now_ms=self._clock.wall_ms())

    def append_run(
        self, data: memoryview, pieces: list[Piece], senders: Sequence[Session]
    ) -> tuple[bytes, int]:
        """Store plain batches of any producers; return packed base offsets and the last offset.

        `senders` are the sessions of the pieces.
        """
        partition = self._topic.partitions[self._number]
        now_ms = self._clock.wall_ms()
        offsets = partition.append_run(data, pieces, now_ms=now_ms, senders=senders)
        return offsets, partition.log.end_offset - 1

    def when_run_stored(self, last_offset: int, done: Done, *, is_replicated: bool) -> None:
        """Call `done` when all up to an offset is durable here, or on all in-sync replicas."""
        partition = self._topic.partitions[self._number]
        if is_replicated:
            partition.when_committed(last_offset, done)
        else:
            partition.when_durable(last_offset, done)


class TenantWriter(Writer):
    """A writer for clients that see other names: of transactional ids, and in errors."""

    __slots__ = ("_space",)

    def __init__(
        self,
        broker: Broker,
        topic: Topic,
        number: int,
        session: Session,
        meter: Meter | None,
        space: Namespace,
    ) -> None:
        super().__init__(broker, topic, number, session, meter)
        self._space = space

    @property
    def shortage(self) -> GoQueueError | None:
        error = super().shortage
        return None if error is None else self._space.error(error)

    def produce(
        self,
        batch: memoryview,
        *,
        transactional_id: str | None = None,
        joins_transaction: bool = False,
    ) -> Appended | Split | Joining:
        space = self._space
        if transactional_id is not None:
            transactional_id = space.inward(NameKind.TRANSACTIONAL_ID, transactional_id)
        try:
            return super().produce(
                batch, transactional_id=transactional_id, joins_transaction=joins_transaction
            )
        except GoQueueError as error:
            raise space.error(error) from None

    def refuse(self, batch: Buffer, error: GoQueueError) -> GoQueueError:
        return self._space.error(super().refuse(batch, error))

    def when_stored(
        self, stored: Appended | Split | Joining, done: Done, *, is_replicated: bool
    ) -> None:
        super().when_stored(stored, self._shown(done), is_replicated=is_replicated)

    def append_run(
        self, data: memoryview, pieces: list[Piece], senders: Sequence[Session]
    ) -> tuple[bytes, int]:
        try:
            return super().append_run(data, pieces, senders)
        except GoQueueError as error:
            raise self._space.error(error) from None

    def when_run_stored(self, last_offset: int, done: Done, *, is_replicated: bool) -> None:
        super().when_run_stored(last_offset, self._shown(done), is_replicated=is_replicated)

    def _shown(self, done: Done) -> Done:
        return lambda error: done(None if error is None else self._space.error(error))


class Reader(_Place):
    """A partition from which batches are read as they are stored."""

    __slots__ = ()

    def want(
        self,
        offset: int,
        bytes_max: int,
        leader_epoch: int,
        *,
        is_committed_only: bool,
        may_follow: bool,
    ) -> Wanted:
        """Return what to fetch, and whether this node may serve it as a follower."""
        partition = self.partition
        from_follower = (
            may_follow
            and partition.is_following
            and self._broker.nearest.may_serve(self._topic, self._number)
        )
        return Wanted(partition, offset, bytes_max, leader_epoch, is_committed_only, from_follower)

    def nearer(self, racks: Mapping[int, str]) -> int | None:
        """Return the follower in the consumer's rack that it should read from instead."""
        return self._broker.nearest.find(self._topic, self._number, racks)
