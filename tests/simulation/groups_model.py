"""A small world for group coordinators: clients, a network that loses, a disk that is slow.

Clients are faithful where it matters: when they believe to own a partition, when they let go of
it, and what they do with each error. Everything that happens by chance comes from one seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from goqueue.config import GroupSettings
from goqueue.groups import (
    CommitOffsets,
    ConsumerHeartbeat,
    Coordinator,
    Effect,
    Heartbeat,
    Join,
    JoinResult,
    KeyedRecord,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Partition,
    Partitions,
    Persist,
    Reply,
    Sync,
    assign_sticky,
)
from goqueue.groups.assignment.partitions import NO_PARTITIONS
from goqueue.groups.classic.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GoQueueError,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMember,
)

GROUP = "g"
SESSION_MS = 6_000
HEARTBEAT_MS = 2_000
REBALANCE_MS = 8_000
SETTINGS = GroupSettings(consumer_session_ms=SESSION_MS, consumer_heartbeat_ms=HEARTBEAT_MS)

Handler = Callable[[Any], None]


class Request:
    """A call on its way; its answer, or the news that there is none, arrives once."""

    def __init__(self, client: Client, handle: Handler) -> None:
        self.client = client
        self.handle = handle
        self.is_over = False

    def resolve(self, result: Any) -> None:
        if not self.is_over:
            self.is_over = True
            self.client.when_awake(lambda: self.handle(result))


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.topics = {"a": 5, "b": 3}
        self.is_calm = False
        self.clients: list[Client] = []
        self.acked: dict[Partition, int] = {}
        self.log: list[KeyedRecord] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._life = 0  # grows when the coordinator crashes
        self._unwritten: list[Persist] = []
        self._written_at_ms = 0
        self._waiting: set[Request] = set()
        self._commits = 0
        self.coordinator: Coordinator | None = None
        self._load()

    # Time

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, action))

    def run(self, ms: int) -> None:
        """Let time pass, and check what must always hold after every single event."""
        until_ms = self.now_ms + ms
        self.after(ms, lambda: None)
        while self.now_ms < until_ms:
            due_ms = self.coordinator.next_deadline_ms() if self.coordinator else None
            if due_ms is not None and due_ms <= self._events[0][0]:
                self.now_ms = max(self.now_ms, due_ms)
                assert self.coordinator is not None
                self._perform(self.coordinator.tick(self.now_ms))
            else:
                self.now_ms, _, action = heapq.heappop(self._events)
                action()
            self.check()

    # The coordinator and its disk

    def crash(self) -> None:
        """Lose all that was not written; a part of the rest may have reached the disk."""
        self.coordinator = None
        self._life += 1
        survivors = self.random.randint(0, len(self._unwritten))
        for write in self._unwritten[:survivors]:
            self.log += write.records
        self._unwritten.clear()
        for request in sorted(self._waiting, key=lambda request: request.client.name):
            self._answer(request, RequestTimedOut("The connection broke."))
        self._waiting.clear()
        self.after(self.random.randint(1, 1_500), self._load)

    def _load(self) -> None:
        if self.coordinator is not None:
            return
        self.coordinator = Coordinator(SETTINGS)
        self._perform(self.coordinator.topics_changed(self.now_ms, self.topics))
        for key, value in self.log:
            self.coordinator.replay(key, value)
        self._perform(self.coordinator.loaded(self.now_ms))

    def grow(self, topic: str) -> None:
        self.topics = {**self.topics, topic: self.topics[topic] + 1}
        if self.coordinator is not None:
            self._perform(self.coordinator.topics_changed(self.now_ms, self.topics))
        for client in self.clients:
            client.notice_topics()

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Request)
                self._waiting.discard(effect.token)
                self._answer(effect.token, effect.result)
            else:
                self._unwritten.append(effect)
                latency_ms = self.random.randint(0, 20)
                self._written_at_ms = max(self._written_at_ms, self.now_ms + latency_ms)
                delay_ms = self._written_at_ms - self.now_ms
                self.after(delay_ms, partial(self._write, effect, self._life))

    def _write(self, write: Persist, life: int) -> None:
        if life != self._life:
            return
        assert self.coordinator is not None
        self._unwritten.remove(write)
        if self._is_unlucky(0.02):
            error = CoordinatorNotAvailable("The disk is full.")
            effects = self.coordinator.persist_failed(write.write_id, error, self.now_ms)
        else:
            self.log += write.records
            effects = self.coordinator.persisted(write.write_id, self.now_ms)
        self._perform(effects)

    # The network

    def send(self, client: Client, method: str, call: Any, handle: Handler) -> None:
        request = Request(client, handle)
        timeout_ms = REBALANCE_MS + 5_000 if method == "join" else 3_000
        self.after(timeout_ms, lambda: request.resolve(RequestTimedOut("No answer.")))
        if not self._is_unlucky(0.01):
            self.after(self._latency_ms(), lambda: self._receive(request, method, call))

    def send_commit(self, client: Client, partition: Partition, generation: int) -> None:
        """The offset is chosen on arrival, so that offsets grow in the order of the log."""
        member_id = client.member_id

        def receive() -> None:
            self._commits += 1
            offset = self._commits
            topic, number = partition
            one = OffsetToCommit(topic=topic, partition=number, offset=offset)
            call = CommitOffsets(
                group_id=GROUP, member_id=member_id, generation=generation, offsets=[one]
            )
            witness = Request(client, lambda result: None)
            witness.resolve = (  # type: ignore[method-assign]
                lambda result: self._note_commit(partition, offset, result)
            )
            self._receive(witness, "offsets.commit", call)

        self.after(self._latency_ms(), receive)

    def _note_commit(self, partition: Partition, offset: int, result: Any) -> None:
        if not isinstance(result, GoQueueError):
            self.acked[partition] = max(offset, self.acked.get(partition, 0))

    def _receive(self, request: Request, method: str, call: Any) -> None:
        if self.coordinator is None:
            self._answer(request, CoordinatorLoading("Nobody is there."))
            return
        self._waiting.add(request)
        try:
            handle = attrgetter(method)(self.coordinator)
            self._perform(handle(call, token=request, now_ms=self.now_ms))
        except GoQueueError as error:
            self._waiting.discard(request)
            self._answer(request, error)

    def _answer(self, request: Request, result: Any) -> None:
        if not self._is_unlucky(0.01):
            self.after(self._latency_ms(), lambda: request.resolve(result))

    def _latency_ms(self) -> int:
        return self.random.randint(1, 15)

    def _is_unlucky(self, chance: float) -> bool:
        return not self.is_calm and self.random.random() < chance

    # What must always hold

    def known_members(self) -> dict[str, Partitions] | None:
        """Member id to what the server assigned; `None` while nobody can say."""
        if self.coordinator is None:
            return None
        try:
            members = self.coordinator.describe_group(GROUP).members
        except CoordinatorLoading:
            return None
        except GoQueueError:
            return {}
        return {each.member_id: each.assigned for each in members}

    def check(self) -> None:
        known = self.known_members()
        if known is None:
            return
        owners: dict[Partition, Client] = {}
        for client in self.clients:
            if client.member_id in known:
                for partition in client.owned:
                    assert partition not in owners, (
                        f"{self.now_ms}: {partition} is owned by {owners[partition]} and {client}"
                    )
                    owners[partition] = client
        assert self.coordinator is not None
        committed = self.coordinator.offsets.fetch(GROUP)
        for (topic, number), offset in self.acked.items():
            assert committed[topic][number].offset >= offset, "an acknowledged commit was lost"


class Client:
    """What both kinds of client share."""

    is_eager = False

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.member_id = ""
        self.owned: Partitions = NO_PARTITIONS
        self.released: set[Partition] = set()  # for watching pauses
        self.is_alive = True
        self.awake_at_ms = 0
        world.clients.append(self)

    def __repr__(self) -> str:
        return f"{self.name}({self.member_id})"

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def notice_topics(self) -> None: ...

    def kill(self) -> None:
        """Die without a word; what it owned counts until its session expires."""
        self.is_alive = False

    def sleep(self, ms: int) -> None:
        """Stand still, as in a long collection of garbage, and believe all the while."""
        self.awake_at_ms = self.world.now_ms + ms

    def when_awake(self, action: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        if self.world.now_ms < self.awake_at_ms:
            self.world.after(self.awake_at_ms - self.world.now_ms, lambda: self.when_awake(action))
            return
        action()

    def later(self, ms: int, action: Callable[[], None]) -> None:
        self.world.after(ms, lambda: self.when_awake(action))

    def own(self, partitions: Partitions) -> None:
        self.released |= self.owned - partitions
        self.owned = partitions


class ClassicClient(Client):
    """Joins, syncs and sends heartbeats; eager ones own nothing while they join."""

    def __init__(self, world: World, name: str, *, is_eager: bool) -> None:
        super().__init__(world, name)
        self.is_eager = is_eager
        self.generation = -1
        self.is_leader = False
        self.is_joining = False
        self._ids = 0

    def start(self) -> None:
        self._join()

    def stop(self) -> None:
        self.own(NO_PARTITIONS)
        self.is_alive = False
        members = (LeavingMember(member_id=self.member_id),)
        call = Leave(group_id=GROUP, members=members)
        if self.member_id:
            self.world.send(self, "leave", call, lambda result: None)

    def notice_topics(self) -> None:
        if self.is_leader:
            self.later(50, self._join)

    def _join(self) -> None:
        if self.is_joining:
            return
        self.is_joining = True
        if self.is_eager:
            self.own(NO_PARTITIONS)
        self._send_join()

    def _send_join(self) -> None:
        self._ids += 1
        metadata = encode_subscription(sorted(self.world.topics), owned=self.owned)
        call = Join(
            group_id=GROUP,
            member_id=self.member_id,
            new_member_id=f"{self.name}-{self._ids}",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("sticky" if self.is_eager else "cooperative", metadata),),
            is_member_id_required=True,
        )
        self.world.send(self, "join", call, self._joined)

    def _joined(self, result: Any) -> None:
        if isinstance(result, JoinResult):
            self.member_id, self.generation = result.member_id, result.generation
            self.is_leader = result.leader_id == result.member_id
            self._send_sync(self._assign(result) if self.is_leader else {})
        elif isinstance(result, MemberIdRequired):
            self.member_id = result.member_id
            self._send_join()
        elif isinstance(result, UnknownMember):
            self._lose(forget_id=True)
            self.later(20, self._send_join)
        elif isinstance(result, InconsistentProtocol):
            self.later(1_000, self._send_join)
        else:
            self.later(100, self._send_join)

    def _assign(self, joined: JoinResult) -> dict[str, bytes]:
        """Balance; a cooperative leader leaves out what another member has yet to release."""
        claims = {
            each.member_id: decode_subscription(each.metadata).owned for each in joined.members
        }
        subscriptions = {member_id: tuple(self.world.topics) for member_id in claims}
        if self.is_eager:
            previous: dict[str, Partitions] = {}
        else:
            previous = claims
        target = assign_sticky(subscriptions, self.world.topics, previous)
        for member_id, share in target.items():
            others = [claims[other] for other in claims if other != member_id]
            target[member_id] = share.difference(*others)
        return {member_id: encode_assignment(share) for member_id, share in target.items()}

    def _send_sync(self, assignments: dict[str, bytes]) -> None:
        call = Sync(
            group_id=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            assignments=assignments,
        )
        self.world.send(self, "sync", call, self._synced)

    def _synced(self, result: Any) -> None:
        if isinstance(result, GoQueueError):
            if isinstance(result, UnknownMember | IllegalGeneration):
                self._lose(forget_id=isinstance(result, UnknownMember))
            self.later(20, self._send_join)
            return
        self.is_joining = False
        assigned = decode_assignment(result.assignment)
        must_rejoin = bool(self.owned - assigned)
        self.own(assigned)
        if must_rejoin:
            self._join()
        else:
            self.later(HEARTBEAT_MS, lambda generation=self.generation: self._beat(generation))

    def _beat(self, generation: int) -> None:
        if self.is_joining or generation != self.generation:
            return
        call = Heartbeat(group_id=GROUP, member_id=self.member_id, generation=generation)
        self.world.send(self, "heartbeat", call, lambda result: self._beaten(result, generation))
        if self.owned and self.world.random.random() < 0.3:
            partition = self.world.random.choice(sorted(self.owned))
            self.world.send_commit(self, partition, generation)

    def _beaten(self, result: Any, generation: int) -> None:
        if self.is_joining or generation != self.generation:
            return
        if isinstance(result, RebalanceInProgress):
            self._join()
        elif isinstance(result, UnknownMember | IllegalGeneration):
            self._lose(forget_id=isinstance(result, UnknownMember))
            self._join()
        else:
            delay_ms = 200 if isinstance(result, GoQueueError) else HEARTBEAT_MS
            self.later(delay_ms, lambda: self._beat(generation))

    def _lose(self, *, forget_id: bool) -> None:
        self.own(NO_PARTITIONS)
        self.generation = -1
        self.is_leader = False
        if forget_id:
            self.member_id = ""


class ConsumerClient(Client):
    """One heartbeat at a time; revokes before it acknowledges, acknowledges before it receives."""

    def __init__(self, world: World, name: str, instance_id: str | None = None) -> None:
        super().__init__(world, name)
        self.member_id = name
        self.instance_id = instance_id
        self.epoch = 0
        self.target: Partitions = NO_PARTITIONS
        self.is_sending = False
        self.is_revoking = False
        self._must_say_all = True
        self._said: Partitions | None = None

    def start(self) -> None:
        self._beat()

    def stop(self) -> None:
        self._leave(-1)

    def restart(self) -> ConsumerClient:
        """Stop for a moment and come back as a new process with the same instance id."""
        self._leave(-2)
        successor = ConsumerClient(self.world, f"{self.name}+", self.instance_id)
        successor.later(self.world.random.randint(10, 3_000), successor.start)
        return successor

    def _leave(self, epoch: int) -> None:
        self.own(NO_PARTITIONS)
        self.is_alive = False
        call = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=epoch,
        )
        self.world.send(self, "consumer_heartbeat", call, lambda result: None)

    def _beat(self) -> None:
        if self.is_sending:
            return
        self.is_sending = True
        is_full = self._must_say_all
        has_news = is_full or self._said != self.owned
        self._said = self.owned
        call = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full else None,
            subscribed_topics=tuple(self.world.topics) if is_full else None,
            owned=self.owned if has_news else None,
        )
        epoch = self.epoch
        self.world.send(self, "consumer_heartbeat", call, self._beaten)
        if self.owned and self.world.random.random() < 0.3:
            partition = self.world.random.choice(sorted(self.owned))
            self.world.send_commit(self, partition, epoch)

    def _beaten(self, result: Any) -> None:
        self.is_sending = False
        if isinstance(result, FencedMemberEpoch | UnknownMember):
            self.own(NO_PARTITIONS)
            self.target, self.epoch = NO_PARTITIONS, 0
            self._must_say_all = True
            self._beat()
        elif isinstance(result, GoQueueError):
            self._must_say_all = True
            self.later(100, self._beat)
        else:
            self._must_say_all = False
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self.target = result.assignment
            self.later(HEARTBEAT_MS, self._beat)
            self._reconcile()

    def _reconcile(self) -> None:
        if self.is_revoking or self.target == self.owned:
            return
        self.is_revoking = True
        is_releasing = bool(self.owned - self.target)
        delay_ms = self.world.random.randint(0, 300) if is_releasing else 0
        self.later(delay_ms, lambda epoch=self.epoch: self._reconciled(epoch))

    def _reconciled(self, epoch: int) -> None:
        self.is_revoking = False
        if self.epoch == 0:
            return  # It was fenced meanwhile and has nothing to reconcile.
        self.own(self.target)
        self._beat()
