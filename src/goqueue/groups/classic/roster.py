"""The members of a classic group, and the protocols they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.groups.calls import Join
from goqueue.groups.classic.embedded_protocol import PROTOCOL_TYPE, decode_subscription
from goqueue.groups.effects import Token
from goqueue.groups.records import MemberRecord
from goqueue.groups.refusals import fenced_instance
from goqueue.groups.results import JoinedMember, MemberDescription
from goqueue.groups.timers import Timer
from goqueue.model.errors import MalformedRequest, UnknownMember

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    session: Timer
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False  # has not completed a generation yet
    epoch_before: int | None = None  # its epoch from when the group was a consumer group

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def metadata_for(self, protocol_name: str) -> bytes:
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def to_record(self) -> MemberRecord:
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
            epoch=self.epoch_before or 0,
        )


class Roster:
    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}  # instance id to member id
        self.leader_id = ""
        self._listed: Counter[str] = Counter()  # number of members by listed protocol
        self._waiting: set[ClassicMember] = set()  # members with a waiting join

    def __len__(self) -> int:
        return len(self.members)

    @property
    def have_all_joined(self) -> bool:
        """Whether every member has a waiting join."""
        return len(self._waiting) == len(self.members)

    def set_join(self, member: ClassicMember, token: Token) -> None:
        """Record a member's join as waiting for its response."""
        member.join_token = token
        self._waiting.add(member)

    def take_join(self, member: ClassicMember) -> Token | None:
        """Take a member's waiting join, to respond to it."""
        token, member.join_token = member.join_token, None
        self._waiting.discard(member)
        return token

    def find(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member with this id; a replaced instance is refused as fenced."""
        if instance_id is not None:
            current_id = self.static.get(instance_id)
            if current_id is None:
                raise UnknownMember(self._group_id, member_id or instance_id)
            if current_id != member_id:
                raise fenced_instance(self._group_id, instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self._group_id, member_id)
        return member

    def find_leaving(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Like `find`, but an administrator may give the instance id alone."""
        if instance_id is not None and not member_id:
            member_id = self.static.get(instance_id, "")
        return self.find(member_id, instance_id)

    def add(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if not self.leader_id:
            self.leader_id = member.member_id
        self._listed.update(member.protocol_names)
        if member.join_token is not None:
            self._waiting.add(member)

    def remove(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        self._unlist(member)
        self._waiting.discard(member)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = ""

    def adopt(self, member: ClassicMember, call: Join) -> None:
        """Update what a member may change from one join to the next."""
        self._unlist(member)
        member.client_id = call.client_id
        member.client_host = call.client_host
        member.session_timeout_ms = call.session_timeout_ms
        member.rebalance_timeout_ms = call.rebalance_timeout_ms
        member.protocols = call.protocols
        self._listed.update(member.protocol_names)

    def _unlist(self, member: ClassicMember) -> None:
        for name in member.protocol_names:
            self._listed[name] -= 1
            if not self._listed[name]:
                del self._listed[name]

    def rename(self, member: ClassicMember, new_member_id: str) -> None:
        """Continue a restarted instance under a new member id."""
        was_leader = self.leader_id == member.member_id
        self.remove(member)
        member.member_id = new_member_id
        self.add(member)
        if was_leader:
            self.leader_id = new_member_id

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it joined, or elect the first member that did."""
        leader = self.members.get(self.leader_id)
        if leader is not None and leader.join_token is not None:
            return True
        joined = next((each for each in self.members.values() if each.join_token is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def share_one_of(self, names: Iterable[str]) -> bool:
        """Whether at least one of these protocols is listed by every member."""
        return any(self._listed[name] == len(self.members) for name in names)

    def common_protocols(self) -> set[str]:
        """The protocols that every member lists."""
        count = len(self.members)
        return {name for name, listed in self._listed.items() if count and listed == count}

    def choose_protocol(self) -> str:
        """Choose by vote: each member votes for the first common protocol on its list."""
        common = self.common_protocols()
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in common)] += 1
        return votes.most_common(1)[0][0]

    def listed_for(self, protocol_name: str) -> tuple[JoinedMember, ...]:
        """The members, as returned to their leader."""
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata_for(protocol_name),
            )
            for member in self.members.values()
        )

    def subscribed_topics(self, protocol_type: str, protocol_name: str) -> frozenset[str] | None:
        """The topics the members subscribe to, or `None` if the format is the client's own."""
        if protocol_type != PROTOCOL_TYPE or not protocol_name:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = read_topics(member.metadata_for(protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def describe(self, protocol_name: str, epoch: int) -> tuple[MemberDescription, ...]:
        """Describe the members. Without a protocol, the group has no valid assignments."""
        return tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                is_classic=True,
                epoch=epoch,
                metadata=member.metadata_for(protocol_name),
                assignment=member.assignment if protocol_name else b"",
            )
            for member in self.members.values()
        )


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """The subscribed topics, or `None` if the format is the client's own."""
    try:
        return frozenset(decode_subscription(metadata).topics)
    except MalformedRequest:
        return None
