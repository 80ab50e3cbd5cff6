"""Offsets that are committed in transactions: pending until the end, then all or none."""

from __future__ import annotations

import pytest

from goqueue.groups import CommitOffsets, CommittedOffset, Coordinator, OffsetToCommit, Persist
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    UnknownMember,
    UnstableOffsetCommit,
)
from goqueue.model.names import ProducerIdentity
from tests.unit.groups.desk import GROUP, SETTINGS, Answer, Desk

IDENTITY = ProducerIdentity(7, 0)
OTHER = ProducerIdentity(8, 3)


class PendingDesk(Desk):
    """Its log remembers whose transaction a record is part of, and the ends of transactions."""

    entries: list[tuple[int | None, object]]

    def __init__(self) -> None:
        self.entries = []
        super().__init__()

    def restart(self) -> None:
        self.unwritten.clear()
        self.coordinator = Coordinator(self.settings)
        self._perform(self.coordinator.topics_changed(self.now_ms, self.topics))
        for producer_id, entry in self.entries:
            if isinstance(entry, bool):
                assert producer_id is not None
                self.coordinator.replay_end(producer_id, is_commit=entry)
            else:
                key, value = entry  # type: ignore[misc]
                self.coordinator.replay(key, value, producer_id=producer_id)
        self._perform(self.coordinator.loaded(self.now_ms))

    def _write(self, write: Persist) -> None:
        producer_id = None if write.identity is None else write.identity.producer_id
        self.entries += [(producer_id, record) for record in write.records]
        super()._write(write)

    def commit_pending(
        self, offset: int, identity: ProducerIdentity = IDENTITY, **fields: object
    ) -> Answer:
        metadata = str(fields.pop("metadata", ""))
        call = CommitOffsets(
            group_id=GROUP,
            offsets=[OffsetToCommit(topic="a", partition=0, offset=offset, metadata=metadata)],
            **fields,  # type: ignore[arg-type]
        )
        answer = Answer()
        try:
            effects = self.coordinator.offsets.commit(
                call, identity=identity, token=answer, now_ms=self.now_ms
            )
        except Exception as error:
            answer.result = error
        else:
            self._perform(effects)
        return answer

    def end(self, identity: ProducerIdentity = IDENTITY, *, is_commit: bool = True) -> None:
        self.entries.append((identity.producer_id, is_commit))
        self._perform(
            self.coordinator.ended(identity.producer_id, is_commit=is_commit, now_ms=self.now_ms)
        )

    @property
    def offset(self) -> int | None:
        found: CommittedOffset | None = self.coordinator.offsets.fetch(GROUP).get("a", {}).get(0)
        return None if found is None else found.offset

    @property
    def is_unstable(self) -> bool:
        unstable = self.coordinator.offsets.unstable(GROUP)
        assert unstable == self.coordinator.offsets.unstable(GROUP, {"a": [0, 1]})
        assert self.coordinator.offsets.unstable(GROUP, {"a": [1]}) == frozenset()
        return bool(unstable)


def test_an_offset_counts_when_its_transaction_does() -> None:
    desk = PendingDesk()
    assert desk.commit_pending(5).error is None
    assert (desk.offset, desk.is_unstable) == (None, True)
    desk.end()
    assert (desk.offset, desk.is_unstable) == (5, False)


def test_an_aborted_offset_is_as_if_it_had_never_been() -> None:
    desk = PendingDesk()
    desk.commit(3)
    desk.commit_pending(5)
    desk.end(is_commit=False)
    assert (desk.offset, desk.is_unstable) == (3, False)


def test_a_group_that_only_an_aborted_transaction_knew_is_gone() -> None:
    desk = PendingDesk()
    desk.commit_pending(5)
    assert [one.group_id for one in desk.coordinator.list_groups()] == [GROUP]
    desk.end(is_commit=False)
    assert desk.coordinator.list_groups() == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_restart_finds_pending_offsets_and_their_ends(is_commit: bool) -> None:
    desk = PendingDesk()
    desk.commit(3)
    desk.commit_pending(5)
    desk.restart()
    assert (desk.offset, desk.is_unstable) == (3, True)
    desk.end(is_commit=is_commit)
    expected = 5 if is_commit else 3
    assert desk.offset == expected
    desk.restart()
    assert (desk.offset, desk.is_unstable) == (expected, False)


def test_producers_do_not_end_one_anothers_transactions() -> None:
    desk = PendingDesk()
    desk.commit_pending(5)
    desk.commit_pending(9, OTHER)
    desk.end(OTHER, is_commit=False)
    assert (desk.offset, desk.is_unstable) == (None, True)
    desk.end()
    assert desk.offset == 5
    desk.end()
    assert desk.offset == 5


def test_the_last_offset_of_a_transaction_counts() -> None:
    desk = PendingDesk()
    desk.commit_pending(5)
    desk.commit_pending(6)
    desk.end()
    assert desk.offset == 6


def test_a_later_commit_outside_of_the_transaction_wins_now_and_after_a_restart() -> None:
    desk = PendingDesk()
    desk.commit_pending(5)
    desk.commit(4)
    desk.end()
    assert desk.offset == 4
    desk.restart()
    assert desk.offset == 4


def test_who_wants_stable_offsets_is_told_to_wait() -> None:
    desk = PendingDesk()
    desk.commit(3)
    desk.commit_pending(5)
    fetch = desk.coordinator.offsets.fetch
    with pytest.raises(UnstableOffsetCommit):
        fetch(GROUP, require_stable=True)
    with pytest.raises(UnstableOffsetCommit):
        fetch(GROUP, {"a": [0]}, require_stable=True)
    assert fetch(GROUP, {"a": [1]}, require_stable=True) == {"a": {}}
    desk.end()
    assert fetch(GROUP, require_stable=True)["a"][0].offset == 5


def test_a_pending_offset_is_unstable_from_the_moment_it_is_sent() -> None:
    desk = PendingDesk()
    desk.is_disk_slow = True
    answer = desk.commit_pending(5)
    assert answer.is_waiting
    assert desk.is_unstable
    desk.finish_writes()
    assert answer.error is None
    assert desk.is_unstable


def test_a_transactions_offsets_do_not_wait_for_other_writes_of_the_group() -> None:
    desk = PendingDesk()
    desk.is_disk_slow = True
    desk.commit(3)
    desk.commit_pending(5)
    assert [write.identity for write in desk.unwritten] == [None, IDENTITY]
    desk.finish_writes()
    desk.end()
    assert desk.offset == 5


def test_what_could_not_be_written_is_not_pending() -> None:
    desk = PendingDesk()
    desk.is_disk_slow = True
    answer = desk.commit_pending(5)
    desk.fail_write()
    assert answer.error is CoordinatorNotAvailable
    assert not desk.is_unstable
    desk.end()
    assert desk.offset is None


def test_deleting_the_group_or_the_topic_takes_pending_offsets_along() -> None:
    for is_topic in (True, False):
        desk = PendingDesk()
        desk.commit_pending(5)
        if is_topic:
            desk.set_topics(b=1)
        else:
            assert desk.ask("delete_group", GROUP).error is None
        desk.end()
        assert desk.offset is None
        desk.restart()
        assert desk.offset is None


def test_deleting_an_offset_takes_a_pending_one_along() -> None:
    desk = PendingDesk()
    desk.commit_pending(5)
    assert desk.ask("offsets.delete", GROUP, {"a": [0]}).error is None
    desk.end()
    assert desk.offset is None


def test_offsets_with_something_pending_do_not_expire() -> None:
    desk = PendingDesk()
    desk.commit(3)
    desk.commit_pending(5)
    desk.wait(2 * SETTINGS.offsets_retention_ms)
    assert desk.offset == 3
    desk.end()
    assert desk.offset == 5


def test_members_are_checked_and_those_who_are_none_may_commit() -> None:
    desk = PendingDesk()
    generation = desk.settle_classic("m1")
    assert desk.commit_pending(5).error is None, "a producer speaks for itself"
    assert desk.commit_pending(5, member_id="m1", generation=generation).error is None
    assert desk.commit_pending(5, member_id="m1", generation=9).error is IllegalGeneration
    assert desk.commit_pending(5, member_id="m9", generation=generation).error is UnknownMember
    consumers = PendingDesk()
    epoch = consumers.consumer("m1", 0).result.member_epoch
    assert consumers.commit_pending(5).error is None
    assert consumers.commit_pending(5, member_id="m1", generation=epoch).error is None
    assert consumers.commit_pending(5, member_id="m9", generation=epoch).error is UnknownMember


def test_a_note_that_is_too_long_is_refused_alone() -> None:
    desk = PendingDesk()
    answer = desk.commit_pending(5, metadata="x" * 5000)
    assert isinstance(answer.result.errors["a", 0], OffsetMetadataTooLarge)
    assert not desk.is_unstable
