"""What coordinators keep: stream groups, queue groups, schedules and transactions."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.config.export_kinds import TRACES_PATH, CollectorAddress, RequestHeaders
from goqueue.config.fields import choice, count, duration, setting, size
from goqueue.config.kinds import (
    DAY_MS,
    INT32_MAX,
    MINUTE_MS,
    SECOND_MS,
    UNLIMITED,
    GiB,
    KiB,
    MiB,
    Ratio,
    Switch,
)

LINK, CHILD = "link", "child"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Membership and committed offsets of consumer groups."""

    session_ms_min: int = duration(
        6 * SECOND_MS,
        "shortest session timeout a member may request; a shorter one takes pauses for failures",
    )
    session_ms_max: int = duration(
        30 * MINUTE_MS,
        "longest session timeout a member may request; a failed member keeps its partitions that "
        "long",
    )
    initial_rebalance_delay_ms: int = duration(
        100,
        "delay of the first rebalance of a group, so that members that start together share it",
        least=0,
        most=10 * MINUTE_MS,
    )
    size_max: int = count(
        10_000,
        "members of one group; the cost of an assignment grows with them",
        least=UNLIMITED,
    )
    per_partition_max: int = count(
        20_000,
        "groups per partition of the offsets topic; further ones are refused",
        least=UNLIMITED,
    )
    offsets_partitions: int = count(
        16,
        "partitions of the offsets topic; cannot be changed after the first commit",
        most=10_000,
    )
    offsets_retention_ms: int = duration(
        7 * DAY_MS, "how long the offsets of an empty group are kept"
    )
    offset_metadata_bytes_max: int = size(
        4 * KiB, "size of the metadata committed with an offset", least=0, most=MiB
    )
    consumer_heartbeat_ms: int = duration(
        5 * SECOND_MS,
        "heartbeat interval of the consumer protocol (KIP-848); shorter in small groups",
    )
    consumer_session_ms: int = duration(
        45 * SECOND_MS,
        "session timeout of the consumer protocol: nine missed heartbeats, as in Kafka",
    )


@dataclass(frozen=True, slots=True)
class JourneySettings:
    """Journeys: what happened to each message, and how long that is kept."""

    enabled: bool = setting(
        True,
        Switch(),
        "record what happens to messages in the topic `__journeys`; the topic setting "
        "`goqueue_journeys_enable` excludes single topics",
    )
    partitions: int = count(
        8,
        "partitions of `__journeys`; cannot be changed after the first message",
        most=1000,
    )
    retention_ms: int = duration(
        3 * DAY_MS, "how long journeys are kept; -1 is no limit", least=UNLIMITED
    )
    retention_bytes: int = size(
        GiB,
        "how large each partition of `__journeys` may become; -1 is no limit",
        least=UNLIMITED,
    )
    otlp_endpoint: str = setting(
        "",
        CollectorAddress(TRACES_PATH),
        "address of a collector of OpenTelemetry to which journeys are sent as traces (OTLP over "
        "HTTP, protobuf), with `metrics.otlp_timeout_ms`, `otlp_compression`, `otlp_authorities`, "
        "`otlp_service_name` and `otlp_attributes`; `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` are read too, if nothing else gives the setting",
    )
    otlp_headers: tuple[tuple[str, str], ...] = setting(
        (), RequestHeaders(), "headers for that collector, such as those with credentials"
    )
    otlp_ratio: float = setting(
        0.0,
        Ratio(),
        "share of messages that are sent as traces, evenly, besides those whose `traceparent` is "
        "sampled and those that are rejected, expire or become dead letters",
    )
    otlp_parent: str = choice(
        LINK,
        (LINK, CHILD),
        "what spans are to the span in `traceparent`: linked to it, in traces of their own, or its "
        "children, in the same trace",
    )


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Queue groups: where their state is stored, and limits on serving them."""

    partitions: int = count(
        8,
        "partitions of the queue group state; cannot be changed after the first queue group",
        most=1000,
    )
    snapshot_bytes: int = size(
        16 * MiB,
        "journal bytes after which a snapshot is written; a start replays a small multiple at most",
        least=4 * KiB,
    )
    batch_cache_bytes: int = size(
        32 * MiB, "cache of decoded batches, so that each batch is decoded once"
    )
    receive_bytes_max: int = size(
        16 * MiB,
        "size of the messages in one receive response; a single message always fits",
        least=KiB,
    )
    waiting_max: int = count(
        10_000, "long polls in progress; further receive calls return empty at once"
    )
    lanes_save_ms: int = duration(
        MINUTE_MS,
        "how often the priority lanes of a log are saved; after a crash the log is read again from "
        "there",
        least=100,
    )


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Messages with a delivery time in the future."""

    partitions: int = count(
        4,
        "partitions of the schedule log; cannot be changed after the first delayed message",
        most=1000,
    )
    checkpoint_ms: int = duration(
        MINUTE_MS,
        "interval between checkpoints; after a crash the logs are read again from the last one",
        least=100,
    )
    store_timeout_ms: int = duration(
        10_000,
        "how long a batch waits for its delayed records to be stored; shorter than the timeout of "
        "clients",
        least=100,
    )
    waiting_bytes_max: int = size(
        64 << 20,
        "size of all batches that wait for that on a node; further ones are refused with a "
        "retryable error",
    )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Atomic writes over several partitions."""

    state_partitions: int = count(
        16,
        "partitions of the transaction state topic; cannot be changed after the first transaction",
        most=1000,
    )
    timeout_ms_max: int = duration(
        15 * MINUTE_MS,
        "longest timeout a producer may request; an open transaction blocks read-committed "
        "consumers",
        least=1,
    )
    prepared_timeout_ms_max: int = duration(
        DAY_MS,
        "longest time a prepared transaction waits for the commit of its epoch",
        least=1,
        most=INT32_MAX,
    )
    id_expiration_ms: int = duration(7 * DAY_MS, "how long an unused transactional id is kept")
    query_expiration_ms: int = duration(
        366 * DAY_MS,
        "how long the last epoch of a streaming query is kept; a query stopped for longer may "
        "write its last epoch twice",
    )
    ids_max: int = count(100_000, "transactional ids; further ones are refused")
