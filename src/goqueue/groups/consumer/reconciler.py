"""The members of a consumer group, their target assignment, and how each reaches its target.

Every change raises the group's epoch and computes a target for all. No member stops: each moves to
its target by its own heartbeats, and a partition gets a new owner only when the old one has
released it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from goqueue.groups import limits
from goqueue.groups.assignment.assignors import DEFAULT_ASSIGNOR, SERVER_ASSIGNORS
from goqueue.groups.assignment.partitions import NO_PARTITIONS, Partition, Partitions
from goqueue.groups.assignment.subscriptions import TopicRegex
from goqueue.groups.classic.roster import Protocols
from goqueue.groups.consumer.member import ConsumerMember, next_step
from goqueue.groups.group import Group
from goqueue.groups.metrics import Reason
from goqueue.groups.records import GroupRecord, MemberRecord
from goqueue.groups.refusals import fenced_instance, group_full
from goqueue.groups.results import GroupState, GroupType
from goqueue.groups.timers import NEVER, Timer
from goqueue.model.errors import IllegalGeneration, StaleMemberEpoch, UnknownMember
from goqueue.model.tenants import prefix_of


class Reconciler:
    """Computes the target assignment of the group and moves members to it one by one."""

    def __init__(self, group: Group, *, epoch: int = 0, emptied_at_ms: int = -1) -> None:
        self.group = group
        self.epoch = epoch
        self.target_epoch = epoch
        self.emptied_at_ms = emptied_at_ms
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}  # instance id to member id
        self.owners: dict[Partition, str] = {}  # who holds it, or has still to release it
        self.releases = 0  # incremented whenever partitions become free
        self.behind: set[str] = set()  # members that have not reached their target
        self.regexes: dict[str, TopicRegex] = {}
        self.topics: dict[str, int] = {}  # the subscribed ones that exist, as assigned
        self._classic_count = 0
        self.listed_protocols: Counter[frozenset[str]] = Counter()  # of the classic members
        self._retargeted_at_ms = NEVER
        self._retarget_timer = Timer(self._retarget_postponed)

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        return GroupState.RECONCILING if self.behind else GroupState.STABLE

    @property
    def is_all_classic(self) -> bool:
        """Whether the last member of the consumer protocol is gone and classic ones are left."""
        return 0 < len(self.members) == self._classic_count

    def restore(self, record: GroupRecord, members: Iterable[MemberRecord], now_ms: int) -> None:
        """Restore from the log; every member gets a fresh session."""
        self.epoch = record.epoch
        self.target_epoch = record.target_epoch
        self.emptied_at_ms = record.emptied_at_ms
        self.topics = dict(record.topics)
        for stored in members:
            member = self.new_member(stored.member_id, stored.session_timeout_ms)
            member.load(stored)
            self.add(member)
            self.arm_session(member, now_ms)
            if member.revoking:
                self.arm_rebalance_timer(member, now_ms)
        self.behind = {each.member_id for each in self.members.values() if self._is_behind(each)}
        is_postponed = self.epoch > self.target_epoch
        if self.members and (is_postponed or self._subscribed_counts() != self.topics):
            self.rebalance(Reason.TOPICS_CHANGED, now_ms)

    def close(self) -> None:
        """Stop all timers."""
        self._retarget_timer.cancel()
        for member in self.members.values():
            member.session.cancel()
            member.rebalance_timer.cancel()

    def topics_changed(self, *, added: set[str], removed: set[str], now_ms: int) -> None:
        for regex in self.regexes.values():
            regex.refresh(added=added, removed=removed)
        if self.members and self._subscribed_counts() != self.topics:
            self.rebalance(Reason.TOPICS_CHANGED, now_ms)

    # Members

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member with this id; a replaced instance is refused as fenced."""
        if instance_id is not None:
            current_id = self.static.get(instance_id)
            if current_id is not None and current_id != member_id:
                raise fenced_instance(self.group.group_id, instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self.group.group_id, member_id)
        return member

    def check_member_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch == member.epoch:
            return
        problem = f"Member {member.member_id!r} is at epoch {member.epoch}, not {epoch}."
        raise IllegalGeneration(problem) if member.is_classic else StaleMemberEpoch(problem)

    def check_room(self) -> None:
        """Refuse one more member than the limit."""
        size_max = self.group.settings.size_max
        if limits.is_full(len(self.members), size_max):
            raise group_full(self.group.group_id, size_max)

    def new_member(self, member_id: str, session_timeout_ms: int) -> ConsumerMember:
        member = ConsumerMember(
            member_id=member_id,
            session=Timer(lambda now_ms: self._evict(member, Reason.SESSION_EXPIRED, now_ms)),
            rebalance_timer=Timer(lambda now_ms: self._expire_rebalance(member, now_ms)),
            session_timeout_ms=session_timeout_ms,
        )
        return member

    def add(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for partition in member.held:
            self.owners[partition] = member.member_id
        self._classic_count += member.is_classic
        self._count_protocols(member, 1)
        if member.epoch == 0:
            self.behind.add(member.member_id)  # It gets an epoch even if its target has to wait.
        self.watch_regex(member.regex)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member and release its partitions."""
        member.session.cancel()
        member.rebalance_timer.cancel()
        self.hold(member, NO_PARTITIONS)
        del self.members[member.member_id]
        self._classic_count -= member.is_classic
        self._count_protocols(member, -1)
        self.behind.discard(member.member_id)
        if member.instance_id is not None and self.static[member.instance_id] == member.member_id:
            del self.static[member.instance_id]
        self.group.stage_member(member.member_id, None)

    def change_protocols(self, member: ConsumerMember, protocols: Protocols) -> None:
        """Update the protocols that a classic member lists."""
        is_here = self.members.get(member.member_id) is member
        if is_here:
            self._count_protocols(member, -1)
        member.protocols = protocols
        if is_here:
            self._count_protocols(member, 1)

    def _count_protocols(self, member: ConsumerMember, change: int) -> None:
        if member.is_classic:
            names = frozenset(name for name, _ in member.protocols)
            self.listed_protocols[names] += change
            if not self.listed_protocols[names]:
                del self.listed_protocols[names]

    def restart(self, member: ConsumerMember, member_id: str, protocols: Protocols) -> None:
        """Continue under another member id, or as a member of the other kind, with its state."""
        self.remove(member)
        member.member_id = member_id
        member.protocols = protocols
        member.epoch, member.previous_epoch = 0, -1
        member.revoking = NO_PARTITIONS
        self.add(member)
        self.behind.add(member_id)

    def arm_session(self, member: ConsumerMember, now_ms: int) -> None:
        # The broker sets the session timeout of the consumer protocol, and may change it.
        is_own = member.is_classic
        session_ms = member.session_timeout_ms if is_own else self.group.consumer_session_ms
        self.group.timers.arm(member.session, now_ms + session_ms)

    def arm_rebalance_timer(self, member: ConsumerMember, now_ms: int) -> None:
        if not member.rebalance_timer.is_armed:
            self.group.timers.arm(member.rebalance_timer, now_ms + member.rebalance_timeout_ms)

    def _expire_rebalance(self, member: ConsumerMember, now_ms: int) -> None:
        reason = Reason.JOIN_TIMEOUT if member.is_classic else Reason.REVOCATION_TIMEOUT
        self._evict(member, reason, now_ms)

    def _evict(self, member: ConsumerMember, reason: Reason, now_ms: int) -> None:
        self.group.rebalances.timeouts += 1
        self.remove(member)
        self.rebalance(reason, now_ms)

    # Targets

    def rebalance(self, reason: Reason, now_ms: int) -> None:
        """Compute a new target for all members, at once or, in a large group, after a delay."""
        self.epoch += 1
        is_postponed = self._postpone(now_ms)
        self.group.rebalances.begin(reason, now_ms, is_postponed=is_postponed)
        if is_postponed:
            self.store_group()
        else:
            self._retarget(now_ms)

    def _postpone(self, now_ms: int) -> bool:
        """Whether to batch recent changes into one assignment."""
        size = len(self.members)
        due_ms = self._retargeted_at_ms + size * limits.ASSIGNMENT_US_PER_MEMBER // 1000
        if size <= limits.ASSIGNED_AT_ONCE_MAX or now_ms >= due_ms:
            self._retarget_timer.cancel()
            return False
        if not self._retarget_timer.is_armed:
            self.group.timers.arm(self._retarget_timer, due_ms)
        return True

    def _retarget_postponed(self, now_ms: int) -> None:
        self.group.rebalances.resume()
        self._retarget(now_ms)

    def _retarget(self, now_ms: int) -> None:
        self._retargeted_at_ms = now_ms
        self._forget_unused_regexes()
        self.topics = self._subscribed_counts()
        for member, target in self._assign():
            if target != member.target:
                self.group.rebalances.move(len(target - member.target))
                member.target = target
                self.group.stage_member(member.member_id, member.to_record())
        self.target_epoch = self.epoch
        self.behind = {each.member_id for each in self.members.values() if self._is_behind(each)}
        if not self.members:
            self.emptied_at_ms = now_ms
        self.store_group()
        self.finish_if_settled(now_ms)

    def _assign(self) -> list[tuple[ConsumerMember, Partitions]]:
        # Sorting by a name that survives restarts keeps the order, and so the result, stable.
        members = sorted(self.members.values(), key=lambda each: each.instance_id or each.member_id)
        assign = SERVER_ASSIGNORS[self.preferred_assignor()]
        targets = assign(
            {each.member_id: self._topics_of(each) for each in members},
            self.topics,
            {each.member_id: each.target for each in members},
        )
        return [(each, targets[each.member_id]) for each in members]

    def preferred_assignor(self) -> str:
        """The assignor that most members request."""
        asked = Counter(each.assignor for each in self.members.values() if each.assignor)
        return asked.most_common(1)[0][0] if asked else DEFAULT_ASSIGNOR

    def _topics_of(self, member: ConsumerMember) -> frozenset[str]:
        matched = self.regexes[member.regex].topics if member.regex else frozenset()
        return matched | frozenset(member.topics)

    def _subscribed_counts(self) -> dict[str, int]:
        known = self.group.context.topics
        subscribed = {topic for each in self.members.values() for topic in self._topics_of(each)}
        return {topic: known[topic] for topic in sorted(subscribed) if topic in known}

    def watch_regex(self, text: str) -> None:
        if text and text not in self.regexes:
            self.regexes[text] = TopicRegex(
                text, self.group.context.topics, tenant_prefix=prefix_of(self.group.group_id)
            )

    def _forget_unused_regexes(self) -> None:
        if self.regexes:
            used = {each.regex for each in self.members.values()}
            self.regexes = {text: regex for text, regex in self.regexes.items() if text in used}

    # Reconciliation

    def advance(
        self, member: ConsumerMember, reason: Reason | None, owned: Partitions | None, now_ms: int
    ) -> None:
        """Rebalance if the member changed something, move it on, and renew its deadlines."""
        if reason is not None:
            self.group.stage_member(member.member_id, member.to_record())
            self.rebalance(reason, now_ms)
        self.reconcile(member, owned, now_ms)
        self.arm_session(member, now_ms)
        if member.revoking:
            self.arm_rebalance_timer(member, now_ms)
        else:
            member.rebalance_timer.cancel()

    def reconcile(self, member: ConsumerMember, owned: Partitions | None, now_ms: int) -> None:
        """Move the member one step towards its target."""
        if member.member_id not in self.behind:
            return
        if owned is None and not member.revoking and self._cannot_advance(member):
            return
        step = next_step(member, target_epoch=self.target_epoch, owned=owned, owners=self.owners)
        member.releases_seen = self.releases
        if (member.epoch, member.assigned, member.revoking) != step:
            if step.epoch != member.epoch:
                member.previous_epoch, member.epoch = member.epoch, step.epoch
            self.hold(member, step.assigned | step.revoking)
            member.assigned, member.revoking = step.assigned, step.revoking
            self.group.stage_member(member.member_id, member.to_record())
        if not self._is_behind(member):
            self.behind.discard(member.member_id)
            self.finish_if_settled(now_ms)

    def _cannot_advance(self, member: ConsumerMember) -> bool:
        """Whether no partition was released since the member's last check, so none can be free."""
        return member.epoch == self.target_epoch and member.releases_seen == self.releases

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether every partition it still lacks is held by another member."""
        lacking = member.target - member.assigned
        return all(self.owners.get(each, member.member_id) != member.member_id for each in lacking)

    def hold(self, member: ConsumerMember, held: Partitions) -> None:
        """Record which partitions a member holds; the rest of what it held becomes free."""
        released = member.held - held
        for partition in released:
            self.owners.pop(partition, None)
        for partition in held - member.held:
            self.owners[partition] = member.member_id
        self.releases += bool(released)

    def _is_behind(self, member: ConsumerMember) -> bool:
        if member.has_left:
            return False
        is_there = member.epoch == self.target_epoch and member.assigned == member.target
        return bool(member.revoking) or not is_there

    def finish_if_settled(self, now_ms: int) -> None:
        """End the rebalance when all members have reached their targets."""
        if not self.behind and self.epoch == self.target_epoch:
            self.group.rebalances.finish(now_ms)

    def store_group(self) -> None:
        self.group.stage_group(
            GroupRecord(
                type=GroupType.CONSUMER,
                epoch=self.epoch,
                target_epoch=self.target_epoch,
                protocol_type="consumer",
                topics=self.topics,
                emptied_at_ms=self.emptied_at_ms,
            )
        )
