"""What members of share groups do to a cluster; what must be true is said by `History`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goqueue.broker.gate.areas.share_groups import ShareFetched, SharePart
from goqueue.broker.queues.records import ReceivedMessage
from goqueue.delivery import Delivery
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import GoQueueError, InvalidRecordState, StorageFailed
from goqueue.model.session import Session
from goqueue.model.share_groups import (
    AckBatch,
    AckType,
    PartitionOutcome,
    ShareAcks,
    ShareFetch,
    ShareWanted,
)
from tests.simulation.cluster_queues import (
    DELIVERIES_MAX,
    GONE_MS,
    GROUPS,
    PARTITIONS,
    TOPIC,
    History,
    Writer,
    consumers_of,
    drain,
    owner_of,
    place_of,
    strike,
)
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

LOCK_MS = 1500
SESSION = Session("clients")
BYTES_MAX = (1, 300, 1 << 20)


@dataclass
class Verdict:
    """What a member is going to report about records of one partition."""

    type: AckType
    messages: list[ReceivedMessage]

    @property
    def partition(self) -> int:
        return self.messages[0].delivery.partition

    def batches(self) -> tuple[AckBatch, ...]:
        """Return the offsets as ranges, in order."""
        offsets = sorted(one.delivery.offset for one in self.messages)
        ranges: list[list[int]] = []
        for offset in offsets:
            if ranges and ranges[-1][1] == offset - 1:
                ranges[-1][1] = offset
            else:
                ranges.append([offset, offset])
        return tuple(AckBatch(first, last, bytes((self.type,))) for first, last in ranges)


class ShareMember:
    """Fetches from whoever leads partitions, and does whatever the seed says with the records."""

    def __init__(self, world: ClusterWorld, group: str, name: str, history: ShareHistory) -> None:
        self.world = world
        self.group = group
        self.name = name
        self.history = history
        self.asked: Promise[ShareFetched] | None = None
        self._end: Callable[[], None] = lambda: None
        self._reports = False  # whether the request that is under way acknowledges anything
        self._asked_at = 0.0
        self._calls = 0
        self._session_id = 1
        self._verdicts: list[Verdict] = []

    def step(self, *, is_kind: bool) -> None:
        """Report on one partition at most, and fetch, unless an answer may be under way."""
        random, now_ms = self.world.random, self.world.clock.now_ms()
        is_asking = self.asked is not None and not self.asked.is_done
        if is_asking and now_ms - self._asked_at < GONE_MS:
            if not self._reports and random.random() < 0.1:
                self._end()  # Another request waits behind it. The answer still counts.
            return
        self._end()
        number = random.randrange(PARTITIONS)
        node = self.world.leader_of(self.history.topic, number)
        if random.random() < 0.1 or node is None:
            node = random.choice(self.world.up() or [None])
        if node is None:
            return
        verdict = self._verdicts.pop(0) if self._verdicts else None
        is_new = not is_kind and verdict is None and random.random() < 0.1
        self._session_id += is_new
        call = ShareFetch(
            self.group,
            self.name,
            tuple(
                ShareWanted(self.history.topic, one)
                for one in range(PARTITIONS)
                if self.world.leader_of(self.history.topic, one) is node
            ),
            ()
            if verdict is None
            else (ShareAcks(self.history.topic, verdict.partition, verdict.batches()),),
            wait_ms=random.choice([0, 50, 300]),
            bytes_max=random.choice(BYTES_MAX),
            records_max=random.randint(1, 8),
            is_record_limited=random.random() < 0.5,
            is_new_session=is_new,
            session_id=self._session_id,
        )
        self._send(node, call, verdict, is_kind=is_kind)

    def _send(
        self, node: ClusterNode, call: ShareFetch, verdict: Verdict | None, *, is_kind: bool
    ) -> None:
        self._asked_at = asked_ms = self.world.clock.now_ms()
        asked_at_node_ms = node.clock.monotonic_ms()
        self._calls += 1
        number, life = self._calls, node.life
        was_held = verdict is not None and all(
            self.history.is_held(self.group, one) for one in verdict.messages
        )
        if verdict is not None and verdict.type is not AckType.RENEW:
            self.history.reported(self.group, self.name, verdict.messages)
        if call.is_new_session:
            self.history.session_ended(self.group, self.name)
        cancellation = Cancellation()
        self.asked = node.broker.local_gate.share_groups.fetch(
            SESSION, call=call, cancellation=cancellation
        )

        def end() -> None:
            if life == node.life and node.is_up:
                cancellation.cancel()

        self._end, self._reports = end, verdict is not None

        def answered(fetched: ShareFetched | None, error: Exception | None) -> None:
            assert life == node.life, "a dead node has answered"
            if number != self._calls:
                return  # It has given up; what it was given comes back when its lock is over.
            if fetched is None:
                self._note(error)
                if verdict is not None:
                    self._verdicts.append(verdict)
                return
            for outcome in fetched.acked:
                assert verdict is not None
                self._acknowledged(verdict, outcome, asked_ms, was_held=was_held)
            for part in fetched.parts:
                # It was leased after the request; how long after is not known.
                until_ms = asked_at_node_ms + fetched.lock_ms
                until_ms = max(until_ms, node.clock.monotonic_ms() + 1)
                self._received(node, part, until_ms, is_kind=is_kind)

        self.asked.then(answered)

    def _acknowledged(
        self, verdict: Verdict, outcome: PartitionOutcome, asked_ms: float, *, was_held: bool
    ) -> None:
        history = self.history
        told = f"seed {self.world.seed}: {verdict.type.name} of {self.group} {verdict.batches()}"
        if outcome.error is None:
            for one in verdict.messages:
                if verdict.type is AckType.ACCEPT:
                    history.answered(self.group, one)
                elif verdict.type is AckType.RENEW:
                    history.extended(self.group, one, asked_ms + LOCK_MS)
        elif isinstance(outcome.error, InvalidRecordState):
            is_over = self.world.clock.now_ms() >= asked_ms + LOCK_MS
            is_still = verdict.type is AckType.RENEW and all(
                history.is_held(self.group, one) for one in verdict.messages
            )
            # Retried calls of another outcome than acceptance may have been carried out before.
            assert not (was_held and is_still and not is_over), f"{told} was refused"
        else:
            self._note(outcome.error)
            self._verdicts.append(verdict)

    def _received(
        self, node: ClusterNode, part: SharePart, until_ms: float, *, is_kind: bool
    ) -> None:
        if part.error is not None:
            self._note(part.error)
        records = {
            record.offset: record for one in part.batches for record in records_in(one.read())
        }
        messages: list[ReceivedMessage] = []
        for one in part.acquired:
            for offset in range(one.first, one.last + 1):
                assert offset in records, f"{self.group} holds {offset} and was not sent it"
                messages.append(
                    ReceivedMessage(
                        part.topic,
                        records[offset],
                        Delivery(
                            part.partition,
                            offset,
                            0,
                            one.delivery_count,
                            f"{self.name}:{one.delivery_count}",
                            int(until_ms),
                            0,
                        ),
                    )
                )
        for message in messages:
            self.history.delivered(self.group, message, node)
        if messages:
            self._decide(messages, is_kind=is_kind)

    def _decide(self, messages: list[ReceivedMessage], *, is_kind: bool) -> None:
        choice = 0.0 if is_kind else self.world.random.random()
        if choice >= 0.92:
            return  # It has forgotten them.
        type_ = AckType.ACCEPT
        if choice >= 0.6:
            type_ = (
                AckType.RELEASE
                if choice < 0.72
                else AckType.REJECT
                if choice < 0.8
                else AckType.RENEW
            )
        split = len(messages) if is_kind else self.world.random.randint(1, len(messages))
        self._verdicts.append(Verdict(type_, messages[:split]))
        if split < len(messages):
            self._verdicts.append(Verdict(AckType.ACCEPT, messages[split:]))

    def _note(self, error: Exception | None) -> None:
        assert isinstance(error, GoQueueError), error
        assert error.retryable or isinstance(error, StorageFailed), repr(error)
        self.history.failures[error.code] += 1


class ShareHistory(History):
    """A history in which sessions of members may end, and with them what they hold."""

    def reported(self, group: str, member: str, messages: Sequence[ReceivedMessage]) -> None:
        """A report is on its way. It names offsets, so it may also end a later delivery to it."""
        for one in messages:
            held = self._held.get((group, place_of(one)))
            if held is not None and held.receipt.startswith(f"{member}:"):
                del self._held[group, place_of(one)]

    def session_ended(self, group: str, member: str) -> None:
        for (name, place), held in list(self._held.items()):
            if name == group and held.receipt.startswith(f"{member}:"):
                del self._held[name, place]


def records_in(data: bytes) -> list[Record]:
    records, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        records += decode_batch(data[at : at + size])
        at += size
    return records


def begin(seed: int, *, node_count: int = 3, **settings: object) -> ClusterWorld:
    world = ClusterWorld(
        seed,
        node_count=node_count,
        delivery__snapshot_bytes="4KiB",
        delivery__lanes_save_ms="500ms",
    )
    world.heal()
    world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    create_share_groups(world, **settings)
    return world


def create_share_groups(world: ClusterWorld, **settings: object) -> None:
    for group in GROUPS:
        node = world.random.choice(world.up())
        world.wait(
            node.broker.queues.groups.create(
                group,
                {
                    "backoff_ms": 50,
                    "deliveries_max": DELIVERIES_MAX,
                    "visibility_ms": LOCK_MS,
                    **settings,
                },
            )
        )
    world.run_until(lambda: all(owner_of(world, group) is not None for group in GROUPS))


def members_of(world: ClusterWorld, history: ShareHistory) -> list[ShareMember]:
    return [
        ShareMember(world, group, f"{group}-member-{number}", history)
        for group in GROUPS
        for number in (1, 2)
    ]


def share_through_trouble(world: ClusterWorld) -> ShareHistory:
    """Write, fetch, receive and settle while nodes fail: members of both kinds in each group."""
    history, writer = ShareHistory(world), Writer(world)
    workers: Sequence[object] = [*members_of(world, history), *consumers_of(world, history)[:2]]
    for _ in range(8):
        for _ in range(world.random.randint(2, 6)):
            writer.step()
            for worker in workers:
                worker.step(is_kind=False)  # type: ignore[attr-defined]
            world.run_for(world.random.uniform(10, 400))
        strike(world)
    world.heal()
    while not writer.acked:  # Trouble may have come before the first of them, and stayed.
        writer.step()
        world.run_for(100)
    drain(world, workers, history)  # type: ignore[arg-type]
    return history
