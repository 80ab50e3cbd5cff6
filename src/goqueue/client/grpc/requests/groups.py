"""Groups of both kinds: create, describe, configure, reset and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from goqueue.client.grpc.messages import position_of
from goqueue.client.grpc.request import call, nothing, series
from goqueue.client.http.group_results import QueueGroup, QueueGroupSettings, StreamGroup
from goqueue.client.http.moments import Position
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.requests import groups as http
from goqueue.client.http.steps import Steps
from goqueue.wire.grpc.messages import group_service_pb2 as wire
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import offset_service_pb2 as offsets
from goqueue.wire.http.bodies.groups import (
    CommittedOffset,
    Group,
    GroupKind,
    GroupMember,
    Lag,
    PartitionLag,
    ResetOffset,
    TopicPartitions,
)

PAGE_SIZE = 1000
_KINDS: dict[GroupKind, wire.GroupKind] = {
    "stream": wire.GROUP_KIND_STREAM,
    "queue": wire.GROUP_KIND_QUEUE,
}
_DEFAULTS = dict.fromkeys(QueueGroupSettings.__struct_fields__, None)


class GroupRequests(http.GroupRequests):
    def list_all(self, *, kind: GroupKind | None = None, prefix: str = "") -> Request[list[Group]]:
        def steps() -> Steps[list[Group]]:
            found: list[Group] = []
            token = ""
            while True:
                request = wire.ListGroupsRequest(
                    page_size=PAGE_SIZE,
                    page_token=token,
                    prefix=prefix,
                    kind=None if kind is None else _KINDS[kind],
                )
                page: wire.ListGroupsResponse = yield call(
                    "GroupService/ListGroups", request, wire.ListGroupsResponse, lambda one: one
                )
                found += [
                    Group(name=one.name, kind=_kind(one.kind), state=one.state)
                    for one in page.groups
                ]
                token = page.next_page_token
                if not token:
                    return found

        return series(steps)

    def put_queue(
        self, group: str, settings: Mapping[str, object] | None = None
    ) -> Request[QueueGroup]:
        # The call changes what it is given, so the others are reset by name.
        return self._put(group, {} if settings is None else {**_DEFAULTS, **settings})

    def configure_queue(self, group: str, settings: Mapping[str, object]) -> Request[QueueGroup]:
        def steps() -> Steps[QueueGroup]:
            yield self.describe(group)  # the call would create a group that does not exist
            found: QueueGroup = yield self._put(group, settings)
            return found

        return series(steps)

    def describe(self, group: str) -> Request[QueueGroup | StreamGroup]:
        return call(
            "GroupService/GetGroup",
            wire.GetGroupRequest(group=group),
            wire.GetGroupResponse,
            _group,
        )

    def delete(self, group: str) -> Request[None]:
        return call(
            "GroupService/DeleteGroup",
            wire.DeleteGroupRequest(group=group),
            wire.DeleteGroupResponse,
            nothing,
            repeat=Repeat.AMBIGUOUS,
        )

    def lag(self, group: str) -> Request[Lag]:
        return call(
            "GroupService/GetLag",
            wire.GetLagRequest(group=group),
            wire.GetLagResponse,
            lambda response: _lag(group, response),
        )

    def offsets(self, group: str) -> Request[list[CommittedOffset]]:
        return call(
            "OffsetService/FetchOffsets",
            offsets.FetchOffsetsRequest(group=group),
            offsets.FetchOffsetsResponse,
            _committed,
        )

    def reset(
        self,
        group: str,
        topic: str,
        to: Position,
        *,
        partitions: Iterable[int] | None = None,
        dry_run: bool = False,
    ) -> Request[list[ResetOffset]]:
        request = offsets.ResetOffsetsRequest(
            group=group,
            topic=topic,
            partitions=list(partitions or ()),
            to=position_of(to),
            dry_run=dry_run,
        )
        return call("OffsetService/ResetOffsets", request, offsets.ResetOffsetsResponse, _reset)

    def _put(self, group: str, settings: Mapping[str, object]) -> Request[QueueGroup]:
        given = {name: msgspec.json.encode(one).decode() for name, one in settings.items()}

        def steps() -> Steps[QueueGroup]:
            yield call(
                "GroupService/PutQueueGroup",
                wire.PutQueueGroupRequest(group=group, settings=given),
                wire.PutQueueGroupResponse,
                nothing,
            )
            found: QueueGroup = yield self.describe(group)
            return found

        return series(steps)


def _kind(kind: int) -> GroupKind:
    return "queue" if kind == wire.GROUP_KIND_QUEUE else "stream"


def _group(response: wire.GetGroupResponse) -> QueueGroup | StreamGroup:
    if response.group.kind == wire.GROUP_KIND_QUEUE:
        given = {name: msgspec.json.decode(text) for name, text in response.settings.items()}
        return QueueGroup(
            name=response.group.name,
            settings=msgspec.convert(given, QueueGroupSettings),
            topics=tuple(response.topics),
        )
    return StreamGroup(
        name=response.group.name,
        state=response.group.state,
        epoch=response.epoch,
        assignor=response.assignor,
        members=tuple(map(_member, response.members)),
    )


def _member(one: wire.GroupMember) -> GroupMember:
    return GroupMember(
        member_id=one.member_id,
        instance_id=one.instance_id or None,
        client_host=one.client_host,
        member_epoch=one.member_epoch,
        subscribed_topics=list(one.subscribed_topics),
        topic_pattern=one.topic_pattern,
        assigned=_topics(one.assigned),
        target=[],
    )


def _topics(assigned: Iterable[shared.TopicPartitions]) -> list[TopicPartitions]:
    return [TopicPartitions(topic=one.topic, partitions=list(one.partitions)) for one in assigned]


def _lag(group: str, response: wire.GetLagResponse) -> Lag:
    return Lag(
        group=group,
        kind=_kind(response.kind),
        lag=response.lag,
        partitions=[
            PartitionLag(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset if one.HasField("offset") else None,
                end_offset=one.end_offset,
                lag=one.lag,
            )
            for one in response.partitions
        ],
    )


def _committed(response: offsets.FetchOffsetsResponse) -> list[CommittedOffset]:
    return [
        CommittedOffset(
            topic=one.topic,
            partition=one.partition,
            offset=one.offset,
            metadata=one.metadata,
            committed_at=one.committed_at_ms,
        )
        for one in response.offsets
    ]


def _reset(response: offsets.ResetOffsetsResponse) -> list[ResetOffset]:
    return [
        ResetOffset(
            partition=one.partition,
            offset_before=one.offset_before if one.HasField("offset_before") else None,
            offset=one.offset,
        )
        for one in response.offsets
    ]
