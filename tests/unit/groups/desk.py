"""A coordinator with a log, a clock and waiting callers, for tests that read as stories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

from goqueue.config import GroupSettings
from goqueue.groups import (
    CommitOffsets,
    ConsumerHeartbeat,
    Coordinator,
    Effect,
    GroupState,
    Heartbeat,
    Join,
    KeyedRecord,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Persist,
    Reply,
    Sync,
)
from goqueue.groups.assignment.partitions import Partition
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError

GROUP = "shop"
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
PROTOCOLS = (("range", encode_subscription(["a"])),)


@dataclass
class Answer:
    """What a call will be told; `None` while it waits."""

    result: Any = None

    @property
    def is_waiting(self) -> bool:
        return self.result is None

    @property
    def error(self) -> type[GoQueueError] | None:
        return type(self.result) if isinstance(self.result, GoQueueError) else None


class Desk:
    def __init__(
        self, settings: GroupSettings = SETTINGS, topics: dict[str, int] | None = None
    ) -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.topics = {"a": 4} if topics is None else topics
        self.log: list[KeyedRecord] = []
        self.unwritten: list[Persist] = []
        self.is_disk_slow = False
        self.restart()

    # Time, topics, disk

    def restart(self) -> None:
        """Crash, and load what the log holds."""
        self.unwritten.clear()
        self.coordinator = Coordinator(self.settings)
        self._perform(self.coordinator.topics_changed(self.now_ms, self.topics))
        for key, value in self.log:
            self.coordinator.replay(key, value)
        self._perform(self.coordinator.loaded(self.now_ms))

    def wait(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._perform(self.coordinator.tick(self.now_ms))
        self.now_ms = until_ms

    def set_topics(self, **topics: int) -> None:
        self.topics = topics
        self._perform(self.coordinator.topics_changed(self.now_ms, topics))

    def finish_writes(self) -> None:
        while self.unwritten:
            self._write(self.unwritten.pop(0))

    def fail_write(self) -> None:
        write = self.unwritten.pop(0)
        error = CoordinatorNotAvailable("The disk is full.")
        self._perform(self.coordinator.persist_failed(write.write_id, error, self.now_ms))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Answer)
                assert effect.token.is_waiting
                effect.token.result = effect.result
            elif self.is_disk_slow:
                self.unwritten.append(effect)
            else:
                self._write(effect)

    def _write(self, write: Persist) -> None:
        self.log += write.records
        self._perform(self.coordinator.persisted(write.write_id, self.now_ms))

    # Calls

    def ask(self, name: str, *args: Any) -> Answer:
        answer = Answer()
        try:
            call = attrgetter(name)(self.coordinator)
            self._perform(call(*args, token=answer, now_ms=self.now_ms))
        except GoQueueError as error:
            answer.result = error
        return answer

    def join(self, member_id: str = "", **fields: Any) -> Answer:
        call = Join(
            group_id=GROUP,
            member_id=member_id,
            new_member_id=fields.pop("new", "new"),
            session_timeout_ms=fields.pop("session_ms", 10_000),
            rebalance_timeout_ms=fields.pop("rebalance_ms", 60_000),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=fields.pop("protocols", PROTOCOLS),
            **fields,
        )
        return self.ask("join", call)

    def sync(self, member_id: str, generation: int, **fields: Any) -> Answer:
        call = Sync(group_id=GROUP, member_id=member_id, generation=generation, **fields)
        return self.ask("sync", call)

    def heartbeat(self, member_id: str, generation: int, **fields: Any) -> Answer:
        call = Heartbeat(group_id=GROUP, member_id=member_id, generation=generation, **fields)
        return self.ask("heartbeat", call)

    def leave(self, *members: str, instance_id: str | None = None) -> Answer:
        leaving = tuple(LeavingMember(member_id=each, instance_id=instance_id) for each in members)
        return self.ask("leave", Leave(group_id=GROUP, members=leaving))

    def consumer(self, member_id: str, epoch: int, **fields: Any) -> Answer:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topics": ("a",), **fields}
        if "owned" in fields:
            fields["owned"] = frozenset(fields["owned"])
        call = ConsumerHeartbeat(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        return self.ask("consumer_heartbeat", call)

    def commit(
        self, offset: int, member_id: str = "", generation: int = -1, **fields: Any
    ) -> Answer:
        place = {key: fields.pop(key) for key in ("topic", "partition") if key in fields}
        note = fields.pop("metadata", "")
        one = OffsetToCommit(
            **{"topic": "a", "partition": 0, **place}, offset=offset, metadata=note
        )
        call = CommitOffsets(
            group_id=GROUP, member_id=member_id, generation=generation, offsets=[one], **fields
        )
        return self.ask("offsets.commit", call)

    # Questions

    def committed(self, topic: str = "a", partition: int = 0) -> int | None:
        known = self.coordinator.offsets.fetch(GROUP).get(topic, {})
        return known[partition].offset if partition in known else None

    @property
    def state(self) -> GroupState:
        return self.coordinator.describe_group(GROUP).state

    # Whole dances

    def settle_classic(self, *member_ids: str, **fields: Any) -> int:
        """Let these members, and nobody else, form a group; return its generation."""
        waiting = {each: self.join("", new=each, **fields) for each in member_ids[:1]}
        for each in member_ids[1:]:
            self.sync_all(waiting)
            newcomer = self.join("", new=each, **fields)
            waiting = {known: self.join(known, **fields) for known in waiting}
            waiting[each] = newcomer
        return self.sync_all(waiting)

    def sync_all(self, joined: dict[str, Answer]) -> int:
        """Everybody syncs, the leader last; the assignment of a member is its own name."""
        first = next(iter(joined.values())).result
        shares = {each: each.encode() for each in joined}
        for each in sorted(joined, key=lambda each: each == first.leader_id):
            is_leader = each == first.leader_id
            self.sync(each, first.generation, assignments=shares if is_leader else {})
        return int(first.generation)


def partitions(topic: str, *numbers: int) -> set[Partition]:
    return {(topic, number) for number in numbers}


def public_state(coordinator: Coordinator) -> list[Any]:
    """All that can be seen of a coordinator, to compare before and after a reload."""
    groups = sorted(coordinator.list_groups(), key=lambda group: group.group_id)
    return [
        (
            msgspec.to_builtins(coordinator.describe_group(group.group_id), enc_hook=sorted),
            coordinator.offsets.fetch(group.group_id),
        )
        for group in groups
    ]
