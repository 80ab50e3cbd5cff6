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
from goqueue.model.session import Session
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
        target = Resource(ResourceKind.TOPIC, order.target_topic or topic)
        self._check(session, Action.WRITE, target)
        return await self._broker.redrives.start(topic, order, dead_letter_topic)

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
        return await self._broker.redrives.preview(topic, order, dead_letter_topic)

    @operation(Action.DESCRIBE, topic(), owner=_owner, is_reading=True)
    async def redrives(self, session: Session, *, topic: TopicName) -> Sequence[Redrive]:
        """Return the jobs of a topic, newest first."""
        return self._broker.redrives.jobs(topic)

    @operation(Action.DESCRIBE, topic(), owner=_owner, is_reading=True)
    async def show_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Redrive:
        """Return a job and its progress."""
        return self._broker.redrives.get(topic, redrive_id)

    @operation(Action.WRITE, topic(), owner=_owner, is_change=True)
    def pause_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Promise[Redrive]:
        """Pause a job after the current step, if there is one."""
        return self._broker.redrives.pause(topic, redrive_id)

    @operation(Action.WRITE, topic(), owner=_owner, is_change=True)
    def resume_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Promise[Redrive]:
        """Resume a paused job."""
        return self._broker.redrives.resume(topic, redrive_id)

    @operation(Action.WRITE, topic(), owner=_owner, is_change=True)
    def cancel_redrive(
        self, session: Session, *, topic: TopicName, redrive_id: Text
    ) -> Promise[Redrive]:
        """End a job. What was moved stays moved, the rest stay dead letters."""
        return self._broker.redrives.cancel(topic, redrive_id)
