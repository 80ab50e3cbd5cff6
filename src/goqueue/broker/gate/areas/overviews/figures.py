"""Lists of topics and groups with figures: a page is chosen first, then its figures are computed.

Only a list that is sorted by a figure needs that figure of everything; then each node sends one
number per topic, or its own first groups.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from goqueue.broker.gate.areas.groups import GroupKind
from goqueue.broker.gate.areas.overviews.paging import Key, Paging, choose
from goqueue.broker.gate.areas.topics import TopicSummary, topic_summary
from goqueue.broker.gate.operation import Area, Arguments, cluster, named_by_owner, operation
from goqueue.broker.history.figures import GroupFigures, TopicFigures
from goqueue.loop.turns import turn
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, NamePrefix, Text, TopicName, plain_name

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.topics.topics import Topic
    from goqueue.groups.group import Group

__all__ = [
    "QUEUE_STATE",
    "FiguresArea",
    "GroupFigures",
    "GroupKind",
    "GroupListPage",
    "GroupRow",
    "GroupSelection",
    "GroupSort",
    "NodeDisk",
    "TopicFigures",
    "TopicListPage",
    "TopicRow",
    "TopicSelection",
    "TopicSort",
    "Totals",
]

TopicFigure = Literal[
    "messages",
    "bytes",
    "in_per_s",
    "in_bytes_per_s",
    "out_per_s",
    "out_bytes_per_s",
    "groups",
    "lag",
]
TopicSort = Literal["name", "partitions"] | TopicFigure
GroupSort = Literal["name", "lag", "lag_ms", "members", "topics", "in_flight"]

_LARGEST = frozenset({"lag"})  # figures of which the largest counts, and not the sum
_PER_SLICE = 500


class TopicSelection(NamedTuple):
    """Which topics a list contains."""

    prefix: NamePrefix = ""
    match: Text = ""  # a part of the name, in lower case
    with_internal: bool = False


class GroupSelection(NamedTuple):
    """Which groups a list contains."""

    prefix: NamePrefix = ""
    match: Text = ""  # a part of the name, in lower case
    kind: GroupKind | None = None
    state: Text = ""  # of stream groups; queue groups are always stable


class TopicRow(NamedTuple):
    """A topic in a list, with what it is sorted by."""

    topic: TopicSummary
    figures: TopicFigures | None
    value: float


class TopicListPage(NamedTuple):
    """A page of topics. Figures lack those of the missing nodes."""

    rows: list[TopicRow]
    is_last: bool
    total: int
    missing_nodes: list[int]


class GroupRow(NamedTuple):
    """A group in a list, with what it is sorted by."""

    name: GroupName
    kind: GroupKind
    state: Text
    type: Text
    figures: GroupFigures | None
    value: float


class GroupListPage(NamedTuple):
    """A page of groups. Groups of the missing nodes are not in it."""

    rows: list[GroupRow]
    is_last: bool
    total: int
    missing_nodes: list[int]


class TopicParts(NamedTuple):
    """The figures that some nodes have."""

    nodes: list[int]
    figures: list[TopicFigures]


class TopicValues(NamedTuple):
    """One figure of each topic, as far as some nodes have it."""

    nodes: list[int]
    values: dict[TopicName, float]


class GroupParts(NamedTuple):
    """The first groups that some nodes have, and how many there are."""

    nodes: list[int]
    rows: list[GroupRow]
    streams: int
    queues: int


class NodeDisk(NamedTuple):
    """What a node keeps, and the room that it has."""

    node: int
    size: int  # of its replicas
    free: int
    total: int


class Totals(NamedTuple):
    """What some nodes have together."""

    disks: list[NodeDisk]  # of the nodes that have answered
    groups: int
    lagging: int  # groups that have messages left
    lag: int


def _merge_totals(_: Arguments, answers: Sequence[Totals]) -> Totals:
    return Totals(
        sorted(disk for one in answers for disk in one.disks),
        sum(one.groups for one in answers),
        sum(one.lagging for one in answers),
        sum(one.lag for one in answers),
    )


def _merge_parts(_: Arguments, answers: Sequence[TopicParts]) -> TopicParts:
    """Add up what the nodes have; every node has other partitions and groups."""
    found: dict[str, TopicFigures] = {}
    for answer in answers:
        for one in answer.figures:
            known = found.get(one.name)
            found[one.name] = one if known is None else _sum(known, one)
    return TopicParts([node for one in answers for node in one.nodes], list(found.values()))


def _sum(one: TopicFigures, other: TopicFigures) -> TopicFigures:
    return TopicFigures(
        one.name,
        one.messages + other.messages,
        one.size + other.size,
        one.in_per_s + other.in_per_s,
        one.in_bytes_per_s + other.in_bytes_per_s,
        one.out_per_s + other.out_per_s,
        one.out_bytes_per_s + other.out_bytes_per_s,
        one.groups + other.groups,
        max(one.lag, other.lag),
    )


def _merge_values(arguments: Arguments, answers: Sequence[TopicValues]) -> TopicValues:
    """Add up a figure, or choose the largest."""
    nodes = [node for one in answers for node in one.nodes]
    values = dict(answers[0].values)
    is_largest = arguments["figure"] in _LARGEST
    for answer in answers[1:]:
        for name, value in answer.values.items():
            known = values.get(name, 0)
            values[name] = max(known, value) if is_largest else known + value
    return TopicValues(nodes, values)


def _merge_groups(arguments: Arguments, answers: Sequence[GroupParts]) -> GroupParts:
    """Merge the first groups of all nodes: every node knows the queue groups, one its figures."""
    paging: Paging = arguments["paging"]
    rows: dict[tuple[str, str], GroupRow] = {}
    for answer in answers:
        for row in answer.rows:
            key = row.name, row.kind
            if key not in rows or row.figures is not None:
                rows[key] = row
    pick = heapq.nlargest if paging.is_descending else heapq.nsmallest
    return GroupParts(
        [node for one in answers for node in one.nodes],
        pick(paging.limit, rows.values(), key=lambda one: (one.value, one.name, one.kind)),
        sum(one.streams for one in answers),
        max(one.queues for one in answers),
    )


def _join_members(_: Arguments, answers: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: count for one in answers for name, count in one.items()}


class FiguresArea(Area):
    """Lists of topics and groups with figures."""

    # Everything

    @operation(Action.DESCRIBE, cluster, is_reading=True)
    async def totals(self, session: Session) -> tuple[Totals, list[int]]:
        """Return what all nodes have together, and the missing nodes."""
        found = await self.totals_here(session)
        return found, silent_nodes(self._broker, [one.node for one in found.disks])

    @operation(Action.DESCRIBE, cluster, merge=_merge_totals, is_reading=True, is_partial=True)
    async def totals_here(self, session: Session) -> Totals:
        """Return what a node has: a part of `totals`."""
        broker, size = self._broker, 0
        for number, topic in enumerate(list(broker.topics)):
            if number % _PER_SLICE == _PER_SLICE - 1:
                await turn(broker.clock)
            size += sum(one.log.size for one in topic.partitions if broker.topics.keeps(one))
        all_figures = await broker.measuring.history.figures.all()
        lags = [one.lag for one in all_figures.groups.values()]
        disk = NodeDisk(broker.node_id, size, broker.free_bytes(), broker.total_bytes())
        return Totals([disk], len(lags), sum(one > 0 for one in lags), sum(lags))

    # Topics

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def topics(
        self,
        session: Session,
        *,
        selection: TopicSelection,
        sort: TopicSort,
        paging: Paging,
        with_figures: bool,
    ) -> TopicListPage:
        """Return a page of the topics that the session may describe, with their figures."""
        serving = answered = serving_nodes(self._broker)
        values: Mapping[str, float] = {}
        if sort != "name" and sort != "partitions":
            all_values = await self.topic_values(session, figure=sort)
            answered, values = answered.intersection(all_values.nodes), all_values.values
        keys = self._keys(session, selection, sort, values)
        chosen = await choose(self._broker.clock, keys, paging.with_one_more())
        page = chosen.keys[: paging.limit]
        found = [(self._broker.topics.find(name), value) for value, name in page]
        figures: dict[str, TopicFigures] = {}
        if with_figures and page:
            parts = await self.topics_here(session, names=[name for _, name in page])
            answered = answered.intersection(parts.nodes)
            figures = {one.name: one for one in parts.figures}
        rows = [
            TopicRow(topic_summary(self._broker, topic), figures.get(topic.name), value)
            for topic, value in found
            if topic is not None
        ]
        return TopicListPage(
            rows,
            len(chosen.keys) <= paging.limit,
            chosen.total,
            sorted(serving - answered),
        )

    @operation(
        Action.DESCRIBE, named_by_owner, merge=_merge_parts, is_reading=True, is_partial=True
    )
    async def topics_here(self, session: Session, *, names: Sequence[TopicName]) -> TopicParts:
        """Return the figures that a node has of topics: a part of `topics`."""
        history = self._broker.measuring.history
        readers = await history.figures.readers()
        figures = []
        for number, name in enumerate(names):
            if number % _PER_SLICE == _PER_SLICE - 1:
                await turn(self._broker.clock)
            topic = self._broker.topics.find(name)
            if topic is not None and self._sees_topic(session, name):
                one = history.figures.topic(topic)
                rates = history.recorder.rates(name)
                figures.append(TopicFigures(*one[:3], *rates, *readers.get(name, (0, 0))))
        return TopicParts([self._broker.node_id], figures)

    @operation(
        Action.DESCRIBE, named_by_owner, merge=_merge_values, is_reading=True, is_partial=True
    )
    async def topic_values(self, session: Session, *, figure: TopicFigure) -> TopicValues:
        """Return one figure of all topics on a node: a part of `topics`."""
        history = self._broker.measuring.history
        values: dict[str, float] = {}
        if figure in ("groups", "lag"):
            readers = await history.figures.readers()
            values = {name: getattr(each, figure) for name, each in readers.items()}
        elif figure in ("messages", "bytes"):
            for number, topic in enumerate(list(self._broker.topics)):
                if number % _PER_SLICE == _PER_SLICE - 1:
                    await turn(self._broker.clock)
                one = history.figures.topic(topic)
                values[topic.name] = one.messages if figure == "messages" else one.size
        else:
            rates = history.recorder.topics_with_rates()
            values = {name: getattr(each, figure) for name, each in rates.items()}
        return TopicValues(
            [self._broker.node_id],
            {name: value for name, value in values.items() if self._sees_topic(session, name)},
        )

    def _keys(
        self,
        session: Session,
        selection: TopicSelection,
        sort: TopicSort,
        values: Mapping[str, float],
    ) -> Iterator[Key | None]:
        """Yield a key for each topic that is in the list, and None for each other."""
        is_open = self._authoriser.is_open(session)
        for topic in list(self._broker.topics):
            if not _is_selected(topic, selection):
                yield None
            elif is_open or self._sees_topic(session, topic.name):
                value = topic.partition_count if sort == "partitions" else 0
                yield values.get(topic.name, value), topic.name

    # Groups

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def groups(
        self,
        session: Session,
        *,
        selection: GroupSelection,
        sort: GroupSort,
        paging: Paging,
        with_figures: bool,
    ) -> GroupListPage:
        """Return a page of the groups that the session may describe, with their figures."""
        serving = serving_nodes(self._broker)
        found = await self.groups_here(
            session,
            selection=selection,
            sort=sort,
            paging=paging.with_one_more(),
            with_figures=with_figures,
        )
        return GroupListPage(
            found.rows[: paging.limit],
            len(found.rows) <= paging.limit,
            found.streams + found.queues,
            sorted(serving.difference(found.nodes)),
        )

    @operation(
        Action.DESCRIBE, named_by_owner, merge=_merge_groups, is_reading=True, is_partial=True
    )
    async def groups_here(
        self,
        session: Session,
        *,
        selection: GroupSelection,
        sort: GroupSort,
        paging: Paging,
        with_figures: bool,
    ) -> GroupParts:
        """Return the first groups that a node has: a part of `groups`."""
        figures: Mapping[str, GroupFigures] = {}
        all_figures = self._broker.measuring.history.figures
        if sort != "name":
            figures = (await all_figures.all()).groups
        values = _values(figures, sort)
        sees_all = self._may(session, Action.DESCRIBE, CLUSTER)
        listing = _GroupListing(
            selection, values, None if sees_all else partial(self._sees_group, session)
        )
        streams = [] if selection.kind == "queue" else all_figures.stream_groups()
        chosen = await choose(
            self._broker.clock, listing.keys(streams, self._queues(selection, sort)), paging
        )
        if with_figures and sort == "name":
            figures = await all_figures.of([name for _, name in chosen.keys])
        rows = [
            listing.row(name, value, figures.get(name) if with_figures else None)
            for value, name in chosen.keys
        ]
        return GroupParts(
            [self._broker.node_id], rows, listing.streams, chosen.total - listing.streams
        )

    @operation(
        Action.DESCRIBE, named_by_owner, merge=_join_members, is_reading=True, is_partial=True
    )
    async def share_groups(
        self, session: Session, *, names: Sequence[GroupName]
    ) -> dict[GroupName, int]:
        """Return how many members of the protocol of share groups those with any have.

        Members are where their group is coordinated, which need not be where its queues are.
        """
        counts = {one: self._broker.share_members.count(one) for one in names}
        return {
            name: count
            for name, count in counts.items()
            if count and self._sees_group(session, name)
        }

    def _queues(self, selection: GroupSelection, sort: GroupSort) -> list[str]:
        """Return the queue groups that this node lists: all, or those whose figures it has."""
        known = self._broker.queues.groups
        if selection.kind == "stream":
            return []
        names = [one.name for one in known.all()]
        if sort == "name":
            return names
        return [one for one in names if known.owner_of(one) == self._broker.node_id]

    def _sees_group(self, session: Session, name: str) -> bool:
        return self._may(session, Action.DESCRIBE, Resource(ResourceKind.GROUP, name))


class _GroupListing:
    """The groups that a list contains, and what it shows of each."""

    def __init__(
        self,
        selection: GroupSelection,
        values: Mapping[str, float],
        sees: Callable[[str], bool] | None,
    ) -> None:
        self.streams = 0  # of those in the list
        self._selection = selection
        self._values = values
        self._sees = sees
        self._has_all_names = not selection.prefix and not selection.match and sees is None
        self._known: dict[str, Group] = {}

    def keys(self, streams: Iterable[Group], queues: Iterable[str]) -> Iterator[Key | None]:
        """Yield a key for each group that is in the list, and None for each other."""
        wanted, value = self._selection.state.lower(), self._values.get
        for group in streams:
            name = group.group_id
            if (self._has_all_names or self._is_named(name)) and (
                not wanted or wanted == group.membership.state.lower()
            ):
                self.streams += 1
                self._known[name] = group
                yield value(name, 0), name
            else:
                yield None
        is_wanted = not wanted or wanted == QUEUE_STATE.lower()
        for name in queues:
            yield (value(name, 0), name) if is_wanted and self._is_named(name) else None

    def _is_named(self, name: str) -> bool:
        prefix, match = self._selection.prefix, self._selection.match
        return (
            name.startswith(prefix)
            and (not match or match in plain_name(name).lower())
            and (self._sees is None or self._sees(name))
        )

    def row(self, name: str, value: float, figures: GroupFigures | None) -> GroupRow:
        group = self._known.get(name)
        if group is None:
            return GroupRow(name, "queue", QUEUE_STATE, "", figures, value)
        state, kind = group.membership.state, group.membership.type
        return GroupRow(name, "stream", str(state), str(kind), figures, value)


QUEUE_STATE = "Stable"  # a queue group has no membership that could change


def serving_nodes(broker: Broker) -> set[int]:
    """Return the nodes without whose answers a list of the cluster is not whole.

    Other nodes serve what a stopped one did, except for partitions that have no leader without it.
    To be called before the nodes are asked: one that stops meanwhile has not answered, and those
    that serve in its place may have answered before they did.
    """
    if broker.cluster is None:
        return {broker.node_id}
    nodes = {one.id for one in broker.cluster.nodes()}
    for partition in broker.cluster.quorum.metadata.partitions.leaderless():
        nodes.update(partition.in_sync)
    return nodes


def silent_nodes(broker: Broker, answered: Sequence[int]) -> list[int]:
    """Return the registered nodes that have not answered, also those that are stopped."""
    if broker.cluster is None:
        return []
    return sorted(set(broker.cluster.quorum.metadata.nodes) - set(answered))


def _is_selected(topic: Topic, selection: TopicSelection) -> bool:
    return (
        topic.name.startswith(selection.prefix)
        and (selection.with_internal or not topic.is_internal)
        and (not selection.match or selection.match in plain_name(topic.name).lower())
    )


def _values(figures: Mapping[str, GroupFigures], sort: GroupSort) -> dict[str, float]:
    if sort == "name":
        return {}
    return {name: getattr(one, sort) or 0 for name, one in figures.items()}
