"""The recent past, and what a caller may do."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from goqueue.broker.gate.areas.overviews.history import POINTS_MAX
from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import GroupName, Moment, NodeId, TopicName


class ReadHistory(Body, kw_only=True):
    """Of what, and when. Without a topic and a group, of the whole cluster."""

    topic: TopicName | None = None
    group: GroupName | None = None
    node: Annotated[NodeId | None, Meta(description="Only what this node did.")] = None
    from_: Annotated[Moment, Meta(description="Where to start.")] = field(
        name="from", default="15m"
    )
    until: Annotated[Moment | None, Meta(description="Where to end; now by default.")] = None
    points: Annotated[int, Meta(ge=1, le=POINTS_MAX, description="Most values of a series.")] = 300


class History(Answer, kw_only=True):
    """Values at equal distances, each the mean of its interval; null where none is known."""

    step_ms: int
    times: Annotated[list[int], Meta(description="When the interval of each value begins.")]
    series: Annotated[
        dict[str, list[float | None]],
        Meta(
            description=(
                "Of the cluster: `in_per_s`, `in_bytes_per_s`, `out_per_s`, `out_bytes_per_s`, "
                "`delivered_per_s`, `acked_per_s`, `dead_lettered_per_s`, `scheduled_per_s`, "
                "`requests_per_s` and `request_errors_per_s`. Of a topic: the first four. Of a "
                "group: `lag` and `lag_ms`."
            )
        ),
    ]
    nodes: Annotated[list[int], Meta(description="Nodes whose part is included.")]
    missing_nodes: Annotated[
        list[int], Meta(description="Nodes that are stopped, or did not answer in time.")
    ]
    kept_ms: Annotated[int, Meta(description="How far back nodes remember.")]


class NodeDisk(Answer, kw_only=True):
    id: int
    bytes: Annotated[int, Meta(description="Of the replicas on this node.")]
    free_bytes: Annotated[int, Meta(description="On the disk with the data.")]
    total_bytes: int


class Totals(Answer, kw_only=True):
    """What all nodes have together."""

    groups: int
    lagging: Annotated[int, Meta(description="Groups that have messages left.")]
    lag: Annotated[int, Meta(description="Messages that groups have left, added up.")]
    nodes: list[NodeDisk]
    missing_nodes: Annotated[list[int], Meta(description="Nodes whose part is missing.")]


AccessKind = Literal["topic", "group", "transactional_id", "subject"]


class ShowAccess(Body, kw_only=True):
    """A resource to check too, if a name is given."""

    kind: AccessKind = "topic"
    name: Annotated[str, Meta(max_length=255)] = ""


class OwnAccess(Answer, kw_only=True, omit_defaults=True):
    """What the caller may do, as actions of access control lists in lower case."""

    enforced: Annotated[bool, Meta(description="Whether the node restricts anybody.")]
    cluster: Annotated[list[str], Meta(description="On the cluster.")]
    any: Annotated[dict[str, list[str]], Meta(description="On at least one resource of each kind.")]
    resource: Annotated[list[str] | UnsetType, Meta(description="On the named one.")] = UNSET
