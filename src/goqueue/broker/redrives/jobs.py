"""Redrives: jobs that move dead letters back to their topics, and can be paused and cancelled.

A letter is marked as redriven only after it is committed in its topic, so a job that is cancelled
or crashes loses nothing. It also never moves a letter twice: a step is stored in the job before
anything is sent, with its producer id and sequence numbers, and is repeated under them if it is
interrupted. A dead-letter topic has one active job at a time, which runs one step after the other.

All jobs run on the node that owns the ledgers of dead letters. A new owner repeats the step of the
last one. Jobs have versions, so that a former owner that has not noticed the change can neither
change a job nor start another step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from goqueue.broker.redrives.dead_letters import (
    SCAN_LETTERS_MAX,
    UNLIMITED,
    Allowance,
    DeadLetters,
)
from goqueue.broker.redrives.steps import RETRY_MS, ChargeJob, MayWrite, RedriveSteps
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topics
from goqueue.cluster.facts import JobFact
from goqueue.delivery.redrive import (
    Letter,
    Redrive,
    RedriveEvent,
    RedriveOrder,
    State,
)
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised, start
from goqueue.model.errors import (
    GoQueueError,
    RedriveActive,
    RedriveEnded,
    UnknownRedrive,
    UnknownTopic,
)
from goqueue.model.names import DELIVERY_TOPIC
from goqueue.model.tenants import TopicName
from goqueue.partition import Partition

JOB_KIND = "redrive"
JOBS_KEPT_MAX = 100  # ended ones, per dead-letter topic
PREVIEW_LETTERS_MAX = 10

_log = logging.getLogger(__name__)
_encode_job = msgspec.msgpack.Encoder().encode
_decode_job = msgspec.msgpack.Decoder(Redrive).decode


class Preview(NamedTuple):
    """What a job would do, as far as letters were examined."""

    dead_letter_topic: TopicName
    matching: int
    passed_over: int
    letters: list[Letter]
    is_complete: bool


class Redrives:
    """The jobs that move dead letters back, for all topics."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        letters: DeadLetters,
        *,
        new_id: Callable[[], bytes],
        is_full: Callable[[], bool],
        leaders: Leaders,
    ) -> None:
        self._steps = RedriveSteps(
            clock,
            topics,
            letters,
            leaders,
            save=self._save,
            is_full=is_full,
            may_write=lambda session, topic: self.may_write(session, topic),
            charge=lambda session, records: self.charge(session, records),
        )
        self.may_write: MayWrite = lambda session, topic: True
        self.charge: ChargeJob = lambda session, records: 0
        self._versions: dict[str, int] = {}
        self._saves: dict[str, Promise[None]] = {}
        self._tenure = 0  # counts the changes of ownership of the jobs
        self._clock = clock
        self._topics = topics
        self._letters = letters
        self._new_id = new_id
        self._jobs: dict[str, Redrive] = {}
        self._working: set[str] = set()
        self._is_stopped = False

    # Starting and stopping

    def stop(self) -> None:
        """Start no more steps; running jobs continue after the next start."""
        self._is_stopped = True

    def lead(self, partition: Partition) -> None:
        """Run the jobs if this partition holds the ledgers of dead letters."""
        if partition.name.partition == self._letters.shard:
            self._take_over()

    def _take_over(self) -> None:
        self._tenure += 1
        self._jobs, self._versions, self._saves, self._working = {}, {}, {}, set()
        for fact in self._topics.facts.jobs(JOB_KIND):
            self._load(fact)
        for job in list(self._jobs.values()):
            self._work(job)

    def resign(self, partition: Partition) -> None:
        """Drop the jobs, which another node owns; it repeats the steps in progress."""
        if partition.name.partition == self._letters.shard:
            self._tenure += 1
            self._jobs = {}

    def _load(self, fact: JobFact) -> Redrive:
        job = self._jobs[fact.id] = _decode_job(fact.body)
        self._versions[fact.id] = fact.version
        self._saves.pop(fact.id, None)
        return job

    # Jobs

    async def preview(
        self,
        topic: str,
        order: RedriveOrder,
        dead_letter_topic: str | None = None,
        allowance: Allowance = UNLIMITED,
    ) -> Preview:
        """Return what a job with this order would move now."""
        job = await self._new_job(topic, order, dead_letter_topic)
        found = self._topics.get(job.dead_letter_topic)
        matching, passed_over = 0, 0
        shown: list[Letter] = []
        for number in range(len(job.positions)):
            while job.positions[number] < job.until_offsets[number]:
                if matching + passed_over >= SCAN_LETTERS_MAX or allowance.is_used_up:
                    return Preview(found.name, matching, passed_over, shown, is_complete=False)
                page = await self._letters.read(
                    found, number, job.positions[number], job.until_offsets[number], allowance
                )
                for letter in page.letters:
                    if order.count_max is not None and matching >= order.count_max:
                        return Preview(found.name, matching, passed_over, shown, is_complete=True)
                    if not job.wants(letter):
                        passed_over += 1
                        continue
                    matching += 1
                    if len(shown) < PREVIEW_LETTERS_MAX:
                        shown.append(letter)
                if page.next_offset == job.positions[number]:
                    break
                job.positions[number] = page.next_offset
        return Preview(found.name, matching, passed_over, shown, is_complete=True)

    def start(
        self,
        topic: str,
        order: RedriveOrder,
        dead_letter_topic: str | None = None,
        *,
        started_by: bytes = b"",
    ) -> Promise[Redrive]:
        """Start a job; resolves when the job itself is durable."""
        self._letters.check_here()
        return promised(self._start(topic, order, dead_letter_topic, started_by))

    async def _start(
        self,
        topic: str,
        order: RedriveOrder,
        dead_letter_topic: str | None,
        started_by: bytes,
    ) -> Redrive:
        # The journal, where what was moved is noted, makes its owner continue the job.
        await self._topics.internal.ready(DELIVERY_TOPIC)
        job = await self._new_job(topic, order, dead_letter_topic)
        job.started_by = started_by
        self._letters.check_here()
        if order.target_topic is not None:
            self._topics.get(order.target_topic)
        for one in self._jobs.values():
            if one.dead_letter_topic_id == job.dead_letter_topic_id and not one.is_ended:
                raise RedriveActive(job.dead_letter_topic, one.id)
        saved = self._save(job)
        self._jobs[job.id] = job
        self._forget_old(job.dead_letter_topic_id)
        try:
            await saved
        except Exception:
            self._jobs.pop(job.id, None)
            raise
        if self._jobs.get(job.id) is job:
            self._work(job)
        return job

    def get(self, topic: str, job_id: str) -> Redrive:
        """Return a job as last committed, which is where a new owner would continue."""
        self._letters.check_here()
        for fact in self._topics.facts.jobs(JOB_KIND):
            if fact.id == job_id and (job := _decode_job(fact.body)).topic == topic:
                return job
        raise UnknownRedrive(topic, job_id)

    def jobs(self, topic: str) -> list[Redrive]:
        """Return the jobs of a topic as last committed, newest first."""
        self._letters.check_here()
        agreed = [_decode_job(fact.body) for fact in self._topics.facts.jobs(JOB_KIND)]
        jobs = [job for job in agreed if job.topic == topic]
        return sorted(jobs, key=lambda job: (job.created_ms, job.id), reverse=True)

    def pause(self, topic: str, job_id: str) -> Promise[Redrive]:
        """Pause after the current step, if there is one."""
        return self._change(topic, job_id, "paused")

    def resume(self, topic: str, job_id: str) -> Promise[Redrive]:
        changed = self._change(topic, job_id, "running")
        self._work(self._jobs[job_id])
        return changed

    def cancel(self, topic: str, job_id: str) -> Promise[Redrive]:
        """End a job. What was moved stays moved, the rest stay dead letters."""
        return self._change(topic, job_id, "cancelled")

    def _change(self, topic: str, job_id: str, state: State) -> Promise[Redrive]:
        self._letters.check_here()
        job = self._jobs.get(job_id)
        if job is None or job.topic != topic:
            raise UnknownRedrive(topic, job_id)
        if job.state == state:
            return promised(self._changed(self._save(job), job))
        if job.is_ended:
            raise RedriveEnded(job_id, job.state)
        changed = msgspec.structs.replace(job)
        changed.change(state, now_ms=self._clock.wall_ms(), what=state)
        saved = self._save(changed)
        job.change(state, now_ms=self._clock.wall_ms(), what=state)
        return promised(self._changed(saved, job))

    async def _changed(self, saved: Promise[None], job: Redrive) -> Redrive:
        try:
            await saved
        except GoQueueError:
            self._reload_later(job)
            raise
        return job

    async def _new_job(
        self, topic: str, order: RedriveOrder, dead_letter_topic: str | None
    ) -> Redrive:
        found = self._letters.find(topic, dead_letter_topic)
        if found is None:
            raise UnknownTopic(
                dead_letter_topic or topic + DEAD_LETTER_SUFFIX,
                "it is created with the first dead letter, so there is nothing to redrive yet. If "
                "a group uses another one, pass it as dead_letter_topic",
            )
        bounds = await self._letters.bounds(found)
        now_ms = self._clock.wall_ms()
        job = Redrive(
            id=self._new_id().hex()[:16],
            topic=topic,
            dead_letter_topic=found.name,
            dead_letter_topic_id=found.id,
            order=order,
            positions=[one.start_offset for one in bounds],
            until_offsets=[one.last_stable_offset for one in bounds],
            created_ms=now_ms,
            history=[RedriveEvent(now_ms, "created")],
        )
        job.narrow()
        return job

    def _save(self, job: Redrive) -> Promise[None]:
        version = self._versions[job.id] = self._versions.get(job.id, 0) + 1
        fact = JobFact(JOB_KIND, job.id, _encode_job(job), version)
        before = self._saves.get(job.id)
        saved = self._saves[job.id] = Promise()

        def save(_: None, error: Exception | None) -> None:
            # Versions that follow a refused one would be refused too.
            try:
                if error is not None:
                    raise error
                self._topics.facts.record_job(fact).then(saved.settle)
            except GoQueueError as refused:
                saved.reject(refused)

        if before is None:
            save(None, None)
        else:
            before.then(save)
        return saved

    def _forget_old(self, topic_id: bytes) -> None:
        ended = [
            job
            for job in self._jobs.values()
            if job.is_ended and job.dead_letter_topic_id == topic_id
        ]
        ended.sort(key=lambda job: job.created_ms)
        for job in ended[: max(0, len(ended) - JOBS_KEPT_MAX)]:
            del self._jobs[job.id]
            self._topics.facts.forget_job(JobFact(JOB_KIND, job.id, b""))

    # Working

    def _work(self, job: Redrive) -> None:
        """Run a job that should be running, unless it already is."""
        if job.id in self._working or self._is_stopped:
            return
        # A stored step is completed even if the job has been ended in the meantime.
        if job.state != "running" and job.step is None:
            return
        self._working.add(job.id)
        tenure = self._tenure
        run = self._steps.run(job, lambda: tenure != self._tenure or self._is_stopped)
        start(run, partial(self._ended, job, tenure))

    def _ended(self, job: Redrive, tenure: int, _: None, error: Exception | None) -> None:
        if error is not None and not isinstance(error, GoQueueError):
            raise error
        if tenure != self._tenure:
            return
        self._working.discard(job.id)
        if error is None:
            return
        _log.error("redrive %s of %s: %s", job.id, job.dead_letter_topic, error)
        self._reload_later(job)

    def _reload_later(self, job: Redrive) -> None:
        """Continue with a job as last committed, after its state could not be saved."""
        tenure = self._tenure

        def again() -> None:
            known = [one for one in self._topics.facts.jobs(JOB_KIND) if one.id == job.id]
            if tenure == self._tenure and known and job.id not in self._working:
                self._work(self._load(known[0]))

        self._clock.call_later(RETRY_MS, again)
