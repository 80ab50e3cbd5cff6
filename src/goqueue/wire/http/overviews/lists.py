"""Pages of topics and groups, sorted and filtered by the broker."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from goqueue.broker.gate.areas.overviews.figures import (
    GroupFigures,
    GroupKind,
    GroupListPage,
    GroupSelection,
    TopicFigures,
    TopicListPage,
    TopicSelection,
)
from goqueue.broker.gate.areas.overviews.paging import Paging
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import groups as group_bodies
from goqueue.wire.http.bodies import topics as topic_bodies
from goqueue.wire.http.fields import MESSAGES_MAX, Order
from goqueue.wire.http.handlers.topics import listed

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_Key = tuple[float, str]


def paging(limit: int | None, order: Order, cursor: str) -> Paging:
    """Return which page a query wants."""
    return Paging(
        MESSAGES_MAX if limit is None else limit,
        order == "desc",
        read_cursor(cursor) if cursor else None,
    )


def cursor_of(value: float, name: str) -> str:
    """Return the cursor of the page after a row."""
    return urlsafe_b64encode(msgspec.json.encode((value, name))).decode("ascii").rstrip("=")


def read_cursor(text: str) -> _Key:
    """Return the value and the name of the row before a page."""
    try:
        value, name = msgspec.json.decode(
            urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=tuple[float, str]
        )
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidField("The cursor is not one of a response.", field="cursor") from None
    return value, name


async def topics(
    front: FrontEnd, call: Call, query: topic_bodies.ListTopics
) -> topic_bodies.Topics:
    """A page of topics."""
    page = await front.gate.figures.topics(
        call.session,
        selection=TopicSelection(query.prefix, query.match.lower(), query.internal),
        sort=query.sort,
        paging=paging(query.limit, query.order, query.cursor),
        with_figures=query.stats,
    )
    return topic_bodies.Topics(
        topics=[listed(one.topic, _topic_stats(one.figures)) for one in page.rows],
        cursor=_next(page, [(one.value, one.topic.name) for one in page.rows]),
        total=page.total,
        missing_nodes=page.missing_nodes,
    )


async def groups(
    front: FrontEnd, call: Call, query: group_bodies.ListGroups
) -> group_bodies.Groups:
    """A page of groups."""
    page = await front.gate.figures.groups(
        call.session,
        selection=GroupSelection(query.prefix, query.match.lower(), query.kind, query.state),
        sort=query.sort,
        paging=paging(query.limit, query.order, query.cursor),
        with_figures=query.stats,
    )
    shares = await share_groups(front, call, [(one.name, one.kind) for one in page.rows])
    rows = [
        group_bodies.Group(
            name=one.name,
            kind=one.kind,
            state=one.state,
            share=one.name in shares,
            stats=UNSET if one.figures is None else group_stats(one.figures, shares.get(one.name)),
        )
        for one in page.rows
    ]
    return group_bodies.Groups(
        groups=rows,
        cursor=_next(page, [(one.value, one.name) for one in page.rows]),
        total=page.total,
        missing_nodes=page.missing_nodes,
    )


async def share_groups(
    front: FrontEnd, call: Call, groups: Sequence[tuple[str, GroupKind]]
) -> Mapping[str, int]:
    """Return how many members those of these groups have that are share groups."""
    queues = [name for name, kind in groups if kind == "queue"]
    if not queues:
        return {}
    return await front.gate.figures.share_groups(call.session, names=queues)


def _next(page: TopicListPage | GroupListPage, keys: list[_Key]) -> str:
    return "" if page.is_last or not keys else cursor_of(*keys[-1])


def _topic_stats(found: TopicFigures | None) -> topic_bodies.TopicStats | msgspec.UnsetType:
    if found is None:
        return UNSET
    return topic_bodies.TopicStats(
        messages=found.messages,
        bytes=found.size,
        in_per_s=round(found.in_per_s, 3),
        in_bytes_per_s=round(found.in_bytes_per_s, 1),
        out_per_s=round(found.out_per_s, 3),
        out_bytes_per_s=round(found.out_bytes_per_s, 1),
        groups=found.groups,
        lag=found.lag,
    )


def group_stats(found: GroupFigures, share_members: int | None = None) -> group_bodies.GroupStats:
    return group_bodies.GroupStats(
        members=found.members if share_members is None else share_members,
        topics=found.topics,
        lag=found.lag,
        lag_ms=found.lag_ms,
        in_flight=found.in_flight,
    )
