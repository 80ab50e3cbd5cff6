"""The steps of redrives: which letters come next, where they go, and moving them.

Partitions may be led by other nodes, and the node that runs a job may change or crash. So a step is
stored in the job before anything is sent: its letters, and their producer id and sequence numbers.
A node that takes over the job repeats that step under the same numbers (see `Courier`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.broker.redrives.dead_letters import DeadLetters, LetterRun
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.courier import BatchNumbers, Courier
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery.redrive import Letter, Redrive, Shipment, State, Step, revived
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, UnknownTopicId
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.observer import Target
from goqueue.model.tenants import TopicName, name_beside

STEP_LETTERS_MAX = 500
RETRY_MS = 1000
LOOK_MS = 50  # how often to check whether a new leader has caught up with the last one
RATE_STEPS_PER_S = 10

# Whether who started a job may write to a topic.
MayWrite = Callable[[bytes, str], bool]
# Charges who started a job for records that it wrote; returns how long it has to wait, in ms.
ChargeJob = Callable[[bytes, Sequence[Record]], int]


def choose(job: Redrive, page: LetterRun) -> tuple[list[Letter], int]:
    """Return the letters of a page to be moved now, and where the next step begins."""
    room = STEP_LETTERS_MAX
    if job.order.rate_per_s is not None:
        room = min(room, max(1, job.order.rate_per_s // RATE_STEPS_PER_S))
    if job.order.count_max is not None:
        room = min(room, job.order.count_max - job.moved)
    chosen: list[Letter] = []
    for letter in page.letters:
        if (letter.partition, letter.record.offset) in job.already_moved:
            continue
        if not job.wants(letter):
            job.passed_over += 1
        elif len(chosen) == room:
            return chosen, letter.record.offset
        else:
            chosen.append(letter)
    return chosen, page.next_offset


def by_target(
    topics: Topics, may_write: MayWrite, job: Redrive, letters: list[Letter]
) -> dict[tuple[Topic, int], list[Letter]]:
    """Group letters by target partition; count those that have no target as failed."""
    found: dict[tuple[Topic, int], list[Letter]] = {}
    for letter in letters:
        name = job.target_of(letter)
        topic = None if name is None else topics.find(name)
        if name is not None and not may_write(job.started_by, name):
            job.failed += 1
            job.problem = (
                f"Letter {letter.partition}/{letter.record.offset} was not moved: who started the "
                "job may not write to its topic of origin."
            )
            continue
        if topic is None or topic.is_internal:
            job.failed += 1
            job.problem = f"Letter {letter.partition}/{letter.record.offset} was not moved: " + (
                f"there is no topic {name!r}." if name else "it has no topic of origin."
            )
            continue
        found.setdefault((topic, target_partition(letter, topic, name)), []).append(letter)
    return found


def target_partition(letter: Letter, topic: Topic, name: str | None) -> int:
    """Return the original partition if the letter goes back there; else that of its key."""
    count, origin = len(topic.partitions), letter.origin
    home = None if origin is None else name_beside(topic.name, origin.topic)
    if origin is not None and home == name and 0 <= origin.partition < count:
        return origin.partition
    if letter.record.key is not None:
        return partition_of_key(letter.record.key, count)
    return letter.partition % count


class RedriveSteps:
    """Runs jobs, one step after the other."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        letters: DeadLetters,
        leaders: Leaders,
        *,
        save: Callable[[Redrive], Promise[None]],
        is_full: Callable[[], bool],
        may_write: MayWrite,
        charge: ChargeJob,
    ) -> None:
        """`save` commits a job's state; it fails for a former owner."""
        self._may_write = may_write
        self._charge = charge
        self._clock = clock
        self._topics = topics
        self._letters = letters
        self._leaders = leaders
        self._save = save
        self._is_full = is_full
        # The first letter of the last step by partition, if it was marked here, or may have been,
        # and not reported: the wait for a mark may fail although it is stored later.
        self._unreported: dict[tuple[bytes, int], int] = {}

    async def run(self, job: Redrive, is_over: Callable[[], bool]) -> None:
        """Run a job until it has ended or is paused, or this node no longer owns it."""
        # Once this version is committed, a former owner can no longer change the job.
        await self._save(job)
        courier = Courier(self._topics, self._leaders, is_over=is_over)
        await courier.renew()
        while not is_over():
            topic = self._topics.find(job.dead_letter_topic)
            if topic is None or topic.id != job.dead_letter_topic_id:
                job.problem, job.step = f"Topic {job.dead_letter_topic!r} was deleted.", None
                if not job.is_ended:
                    await self._end(job, "failed")
                return
            if job.step is not None:
                await self._take_step(job, topic, courier, is_over)
            elif job.state != "running":
                return
            elif job.is_through:
                await self._end(job, "done")
            elif self._is_full():
                await self._sleep(RETRY_MS)
            elif wait_ms := self._charge(job.started_by, ()):
                await self._sleep(min(wait_ms, RETRY_MS))
            else:
                await self._plan_step(job, topic, courier)

    async def _end(self, job: Redrive, state: State) -> None:
        job.change(state, now_ms=self._clock.wall_ms(), what=state)
        await self._save(job)

    async def _plan_step(self, job: Redrive, topic: Topic, courier: Courier) -> None:
        """Store what is to be moved next, before any of it is."""
        number = job.next_partition
        page = await self._letters.read(
            topic, number, job.positions[number], job.until_offsets[number]
        )
        chosen, next_offset = choose(job, page)
        if next_offset <= job.positions[number]:
            # A new leader has not caught up with what was there when the job began.
            await self._sleep(LOOK_MS)
            return
        shipments = [
            _plan(courier, target, target_number, [one.record.offset for one in letters])
            for (target, target_number), letters in by_target(
                self._topics, self._may_write, job, chosen
            ).items()
        ]
        job.step = Step(number, next_offset, shipments)
        await self._save(job)

    async def _take_step(
        self, job: Redrive, topic: Topic, courier: Courier, is_over: Callable[[], bool]
    ) -> None:
        """Carry out the stored step, mark its letters, and store the progress."""
        step = job.step
        assert step is not None
        began_ms = self._clock.now_ms()
        moved: list[int] = []
        stored: list[tuple[Shipment, int]] = []  # with the offset of the first one
        for shipment in step.shipments:
            letters = await self._fetch(topic, step.partition, shipment.offsets, is_over)
            problem, end = await self._send(job, shipment, letters, courier)
            if is_over():
                return
            if problem:
                job.failed += len(shipment.offsets)
                job.problem = f"{len(shipment.offsets)} letters were not moved: {problem}"
            else:
                moved += shipment.offsets
                self._charge(job.started_by, [one.record for one in letters])
                stored.append((shipment, end - len(shipment.offsets) if end else -1))
        is_marking = bool(moved) and not job.order.keep_copy
        if is_marking:
            place = topic.id, step.partition
            # A former owner of the job, who has marked them, has reported that too.
            if not self._letters.ledger(*place).is_done(moved[0]):
                self._unreported[place] = moved[0]
            await self._letters.finish(*place, moved)
            if self._unreported.get(place) == moved[0]:
                # At once: a crash that takes the report takes the mark from the journal as well.
                self._report_all(topic, step, stored)
                del self._unreported[place]
        job.moved += len(moved)
        job.go_on(step.partition, step.next_offset)
        job.step = None
        await self._save(job)
        if not is_marking:
            self._report_all(topic, step, stored)
        rate = job.order.rate_per_s
        if rate and moved:
            due_ms = began_ms + len(moved) * 1000 // rate
            await self._sleep(max(0, due_ms - self._clock.now_ms()))

    def _report_all(self, topic: Topic, step: Step, stored: list[tuple[Shipment, int]]) -> None:
        for shipment, first in stored:
            self._report(TopicPartition(topic.name, step.partition), shipment, first)

    def _report(self, source: TopicPartition, shipment: Shipment, first: int) -> None:
        target = self._topics.find_by_id(shipment.topic_id)
        name = TopicName("") if target is None else target.name
        place = Target(TopicPartition(name, shipment.partition), first)
        self._letters.report_redriven(source, shipment.offsets, place)

    async def _send(
        self, job: Redrive, shipment: Shipment, letters: list[Letter], courier: Courier
    ) -> tuple[str, int]:
        """Store letters in their target; return why that is impossible, or an empty string, and
        the offset after them, 0 if it is not known.
        """
        numbers = BatchNumbers(
            shipment.topic_id,
            shipment.partition,
            ProducerIdentity(shipment.producer_id, 0),
            shipment.sequence,
        )
        if len(letters) < len(shipment.offsets):
            courier.reuse(numbers)
            return "some of them are gone from the dead-letter topic.", 0
        now_ms = self._clock.wall_ms()
        records = [
            revived(one, job.dead_letter_topic, redrive_id=job.id, now_ms=now_ms) for one in letters
        ]
        try:
            return "", await courier.store(numbers, records)
        except UnknownTopicId:
            return "their topic was deleted.", 0
        except GoQueueError as error:
            courier.reuse(numbers)
            return str(error), 0

    async def _fetch(
        self, topic: Topic, number: int, offsets: list[int], is_over: Callable[[], bool]
    ) -> list[Letter]:
        """Read letters by offset once their leader has them, except those that are gone."""
        while not is_over():
            letters = await self._letters.at(topic, number, offsets)
            if letters is not None:
                return letters
            await self._sleep(LOOK_MS)
        return []

    def _sleep(self, delay_ms: float) -> Promise[None]:
        over: Promise[None] = Promise()
        self._clock.call_later(delay_ms, lambda: over.resolve(None))
        return over


def _plan(courier: Courier, target: Topic, number: int, offsets: list[int]) -> Shipment:
    """Return the next batch for a partition."""
    numbers = courier.number(target, number, len(offsets))
    producer_id, _ = numbers.producer
    return Shipment(target.id, number, producer_id, numbers.sequence, offsets)
