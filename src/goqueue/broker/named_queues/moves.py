"""Moves: jobs that empty one named queue into others, such as dead letters into their sources.

A move receives from the queue as any consumer does, stores each message in the queue it came from
or in a given one, and then acknowledges it. So nothing is lost whenever it stops; a message that
was stored and not yet acknowledged when the node fails is moved again. The job is stored in the
metadata: the owner of the queue runs it, and a new owner continues it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from goqueue.broker.controller.metadata import Facts
from goqueue.broker.named_queues.counting import QueueCounting
from goqueue.broker.named_queues.named_queues import NamedQueue, NamedQueues
from goqueue.broker.publishing.publisher import Outgoing, PublishResult
from goqueue.broker.queues.queues import Queues
from goqueue.broker.queues.records import ReceivedMessage
from goqueue.cluster.facts import JobFact
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised, start
from goqueue.model.batch import NO_TIMESTAMP, Record
from goqueue.model.dead_letters import read_origin, without_origin
from goqueue.model.errors import GoQueueError, RedriveActive, RedriveEnded, UnknownRedrive
from goqueue.model.tenants import QueueName, Sentence, Text, name_beside
from goqueue.partition import Partition

JOB_KIND = "queue-move"
JOBS_KEPT_MAX = 10  # ended ones, per queue
STEP_MESSAGES_MAX = 100
STEP_LEASE_MS = 60_000
STEP_WAIT_MS = 2_000  # for counted messages that may have to be fetched from other nodes
SAVE_MS = 5_000  # how old the stored progress may be
RETRY_MS = 1_000
CONSUMER = "move"
SOURCE_UNKNOWN = "CouldNotDetermineMessageSource"
TARGET_GONE = "The queue to move to was deleted."

State = Literal["running", "cancelling", "done", "cancelled", "failed"]
_ENDED = ("done", "cancelled", "failed")

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode

Publish = Callable[[str, Sequence[Record | Outgoing]], Promise[list[PublishResult]]]


class Move(msgspec.Struct, kw_only=True):
    """One job."""

    id: Text
    queue: QueueName
    queue_id: bytes
    target: QueueName = ""  # the queue to move to; empty: the queue that each message came from
    rate_per_s: int | None = None
    created_ms: int
    wanted: int  # messages in the queue when it started
    moved: int = 0
    state: State = "running"
    problem: Sentence = ""
    started_by: bytes = b""  # the session, whose rights limit where messages go

    @property
    def is_ended(self) -> bool:
        return self.state in _ENDED


_decode = msgspec.msgpack.Decoder(Move).decode


class NamedQueueMoves:
    """All moves; those of queues that this node owns run here."""

    def __init__(
        self,
        clock: Clock,
        facts: Facts,
        named_queues: NamedQueues,
        queues: Queues,
        counting: QueueCounting,
        publish: Publish,
        *,
        node_id: int,
        new_id: Callable[[], bytes],
    ) -> None:
        self._clock = clock
        self._facts = facts
        self._named_queues = named_queues
        self._queues = queues
        self._counting = counting
        self._publish = publish
        self._node_id = node_id
        self._new_id = new_id
        # Whether who started a move may write to a topic.
        self.may_write: Callable[[bytes, str], bool] = lambda session, topic: True
        # Charges who started a move for what it wrote; returns how long it has to wait.
        self.charge: Callable[[bytes, Sequence[Record]], int] = lambda session, records: 0
        self._working: dict[str, Move] = {}  # by id, with progress that is not stored yet
        self._is_stopped = False

    # Starting and stopping

    def resume(self, _: Partition | None = None) -> None:
        """Continue the moves of queues that this node owns."""
        if self._is_stopped:
            return
        for job in self._known():
            if not job.is_ended and job.id not in self._working:
                self._work(job)

    def stop(self) -> None:
        """Start no more steps; moves continue after the next start."""
        self._is_stopped = True

    # Jobs

    def start(
        self,
        queue: NamedQueue,
        *,
        target: str = "",
        rate_per_s: int | None = None,
        started_by: bytes = b"",
    ) -> Promise[Move]:
        """Start to empty a queue; resolves when the job itself is durable."""
        return promised(self._start(queue, target, rate_per_s, started_by))

    async def _start(
        self, queue: NamedQueue, target: str, rate_per_s: int | None, started_by: bytes
    ) -> Move:
        for job in self.jobs(queue):
            if not job.is_ended:
                raise RedriveActive(queue.name, job.id)
        counts = await self._counting.count(queue)
        job = Move(
            id=self._new_id().hex()[:16],
            queue=queue.name,
            queue_id=queue.id,
            target=target,
            rate_per_s=rate_per_s,
            created_ms=self._clock.wall_ms(),
            wanted=counts.ready,
            started_by=started_by,
        )
        self._forget_old(queue)
        await self._save(job)
        self._work(job)
        return job

    def jobs(self, queue: NamedQueue) -> list[Move]:
        """Return the moves out of a queue, newest first."""
        self._queues.groups.owned(queue.group)
        found = [self._working.get(job.id, job) for job in self._known()]
        mine = [job for job in found if job.queue_id == queue.id]
        return sorted(mine, key=lambda job: (job.created_ms, job.id), reverse=True)

    def cancel(self, queue: NamedQueue, job_id: str) -> Promise[Move]:
        """End a move after the current step. What it has moved stays moved."""
        return promised(self._cancel(queue, job_id))

    async def _cancel(self, queue: NamedQueue, job_id: str) -> Move:
        job = next((one for one in self.jobs(queue) if one.id == job_id), None)
        if job is None:
            raise UnknownRedrive(queue.name, job_id)
        if job.state != "running":
            raise RedriveEnded(job_id, job.state)
        job.state = "cancelling"
        await self._save(job)
        return job

    def _forget_old(self, queue: NamedQueue) -> None:
        """Delete old jobs to make room for one more, and those of deleted queues."""
        there = {one.id for one in self._named_queues.all()}
        ended = [job for job in self.jobs(queue) if job.is_ended]
        strays = [job for job in self._known() if job.is_ended and job.queue_id not in there]
        for job in (*ended[JOBS_KEPT_MAX - 1 :], *strays):
            self._facts.forget_job(JobFact(JOB_KIND, job.id, b""))

    def _known(self) -> list[Move]:
        return [_decode(fact.body) for fact in self._facts.jobs(JOB_KIND)]

    def _save(self, job: Move) -> Promise[None]:
        """Store the job. Only the owner of its queue writes it, so the last write wins."""
        return self._facts.record_job(JobFact(JOB_KIND, job.id, _encode(job)))

    # Working

    def _work(self, job: Move) -> None:
        queue = self._named_queues.find(job.queue)
        owner = self._node_id if queue is None else self._named_queues.owner_of(queue)
        if owner < 0:
            self._clock.call_later(RETRY_MS, self.resume)  # This node may become the owner.
        if owner != self._node_id:
            return
        self._working[job.id] = job
        start(self._run(job), partial(self._rested, job))

    def _rested(self, job: Move, _: None, error: Exception | None) -> None:
        """Handle the end of a run: completed, to be retried, or now on another node."""
        self._working.pop(job.id, None)
        if error is None or self._is_stopped:
            return
        if not isinstance(error, GoQueueError):
            raise error
        _log.warning("move %s of queue %s must retry: %s", job.id, job.queue, error)
        self._clock.call_later(RETRY_MS, self.resume)

    async def _run(self, job: Move) -> None:
        saved_ms = self._clock.now_ms()
        queue = self._named_queues.find(job.queue)
        if queue is not None and queue.id == job.queue_id:
            # Messages that this move held under its previous owner are still leased to it.
            self._queues.take_back(queue.group, queue.topic, _consumer(job))
        is_counted = False
        while not self._is_stopped:
            queue = self._named_queues.find(job.queue)
            moved = 0
            if queue is None or queue.id != job.queue_id:
                job.problem = "The queue was deleted."
            elif job.state == "running" and job.moved < job.wanted:
                wait_ms = self.charge(job.started_by, ())
                if wait_ms:
                    await self._pause(min(wait_ms, RETRY_MS))
                    continue
                moved = await self._step(job, queue)
                if not is_counted:
                    # Only now is it certain that the queue is open.
                    await self._count_moved(job, queue)
                    is_counted = True
            ending = self._ending(job, moved)
            if ending is not None:
                job.state = ending
                await self._save(job)
                return
            if self._clock.now_ms() - saved_ms >= SAVE_MS:
                saved_ms = self._clock.now_ms()
                await self._save(job)
            if job.rate_per_s:
                await self._pause(1000 * moved // job.rate_per_s)

    async def _count_moved(self, job: Move, queue: NamedQueue) -> None:
        """Count what was moved before a crash, and not stored: it is no longer in the queue."""
        left = await self._counting.count(queue)
        job.moved = max(job.moved, job.wanted - left.ready - left.out)

    @staticmethod
    def _ending(job: Move, moved: int) -> State | None:
        """Return the final state after a step that moved `moved` messages; None to continue."""
        if job.problem:
            return "failed"
        if job.state == "cancelling":
            return "cancelled"
        return "done" if not moved or job.moved >= job.wanted else None

    async def _step(self, job: Move, queue: NamedQueue) -> int:
        """Move some messages; return how many."""
        count = min(STEP_MESSAGES_MAX, job.wanted - job.moved, job.rate_per_s or STEP_MESSAGES_MAX)
        receiver = self._queues.receive(
            queue.group,
            queue.topic,
            consumer=_consumer(job),
            messages_max=max(1, count),
            wait_ms=STEP_WAIT_MS,
            visibility_ms=STEP_LEASE_MS,
        )
        received = list(await receiver.promise)
        homes = {one.group: one.topic for one in self._named_queues.all()}
        by_target: dict[str, list[ReceivedMessage]] = {}
        homeless = []
        for one in received:
            target = self._target_of(job, one, homes)
            if target is None or not self.may_write(job.started_by, target):
                homeless.append(one.delivery.receipt)
            else:
                by_target.setdefault(target, []).append(one)
        before = job.moved
        try:
            for topic, some in by_target.items():
                await self._deliver(job, queue, topic, some)
        except GoQueueError:
            # Messages of this step that are still leased must be available for the next one.
            held = [one.delivery.receipt for one in received]
            await self._queues.nack(queue.group, held, delay_ms=0)
            raise
        if homeless:
            job.problem = TARGET_GONE if job.target else SOURCE_UNKNOWN
            await self._queues.nack(queue.group, homeless, delay_ms=0)
        return job.moved - before

    async def _deliver(
        self, job: Move, queue: NamedQueue, topic: str, some: Sequence[ReceivedMessage]
    ) -> None:
        """Store messages in a topic, and acknowledge those that are stored.

        A retryable error is raised, so that the move tries again; any other ends it.
        """
        records = [
            one.record._replace(
                headers=without_origin(one.record.headers), timestamp_ms=NO_TIMESTAMP, offset=-1
            )
            for one in some
        ]
        stored: list[str] = []
        refused: list[str] = []
        trouble: GoQueueError | None = None
        for one, result in zip(some, await self._publish(topic, records), strict=True):
            is_refused = isinstance(result, GoQueueError)
            if isinstance(result, GoQueueError):
                trouble = result
            (refused if is_refused else stored).append(one.delivery.receipt)
        if stored:
            self.charge(job.started_by, records)
            await self._queues.ack(queue.group, stored)
            job.moved += len(stored)
        if trouble is None:
            return
        if trouble.retryable:
            await self._save(job)
            raise trouble
        job.problem = str(trouble)
        await self._queues.nack(queue.group, refused, delay_ms=0)

    def _target_of(
        self, job: Move, message: ReceivedMessage, homes: Mapping[str, str]
    ) -> str | None:
        """Return the topic that a message goes to; None if its origin is unknown.

        `homes` are the topics of queues by their groups.
        """
        if job.target:
            target = self._named_queues.find(job.target)
            return None if target is None else target.topic
        origin = read_origin(message.record.headers)
        group = None if origin is None else name_beside(job.queue, origin.group)
        return None if group is None else homes.get(group)

    def _pause(self, wait_ms: int) -> Promise[None]:
        promise: Promise[None] = Promise()
        self._clock.call_later(wait_ms, lambda: promise.resolve(None))
        return promise


def _consumer(job: Move) -> str:
    """Return the consumer name of a move, which is different for each move."""
    return f"{CONSUMER}-{job.id}"
