"""Operations on dead letters and redrives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.operation import Area, Arguments, operation, topic
from goqueue.broker.redrives.dead_letters import LEDGER_GROUP
from goqueue.broker.redrives.jobs import Preview
from goqueue.delivery.redrive import (
    LETTERS_NAMED_MAX,
    RATE_PER_S_MAX,
    Letter,
    LetterFilter,
    Redrive,
    RedriveOrder,
)
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import UnknownRedrive
from goqueue.model.session import Session, pack_session
from goqueue.model.tenants import Sentence, Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "LETTERS_NAMED_MAX",
    "RATE_PER_S_MAX",
    "DamagedLetters",
    "DeadLetterPage",
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
    total: int  # of all pages


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

    @operation(Action.READ, _dead_letter_topic, owner=_owner, is_reading=True)
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
        """Return dead letters that were not redriven, oldest first in each partition."""
        letters = self._broker.dead_letters
        found = letters.find(topic, dead_letter_topic)
        page = await letters.page(
            topic,
            filter=filter,
            count_max=limit,
            positions=None if positions is None else [*positions],
            dead_letter_topic=dead_letter_topic,
        )
        damaged = [
            DamagedLetters(
                one.partition.name.partition, one.offset, one.next_offset, str(one.error)
            )
            for one in page.damaged
        ]
        total = await letters.count(topic, dead_letter_topic)
        name = "" if found is None else found.name
        return DeadLetterPage(name, page.letters, page.positions, damaged, total)

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

    @operation(Action.READ, _dead_letter_topic, owner=_owner, is_reading=True)
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
        return await self._broker.redrives.preview(topic, order, dead_letter_topic)

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
