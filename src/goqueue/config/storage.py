"""Logs on disk and their compaction, and the topics and producers that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from goqueue.config.fields import choice, count, duration, setting, size
from goqueue.config.kinds import (
    DAY_MS,
    HOUR_MS,
    INT32_MAX,
    SECOND_MS,
    UNLIMITED,
    GiB,
    KiB,
    MiB,
    Ratio,
    Switch,
)

FsyncMode = Literal["every", "interval", "none"]
CleanupPolicy = Literal["delete", "compact", "compact,delete"]
Compression = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
TimestampType = Literal["CreateTime", "LogAppendTime"]


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How logs are stored on disk, and what an acknowledgement guarantees."""

    fsync: FsyncMode = choice(
        "every",
        get_args(FsyncMode),
        "`every`: acknowledged records survive a power failure, and one sync serves all writes "
        "that wait for it (group commit)",
        "--fsync",
    )
    fsync_interval_ms: int = duration(
        SECOND_MS,
        "with `fsync: interval`, the time whose writes a power failure may lose",
        most=HOUR_MS,
    )
    commit_journal_bytes: int = size(
        64 * MiB,
        "with `fsync: every`, size of the journal that small writes of all logs share until their "
        "logs are synced",
        least=32 * KiB,
        most=GiB,
    )
    segment_bytes: int = size(
        GiB,
        "size at which a segment is rolled; larger means fewer files, but retention frees whole "
        "segments",
        least=KiB,
        most=INT32_MAX,
    )
    segment_ms: int = duration(
        7 * DAY_MS,
        "age at which a segment is rolled, so that the records of a quiet log expire too",
    )
    index_interval_bytes: int = size(
        4 * KiB,
        "one index entry per this many bytes of log; a lookup reads at most that much in excess",
        most=MiB,
    )
    retention_ms: int = duration(
        7 * DAY_MS,
        "how long records are kept; a week leaves time to notice a broken consumer",
        least=UNLIMITED,
    )
    retention_bytes: int = size(
        UNLIMITED, "size of a partition beyond which old segments are deleted", least=UNLIMITED
    )
    retention_check_ms: int = duration(
        30 * SECOND_MS,
        "how often retention is applied; often enough for a full disk to recover without help",
        least=100,
    )
    free_bytes_min: int = size(
        64 * MiB,
        "with less free disk space than this, writes are refused; reads are still served",
        least=0,
    )
    reserve_bytes: int = size(
        16 * MiB, "disk space reserved so that a node can start when its disk is full", least=0
    )
    open_files_max: int = count(
        16_384,
        "log files kept open, at most half of the process's limit; beyond it the file opened first "
        "is closed, and opened again when it is used",
        least=16,
    )
    write_chunk_bytes: int = size(
        256 * KiB,
        "size of one write call; larger writes to the page cache were measured to run at a third "
        "of the speed",
        least=4 * KiB,
        most=64 * MiB,
    )


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When logs that keep the last value per key are compacted."""

    enabled: bool = setting(
        True, Switch(), "whether logs are compacted; without it compacted topics only grow"
    )
    check_ms: int = duration(
        15 * SECOND_MS,
        "pause between checks, each of which inspects every log; skipped while logs are due",
        least=100,
    )
    dirty_ratio_min: float = setting(
        0.5,
        Ratio(),
        "share of a log that must be uncompacted before it is due; each pass also rewrites the "
        "compacted part",
    )
    tombstone_retention_ms: int = duration(
        DAY_MS,
        "how long tombstones are kept; a consumer that is further behind may miss a deletion",
        least=0,
    )
    lag_min_ms: int = duration(0, "age below which records are not compacted", least=0)
    lag_max_ms: int = duration(
        UNLIMITED,
        "age of uncompacted records at which a log is due whatever its dirty ratio",
        least=UNLIMITED,
    )
    map_bytes_max: int = size(
        128 * MiB,
        "memory for the keys of one pass; keys that do not fit are left to the next pass",
        least=MiB,
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Defaults of new topics, and limits on all topics."""

    partitions: int = count(
        1,
        "partitions of a new topic; one keeps all records in order",
        most=10_000,
    )
    topics_max: int = count(
        20_000,
        "topics of a node or cluster, internal ones not counted; further ones are refused",
        least=UNLIMITED,
    )
    partitions_total_max: int = count(
        100_000,
        "partitions of all topics of a node or cluster; each costs memory and files",
        least=UNLIMITED,
    )
    auto_create: bool = setting(
        True, Switch(), "create a topic at its first use, as stock clients and tools expect"
    )
    message_bytes_max: int = size(
        1_048_588, "size of a record batch; the default is Kafka's", most=INT32_MAX
    )
    unpacked_bytes_max: int = size(
        32 * MiB,
        "decompressed size of a batch; larger ones are refused, and readers that would have to "
        "decompress a stored one skip it",
        least=64 * KiB,
        most=INT32_MAX,
    )
    cleanup_policy: CleanupPolicy = choice(
        "delete",
        get_args(CleanupPolicy),
        "`delete` removes old segments, `compact` keeps the last value per key",
    )
    compression: Compression = choice(
        "producer", get_args(Compression), "`producer` stores batches as the producer sent them"
    )
    timestamp_type: TimestampType = choice(
        "CreateTime",
        get_args(TimestampType),
        "whether timestamps are set by the producer or by the broker at append",
    )
    delete_enabled: bool = setting(True, Switch(), "whether topics can be deleted")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The state that the broker keeps of idempotent producers."""

    id_expiry_ms: int = duration(
        DAY_MS,
        "how long the state of an inactive producer is kept; longer than any client retries",
    )
    states_per_partition_max: int = count(
        10_000,
        "bounds memory when there are many short-lived producers; the one inactive for the longest "
        "time is dropped first",
    )
