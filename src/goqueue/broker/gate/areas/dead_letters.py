"""Operations on dead letters and redrives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.charges import as_it_reads
from goqueue.broker.gate.operation import Area, Arguments, named_by_owner, operation, topic
from goqueue.broker.redrives.dead_letters import UNLIMITED, Summary
from goqueue.broker.redrives.jobs import Preview
from goqueue.delivery.redrive import (
    LEDGER_GROUP,
    LETTERS_NAMED_MAX,
    RATE_PER_S_MAX,
    Letter,
    LetterFilter,
    Redrive,
    RedriveOrder,
)
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.promise import Promise
from goqueue.loop.turns import turn
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import UnknownRedrive
from goqueue.model.session import Session, pack_session
from goqueue.model.tenants import Sentence, Text, TopicName, plain_name

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "LETTERS_NAMED_MAX",
    "RATE_PER_S_MAX",
    "DamagedLetters",
    "DeadLetterPage",
    "DeadLetterTopics",
    "DeadLettersArea",
    "Letter",
    "LetterFilter",
    "Preview",
    "Redrive",
    "RedriveOrder",
]


class DamagedLetters(NamedTuple):
    """Offsets of a dead-letter topic that cannot be read any more, and the reason."""

    partition: int
    offset: int
    next_offset: int
    detail: Sentence


class DeadLetterPage(NamedTuple):
    """Dead letters, where each partition continues, and what could not be read."""

    dead_letter_topic: TopicName  # empty if it does not exist yet
    letters: list[Letter]
    positions: list[int]
    damaged: list[DamagedLetters]
    total: int  # of the topic, whatever the filter
    matching: int | None = None  # that match the filter; None on later pages
    is_counted: bool = True  # False if more may match than were counted
    is_last: bool = False

    def at_level(self, level: int) -> Sequence[object]:
        """Return the fields that a node of an older release expects; see `portable`."""
        return tuple(self) if level > 2 else tuple(self)[:-3]


class DeadLetterTopic(NamedTuple):
    """A dead-letter topic, and how many of its letters were not redriven."""

    topic: TopicName
    dead_letter_topic: TopicName
    letters: int
    size: int


class DeadLetterTopics(NamedTuple):
    """A page of dead-letter topics by name."""

    topics: list[DeadLetterTopic]
    total: int
    is_last: bool


_TOPICS_PER_SLICE = 2_000


def _owner(broker: Broker, _: Arguments) -> int:
    """Return the node that owns the ledgers of dead letters, which is the same for all topics."""
    return broker.queues.groups.owner_of_state(LEDGER_GROUP)


def _dead_letter_topic(arguments: Arguments) -> Iterable[Resource]:
    name = arguments["dead_letter_topic"] or arguments["topic"] + DEAD_LETTER_SUFFIX
    return (Resource(ResourceKind.TOPIC, name),)


def _topic(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, name)


class DeadLettersArea(Area):
    """Dead letters: list and redrive them."""

    @operation(Action.READ, _dead_letter_topic, owner=_owner, is_reading=True, charges=as_it_reads)
    async def list(
        self,
        session: Session,
        *,
        topic: TopicName,
        dead_letter_topic: TopicName | None,
        filter: LetterFilter,
        limit: int,
        positions: Sequence[int] | None,
    ) -> DeadLetterPage:
        """Return dead letters that were not redriven, oldest first in each partition.

        With a filter, a call is charged what it examines, and returns a page rather than a debt.
        """
        letters, allowance = self._broker.dead_letters, self._broker.quotas.allowance(session)
        is_filtered = filter != LetterFilter()
        found = letters.find(topic, dead_letter_topic)
        page = await letters.page(
            topic,
            filter=filter,
            count_max=limit,
            positions=None if positions is None else [*positions],
            dead_letter_topic=dead_letter_topic,
            allowance=allowance if is_filtered else UNLIMITED,
        )
        if not is_filtered:
            allowance.charge([one.record for one in page.letters])
        damaged = [
            DamagedLetters(
                one.partition.name.partition, one.offset, one.next_offset, str(one.error)
            )
            for one in page.damaged
        ]
        total = await letters.count(topic, dead_letter_topic)
        matching, is_counted = None, True
        if not is_filtered:
            matching = total
        elif positions is None:
            matching, is_counted = await letters.matches(
                topic, filter, dead_letter_topic, allowance
            )
        return DeadLetterPage(
            "" if found is None else found.name,
            page.letters,
            page.positions,
            damaged,
            total,
            matching,
            is_counted,
            page.is_last,
        )

    @operation(Action.DESCRIBE, named_by_owner, owner=_owner, is_reading=True)
    async def topics(
        self, session: Session, *, match: Text, after: TopicName, limit: int
    ) -> DeadLetterTopics:
        """Return the dead-letter topics that the session may describe, and what they have left."""
        letters, names = self._broker.dead_letters, []
        for number, one in enumerate(list(self._broker.topics)):
            if number % _TOPICS_PER_SLICE == _TOPICS_PER_SLICE - 1:
                await turn(self._broker.clock)
            source = one.name.removesuffix(DEAD_LETTER_SUFFIX)
            if (
                source != one.name
                and match in plain_name(one.name).lower()
                and self._sees_topic(session, one.name)
            ):
                names.append(source)
        names.sort()
        page = [one for one in names if one > after][: limit + 1]
        found = []
        for source in page[:limit]:
            topic = self._broker.topics.find(source + DEAD_LETTER_SUFFIX)
            if topic is not None:
                bounds = await self._broker.reads.look(
                    topic, range(topic.partition_count), may_guess=True
                )
                count = await letters.count(source, topic.name)
                size = sum(one.log.size for one in bounds)
                found.append(DeadLetterTopic(source, topic.name, count, size))
        return DeadLetterTopics(found, len(names), len(page) <= limit)

    @operation(Action.READ, _dead_letter_topic, owner=_owner, is_reading=True, charges=as_it_reads)
    async def summary(
        self, session: Session, *, topic: TopicName, dead_letter_topic: TopicName | None
    ) -> Summary:
        """Count dead letters by reason, by group and by key."""
        allowance = self._broker.quotas.allowance(session)
        return await self._broker.dead_letters.summary(topic, dead_letter_topic, allowance)

    # Redrives

    @operation(Action.READ, _dead_letter_topic, owner=_owner, is_change=True)
    async def redrive(
        self,
        session: Session,
        *,
        topic: TopicName,
        dead_letter_topic: TopicName | None,
        order: RedriveOrder,
    ) -> Redrive:
        """Start a job that moves dead letters back to their topics."""
        self._check_target(session, topic, order)
        return await self._broker.redrives.start(
            topic, order, dead_letter_topic, started_by=pack_session(session)
        )

    @operation(Action.READ, _dead_letter_topic, owner=_owner, is_reading=True, charges=as_it_reads)
    async def preview(
        self,
        session: Session,
        *,
        topic: TopicName,
        dead_letter_topic: TopicName | None,
        order: RedriveOrder,
    ) -> Preview:
        """Return what a job with this order would move now."""
        self._check_target(session, topic, order)
        allowance = self._broker.quotas.allowance(session)
        return await self._broker.redrives.preview(topic, order, dead_letter_topic, allowance)

    @operation(Action.DESCRIBE, topic(), owner=_owner, is_reading=True)
    async def redrives(self, session: Session, *, topic: TopicName) -> Sequence[Redrive]:
        """Return the jobs of a topic, newest first."""
        jobs = self._broker.redrives.jobs(topic)
        return [one for one in jobs if self._sees(session, one)]

    @operation(Action.DESCRIBE, topic(), owner=_owner, is_reading=True)
    async def show_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Redrive:
        """Return a job and its progress."""
        return self._job(session, topic, redrive_id)

    @operation(Action.WRITE, topic(), owner=_owner, is_change=True)
    def pause_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Promise[Redrive]:
        """Pause a job after the current step, if there is one."""
        self._check_job(session, topic, redrive_id)
        return self._broker.redrives.pause(topic, redrive_id)

    @operation(Action.WRITE, topic(), owner=_owner, is_change=True)
    def resume_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Promise[Redrive]:
        """Resume a paused job."""
        self._check_job(session, topic, redrive_id)
        return self._broker.redrives.resume(topic, redrive_id)

    @operation(Action.WRITE, topic(), owner=_owner, is_change=True)
    def cancel_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Promise[Redrive]:
        """End a job. What was moved stays moved, the rest stay dead letters."""
        self._check_job(session, topic, redrive_id)
        return self._broker.redrives.cancel(topic, redrive_id)

    # Helpers

    def _check_target(self, session: Session, topic: str, order: RedriveOrder) -> None:
        """Raise unless letters may go where the order sends them.

        Without a target they go to the topics they came from, which is checked for each of them.
        """
        self._check(session, Action.WRITE, _topic(order.target_topic or topic))

    def _job(self, session: Session, topic: str, redrive_id: str) -> Redrive:
        """Return a job; one that names topics that the session may not see does not exist."""
        found = self._broker.redrives.get(topic, redrive_id)
        if not self._sees(session, found):
            raise UnknownRedrive(topic, redrive_id)
        return found

    def _sees(self, session: Session, job: Redrive) -> bool:
        named = (job.dead_letter_topic, job.order.target_topic or job.topic)
        return all(self._sees_topic(session, one) for one in named)

    def _check_job(self, session: Session, topic: str, redrive_id: str) -> None:
        """Raise unless the session may do what the job does."""
        if not self._authoriser.is_open(session):
            job = self._job(session, topic, redrive_id)
            self._check(session, Action.READ, _topic(job.dead_letter_topic))
            self._check_target(session, topic, job.order)
