"""The recent past of the cluster, a topic or a group, and what the caller may do."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from goqueue.broker.gate.areas.overviews.history import KEPT_MS, Period
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.moments import EARLIEST, LATEST, time_ms
from goqueue.wire.http.overviews import bodies

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_KINDS = {one.lower(): one for one in ResourceKind if one is not ResourceKind.CLUSTER}
_ACTIONS = [one for one in Action if one is not Action.ALL]
_DIGITS = 7  # of values, which are kept with 24 bits


async def history(front: FrontEnd, call: Call, query: bodies.ReadHistory) -> bodies.History:
    period = _period(front, query)
    gate = front.gate.history
    if query.topic is not None and query.group is not None:
        raise InvalidField("Give either a topic or a group.", field="group")
    if query.topic is not None:
        found = await gate.of_topic(call.session, topic=query.topic, period=period)
    elif query.group is not None:
        found = await gate.of_group(call.session, group=query.group, period=period)
    else:
        found = await gate.of_cluster(call.session, period=period, node=query.node)
    missing = gate.missing(call.session, answered=found.nodes)
    count = max((len(one) for one in found.series.values()), default=0)
    return bodies.History(
        step_ms=found.step_ms,
        times=[found.from_ms + number * found.step_ms for number in range(count)],
        series={
            name: [None if isnan(one) else float(f"{one:.{_DIGITS}g}") for one in values]
            for name, values in found.series.items()
        },
        nodes=sorted(found.nodes),
        missing_nodes=[one for one in missing if query.node in (None, one)],
        kept_ms=KEPT_MS,
    )


async def totals(front: FrontEnd, call: Call, _: object) -> bodies.Totals:
    found, missing = await front.gate.figures.totals(call.session)
    return bodies.Totals(
        groups=found.groups,
        lagging=found.lagging,
        lag=found.lag,
        nodes=[
            bodies.NodeDisk(id=one.node, bytes=one.size, free_bytes=one.free, total_bytes=one.total)
            for one in found.disks
        ],
        missing_nodes=missing,
    )


def _period(front: FrontEnd, query: bodies.ReadHistory) -> Period:
    now_ms = front.now_ms()

    def moment(text: str, field: str) -> int:
        if text in (EARLIEST, LATEST):
            return 0 if text == EARLIEST else now_ms
        return time_ms(text, now_ms=now_ms, field=field)

    until_ms = now_ms if query.until is None else moment(query.until, "until")
    return Period(moment(query.from_, "from"), min(until_ms, now_ms), query.points)


def access(front: FrontEnd, call: Call, query: bodies.ShowAccess) -> bodies.OwnAccess:
    gate, session = front.gate.access, call.session
    named: list[str] | UnsetType = UNSET
    if query.name:
        resource = Resource(_KINDS[query.kind], query.name)
        named = _words(gate.allowed(session, resource=resource, actions=_ACTIONS))
    return bodies.OwnAccess(
        enforced=front.gate.acls.are_enforced(session),
        cluster=_words(gate.allowed(session, resource=CLUSTER, actions=_ACTIONS)),
        any={
            name: _words(gate.allowed_on_any(session, kind=kind, actions=_ACTIONS))
            for name, kind in _KINDS.items()
        },
        resource=named,
    )


def _words(actions: Sequence[Action]) -> list[str]:
    return [one.lower() for one in actions]
