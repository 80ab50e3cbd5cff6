"""Every setting of a node: its name, default, range and purpose, and how it is read.

A setting comes from a flag, else from the environment, else from the YAML file, else from its
default below. All sources are read once, at start, and all problems are reported together. Each
package receives its own section as a value, and never the other sections, the environment or the
file.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from goqueue.config.kinds import (
    COUNT,
    DAY_MS,
    DURATION,
    HOUR_MS,
    INT32_MAX,
    INT64_MAX,
    MINUTE_MS,
    SECOND_MS,
    SIZE,
    AccessKeys,
    Choice,
    Digits,
    File,
    Folder,
    GiB,
    HostNames,
    HostPort,
    KiB,
    Kind,
    MiB,
    Number,
    Optional,
    Peers,
    Ratio,
    Switch,
    Unit,
    Word,
)
from goqueue.config.kinds import UNLIMITED as UNLIMITED
from goqueue.config.kinds import Address as Address
from goqueue.config.kinds import Secret as Secret
from goqueue.model.errors import InvalidSettings

FsyncMode = Literal["every", "interval", "none"]
CleanupPolicy = Literal["delete", "compact", "compact,delete"]
Compression = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

FILE_VARIABLE = "GOQUEUE_CONFIG"
_PREFIX = "GOQUEUE_"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """The kind of a setting, its purpose as shown in the manual, and its flag if it has one."""

    kind: Kind[object]
    why: str
    flag: str = ""


# A section is an ordinary dataclass; these functions put the rule of a setting beside its default.


def _setting(default: T, kind: Kind[object], why: str, flag: str = "") -> T:
    made: T = field(default=default, metadata={"about": About(kind, why, flag)})
    return made


def _number(
    unit: Unit, default: int, why: str, *, least: int = 1, most: int = INT64_MAX, flag: str = ""
) -> int:
    has_limit = least != UNLIMITED
    kind = Number(unit, at_least=least if has_limit else 1, at_most=most, has_limit=has_limit)
    return _setting(default, kind, why, flag)


_count, _size, _duration = (partial(_number, unit) for unit in (COUNT, SIZE, DURATION))


def _choice(default: T, words: tuple[T, ...], why: str, flag: str = "") -> T:
    return _setting(default, Choice(words), why, flag)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The identity of this node and the location of its data."""

    id: int = _count(
        1,
        "id of this broker, unique in its cluster",
        least=0,
        most=INT32_MAX,
        flag="--node-id",
    )
    cluster_id: str = _setting(
        "", Word(64), "if empty, generated at the first start and stored with the data"
    )
    data_dir: Path = _setting(
        Path("data"),
        Folder(),
        "where all data is stored; the default needs no root permissions",
        "--data-dir",
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The members of the cluster, how they authenticate, and when one is considered failed."""

    peers: str = _setting(
        "",
        Peers(),
        "the initial voters of a new cluster, the same list on each of them; empty: a single node",
        "--peers",
    )
    discovery: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "a DNS name that resolves to the addresses of all nodes; an alternative to `peers`",
    )
    discovery_count: int = _count(
        3, "number of addresses to wait for before discovery forms a new cluster", most=9
    )
    join_only: bool = _setting(
        False,
        Switch(),
        "join an existing cluster and never form a new one; for a node whose lost disk was "
        "replaced by an empty one",
        "--join",
    )
    secret_file: Path | None = _setting(
        None,
        Optional(File()),
        "file with the secret by which nodes authenticate each other; during a rotation a second "
        "line holds the previous secret; `goqueue cluster secret` creates it",
        "--secret-file",
    )
    secret: str = _setting(
        "", Secret(), "the secret itself, for environments where files are harder to distribute"
    )
    secret_previous: str = _setting(
        "", Secret(), "the previous secret, which other nodes may still use during a rotation"
    )
    tls_certificate: Path | None = _setting(
        None,
        Optional(File()),
        "certificate of this node, PEM, valid for the host names that other nodes connect to; "
        "reloaded when the file changes",
    )
    tls_key: Path | None = _setting(
        None, Optional(File()), "private key of the certificate, PEM, without a password"
    )
    tls_authorities: Path | None = _setting(
        None,
        Optional(File()),
        "certificate authorities that sign the certificates of nodes, PEM; preferably an authority "
        "that signs nothing else",
    )
    rack: str = _setting(
        "", Word(64), "rack of this node; replicas of a partition are placed in different racks"
    )
    heartbeat_ms: int = _duration(
        500,
        "interval between heartbeats; four fit into a session",
        least=10,
        most=MINUTE_MS,
    )
    session_ms: int = _duration(
        2 * SECOND_MS,
        "a node that sends no heartbeat for this long loses its leaderships; the active controller "
        "is replaced after half of it, but after 1s at least; shorter values take pauses for "
        "failures",
        least=50,
        most=10 * MINUTE_MS,
    )
    replication_factor: int = _count(
        3,
        "replicas of a new topic whose creator gives no number; fewer if there are fewer nodes",
        most=15,
    )
    rebalance_ms: int = _duration(
        5 * SECOND_MS,
        "how often leadership is moved back to the preferred replicas, which are spread evenly",
        least=100,
    )
    leader_moves_max: int = _count(
        200,
        "leaders moved back at a time; clients of each must refresh their metadata",
    )

    @property
    def has_tls(self) -> bool:
        """Whether nodes use TLS with mutual authentication between each other."""
        return self.tls_certificate is not None


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """How followers of a partition keep up with its leader."""

    lag_ms: int = _duration(
        10 * SECOND_MS,
        "a follower that has been behind for this long leaves the in-sync replicas; only time "
        "counts, not the number of records",
        least=100,
        most=HOUR_MS,
    )
    retry_ms: int = _duration(
        200, "pause before a failed request is retried", least=10, most=MINUTE_MS
    )
    fetch_bytes_max: int = _size(
        MiB,
        "bytes of one partition in one fetch response; a larger batch is sent by itself",
        least=KiB,
        most=64 * MiB,
    )
    catch_up_bytes_per_second: int = _size(
        UNLIMITED,
        "limit of what a node sends to all replicas that are not in sync; in-sync replicas have "
        "priority in any case",
        least=UNLIMITED,
    )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where clients and nodes connect, and the limits on what connections may consume."""

    kafka: Address = _setting(
        Address("127.0.0.1", 9092),
        HostPort(),
        "address of the Kafka listener; loopback only by default; port 0 picks a free port",
        "--listen-kafka",
    )
    kafka_advertised: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "the address advertised to Kafka clients; if empty, the bound one",
        "--advertise-kafka",
    )
    http: Address = _setting(
        Address("127.0.0.1", 8080),
        HostPort(),
        "address of the HTTP listener; loopback only by default; port 0 picks a free port",
        "--listen-http",
    )
    http_advertised: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "the address advertised to HTTP clients; if empty, the bound one",
        "--advertise-http",
    )
    registry: Address = _setting(
        Address("127.0.0.1", 8081),
        HostPort(),
        "address of the schema registry, whose clients expect a port of its own; the HTTP listener "
        "serves it too, under `/registry`",
        "--listen-registry",
    )
    sqs: Address = _setting(
        Address("127.0.0.1", 9324),
        HostPort(),
        "address of the SQS listener; other than loopback only with `sqs.access_keys`",
        "--listen-sqs",
    )
    internal: Address = _setting(
        Address("127.0.0.1", 7000),
        HostPort(),
        "address for the other nodes of a cluster; a single node does not open it",
        "--listen-internal",
    )
    internal_advertised: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "the address advertised to other nodes; if empty, the bound one",
        "--advertise-internal",
    )
    allow_unauthenticated: bool = _setting(
        False,
        Switch(),
        "required to listen on other than loopback addresses, because anybody who can connect "
        "can read and write",
        "--allow-unauthenticated",
    )
    connections_max: int = _count(
        10_000,
        "connections of the Kafka listener, and as many of the internal one; room for many idle "
        "clients, but more are likely a fault or an attack",
    )
    connections_per_address_max: int = _count(
        UNLIMITED,
        "connections of one client address to one listener; many clients may share an address "
        "behind a proxy",
        least=UNLIMITED,
    )
    idle_timeout_ms: int = _duration(
        10 * MINUTE_MS,
        "an idle Kafka or internal connection is closed after this; stock Kafka clients reconnect "
        "after nine minutes",
    )
    request_bytes_max: int = _size(
        100 * MiB, "size of a Kafka request; the default is Kafka's", least=KiB, most=INT32_MAX
    )
    requests_in_flight_max: int = _count(
        64,
        "requests in flight per Kafka connection; further ones are not read from the socket",
    )
    receive_buffer_bytes_total_max: int = _size(
        128 * MiB,
        "memory for partly received requests of all connections together; when requests have to "
        "wait for it, the connection with the largest stalled request is closed",
        least=MiB,
    )
    unsent_bytes_total_max: int = _size(
        128 * MiB,
        "memory for responses of all connections together that clients have not read; beyond it, "
        "the connection that has read nothing for the longest time is closed",
        least=MiB,
    )
    send_buffer_bytes: int = _size(
        256 * KiB,
        "socket send buffer of a Kafka connection, small enough to stay in the processor's cache; "
        "-1 lets the system choose, which is better over links with high latency",
        least=UNLIMITED,
        most=GiB,
    )
    http_hosts: str = _setting(
        "",
        HostNames(),
        "further host names that HTTP requests may be addressed to, such as that of a load "
        "balancer; others are refused as a protection against DNS rebinding; * accepts all",
    )
    http_connections_max: int = _count(
        10_000, "HTTP connections; an event stream occupies one for as long as it is read"
    )
    http_idle_timeout_ms: int = _duration(
        75 * SECOND_MS,
        "an idle HTTP connection is closed after this; longer than common clients and proxies keep "
        "one",
        least=SECOND_MS,
    )
    http_receive_timeout_ms: int = _duration(
        MINUTE_MS, "time within which a whole HTTP request must be received", least=SECOND_MS
    )
    http_body_bytes_max: int = _size(
        16 * MiB,
        "size of an HTTP request body; room for a batch of large messages",
        least=KiB,
        most=INT32_MAX,
    )
    http_answer_bytes_max: int = _size(
        16 * MiB,
        "approximate limit of one HTTP read; the next read continues from there",
        least=KiB,
        most=GiB,
    )


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How logs are stored on disk, and what an acknowledgement guarantees."""

    fsync: FsyncMode = _choice(
        "every",
        get_args(FsyncMode),
        "`every`: acknowledged records survive a power failure, and one sync serves all writes "
        "that wait for it (group commit)",
        "--fsync",
    )
    fsync_interval_ms: int = _duration(
        SECOND_MS,
        "with `fsync: interval`, the time whose writes a power failure may lose",
        most=HOUR_MS,
    )
    commit_journal_bytes: int = _size(
        64 * MiB,
        "with `fsync: every`, size of the journal that small writes of all logs share until their "
        "logs are synced",
        least=32 * KiB,
        most=GiB,
    )
    segment_bytes: int = _size(
        GiB,
        "size at which a segment is rolled; larger means fewer files, but retention frees whole "
        "segments",
        least=KiB,
        most=INT32_MAX,
    )
    segment_ms: int = _duration(
        7 * DAY_MS,
        "age at which a segment is rolled, so that the records of a quiet log expire too",
    )
    index_interval_bytes: int = _size(
        4 * KiB,
        "one index entry per this many bytes of log; a lookup reads at most that much in excess",
        most=MiB,
    )
    retention_ms: int = _duration(
        7 * DAY_MS,
        "how long records are kept; a week leaves time to notice a broken consumer",
        least=UNLIMITED,
    )
    retention_bytes: int = _size(
        UNLIMITED, "size of a partition beyond which old segments are deleted", least=UNLIMITED
    )
    retention_check_ms: int = _duration(
        30 * SECOND_MS,
        "how often retention is applied; often enough for a full disk to recover without help",
        least=100,
    )
    free_bytes_min: int = _size(
        64 * MiB,
        "with less free disk space than this, writes are refused; reads are still served",
        least=0,
    )
    reserve_bytes: int = _size(
        16 * MiB, "disk space reserved so that a node can start when its disk is full", least=0
    )
    open_files_max: int = _count(
        16_384,
        "log files kept open, at most half of the process's limit; beyond it the file opened first "
        "is closed, and opened again when it is used",
        least=16,
    )
    write_chunk_bytes: int = _size(
        256 * KiB,
        "size of one write call; larger writes to the page cache were measured to run at a third "
        "of the speed",
        least=4 * KiB,
        most=64 * MiB,
    )


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When logs that keep the last value per key are compacted."""

    enabled: bool = _setting(
        True, Switch(), "whether logs are compacted; without it compacted topics only grow"
    )
    check_ms: int = _duration(
        15 * SECOND_MS,
        "pause between checks, each of which inspects every log; skipped while logs are due",
        least=100,
    )
    dirty_ratio_min: float = _setting(
        0.5,
        Ratio(),
        "share of a log that must be uncompacted before it is due; each pass also rewrites the "
        "compacted part",
    )
    tombstone_retention_ms: int = _duration(
        DAY_MS,
        "how long tombstones are kept; a consumer that is further behind may miss a deletion",
        least=0,
    )
    lag_min_ms: int = _duration(0, "age below which records are not compacted", least=0)
    lag_max_ms: int = _duration(
        UNLIMITED,
        "age of uncompacted records at which a log is due whatever its dirty ratio",
        least=UNLIMITED,
    )
    map_bytes_max: int = _size(
        128 * MiB,
        "memory for the keys of one pass; keys that do not fit are left to the next pass",
        least=MiB,
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Defaults of new topics, and limits on all topics."""

    partitions: int = _count(
        1,
        "partitions of a new topic; one keeps all records in order",
        most=10_000,
    )
    topics_max: int = _count(
        20_000,
        "topics of a node or cluster; further ones are refused",
        least=UNLIMITED,
    )
    partitions_total_max: int = _count(
        100_000,
        "partitions of all topics of a node or cluster; each costs memory and files",
        least=UNLIMITED,
    )
    auto_create: bool = _setting(
        True, Switch(), "create a topic at its first use, as stock clients and tools expect"
    )
    message_bytes_max: int = _size(
        1_048_588, "size of a record batch; the default is Kafka's", most=INT32_MAX
    )
    unpacked_bytes_max: int = _size(
        32 * MiB,
        "decompressed size of a batch; larger ones are refused, and readers that would have to "
        "decompress a stored one skip it",
        least=64 * KiB,
        most=INT32_MAX,
    )
    cleanup_policy: CleanupPolicy = _choice(
        "delete",
        get_args(CleanupPolicy),
        "`delete` removes old segments, `compact` keeps the last value per key",
    )
    compression: Compression = _choice(
        "producer", get_args(Compression), "`producer` stores batches as the producer sent them"
    )
    timestamp_type: TimestampType = _choice(
        "CreateTime",
        get_args(TimestampType),
        "whether timestamps are set by the producer or by the broker at append",
    )
    delete_enabled: bool = _setting(True, Switch(), "whether topics can be deleted")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The state that the broker keeps of idempotent producers."""

    id_expiry_ms: int = _duration(
        DAY_MS,
        "how long the state of an inactive producer is kept; longer than any client retries",
    )
    states_per_partition_max: int = _count(
        10_000,
        "bounds memory when there are many short-lived producers; the one inactive for the longest "
        "time is dropped first",
    )


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Membership and committed offsets of consumer groups."""

    session_ms_min: int = _duration(
        6 * SECOND_MS,
        "shortest session timeout a member may request; a shorter one takes pauses for failures",
    )
    session_ms_max: int = _duration(
        30 * MINUTE_MS,
        "longest session timeout a member may request; a failed member keeps its partitions that "
        "long",
    )
    initial_rebalance_delay_ms: int = _duration(
        100,
        "delay of the first rebalance of a group, so that members that start together share it",
        least=0,
        most=10 * MINUTE_MS,
    )
    size_max: int = _count(
        10_000,
        "members of one group; the cost of an assignment grows with them",
        least=UNLIMITED,
    )
    per_partition_max: int = _count(
        20_000,
        "groups per partition of the offsets topic; further ones are refused",
        least=UNLIMITED,
    )
    offsets_partitions: int = _count(
        16,
        "partitions of the offsets topic; cannot be changed after the first commit",
        most=10_000,
    )
    offsets_retention_ms: int = _duration(
        7 * DAY_MS, "how long the offsets of an empty group are kept"
    )
    offset_metadata_bytes_max: int = _size(
        4 * KiB, "size of the metadata committed with an offset", least=0, most=MiB
    )
    consumer_heartbeat_ms: int = _duration(
        5 * SECOND_MS,
        "heartbeat interval of the consumer protocol (KIP-848); shorter in small groups",
    )
    consumer_session_ms: int = _duration(
        45 * SECOND_MS,
        "session timeout of the consumer protocol: nine missed heartbeats, as in Kafka",
    )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Atomic writes over several partitions."""

    state_partitions: int = _count(
        16,
        "partitions of the transaction state topic; cannot be changed after the first transaction",
        most=1000,
    )
    timeout_ms_max: int = _duration(
        15 * MINUTE_MS,
        "longest timeout a producer may request; an open transaction blocks read-committed "
        "consumers",
        least=1,
    )
    prepared_timeout_ms_max: int = _duration(
        DAY_MS,
        "longest time a prepared transaction waits for the commit of its epoch",
        least=1,
        most=INT32_MAX,
    )
    id_expiration_ms: int = _duration(7 * DAY_MS, "how long an unused transactional id is kept")
    query_expiration_ms: int = _duration(
        366 * DAY_MS,
        "how long the last epoch of a streaming query is kept; a query stopped for longer may "
        "write its last epoch twice",
    )
    ids_max: int = _count(100_000, "transactional ids; further ones are refused")


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Queue groups: where their state is stored, and limits on serving them."""

    partitions: int = _count(
        8,
        "partitions of the queue group state; cannot be changed after the first queue group",
        most=1000,
    )
    snapshot_bytes: int = _size(
        16 * MiB,
        "journal bytes after which a snapshot is written; a start replays a small multiple at most",
        least=4 * KiB,
    )
    batch_cache_bytes: int = _size(
        32 * MiB, "cache of decoded batches, so that each batch is decoded once"
    )
    receive_bytes_max: int = _size(
        16 * MiB,
        "size of the messages in one receive response; a single message always fits",
        least=KiB,
    )
    waiting_max: int = _count(
        10_000, "long polls in progress; further receive calls return empty at once"
    )
    lanes_save_ms: int = _duration(
        MINUTE_MS,
        "how often the priority lanes of a log are saved; after a crash the log is read again from "
        "there",
        least=100,
    )


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Messages with a delivery time in the future."""

    partitions: int = _count(
        4,
        "partitions of the schedule log; cannot be changed after the first delayed message",
        most=1000,
    )
    checkpoint_ms: int = _duration(
        MINUTE_MS,
        "interval between checkpoints; after a crash the logs are read again from the last one",
        least=100,
    )
    store_timeout_ms: int = _duration(
        10_000,
        "how long a batch waits for its delayed records to be stored; shorter than the timeout of "
        "clients",
        least=100,
    )
    waiting_bytes_max: int = _size(
        64 << 20,
        "size of all batches that wait for that on a node; further ones are refused with a "
        "retryable error",
    )


@dataclass(frozen=True, slots=True)
class SqsSettings:
    """SQS clients: their access keys, and where GoQueue differs from AWS."""

    access_keys: tuple[tuple[str, str], ...] = _setting(
        (),
        AccessKeys(),
        "access keys that requests must be signed with; if empty, any client of this machine is "
        "accepted",
    )
    region: str = _setting(
        "us-east-1",
        Word(50),
        "region in the ARNs of queues; requests signed for another one are refused",
    )
    account_id: str = _setting(
        "000000000000",
        Digits(12),
        "account in the URLs and ARNs of queues; requests that name another one are refused",
    )
    message_bytes_max: int = _size(
        MiB, "size of a message and of a batch; the default is that of AWS", least=KiB, most=GiB
    )
    long_delays: bool = _setting(
        False, Switch(), "allow DelaySeconds above the 900 of AWS, up to a hundred years"
    )
    names_rest: bool = _setting(
        False,
        Switch(),
        "refuse to reuse the name of a queue for a minute after its deletion, as AWS does",
    )


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Limits on Kafka fetch requests."""

    sessions_max: int = _count(
        1_000,
        "fetch sessions cached; a consumer without one sends its full list of partitions",
        least=0,
    )
    bytes_max: int = _size(
        55 * MiB,
        "size of one response; above what stock clients request",
        least=KiB,
        most=INT32_MAX,
    )


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The log of the node itself."""

    level: LogLevel = _choice(
        "info",
        get_args(LogLevel),
        "`info` logs starts, stops and problems, and nothing per request",
        "--log-level",
    )
    format: LogFormat = _choice(
        "text", get_args(LogFormat), "`text` for people, `json` for log collectors"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections of a node, and the source of each value."""

    node: NodeSettings = NodeSettings()
    cluster: ClusterSettings = ClusterSettings()
    replication: ReplicationSettings = ReplicationSettings()
    listeners: ListenerSettings = ListenerSettings()
    storage: StorageSettings = StorageSettings()
    compaction: CompactionSettings = CompactionSettings()
    topics: TopicSettings = TopicSettings()
    producers: ProducerSettings = ProducerSettings()
    groups: GroupSettings = GroupSettings()
    transactions: TransactionSettings = TransactionSettings()
    delivery: DeliverySettings = DeliverySettings()
    schedules: ScheduleSettings = ScheduleSettings()
    sqs: SqsSettings = SqsSettings()
    fetch: FetchSettings = FetchSettings()
    logging: LoggingSettings = LoggingSettings()
    # "section.name" to "file goqueue.yaml line 3" and the like; defaults are not listed.
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings."""

    section: str
    name: str
    default: object
    about: About

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variables(self) -> list[str]:
        """Environment variables: the systematic name, then that of the flag if it has one."""
        systematic = f"{_PREFIX}{self.section}_{self.name}".upper()
        short = _PREFIX + self.about.flag.strip("-").replace("-", "_").upper()
        return [systematic] if not self.about.flag else list(dict.fromkeys([systematic, short]))


SECTIONS: Mapping[str, Any] = {
    section.name: type(section.default)
    for section in dataclasses.fields(Settings)
    if section.name != "sources"
}
SETTINGS: Mapping[str, Setting] = {
    f"{section}.{one.name}": Setting(section, one.name, one.default, one.metadata["about"])
    for section, its_class in SECTIONS.items()
    for one in dataclasses.fields(its_class)
}


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Settings:
    """Read all sources and return the settings, or raise InvalidSettings with every problem.

    `file` defaults to the value of GOQUEUE_CONFIG in `environ`. The keys of `overrides` are flags
    as the user typed them (`--fsync`), or `section.name` for values given by `--set`.
    """
    reading = _Reading()
    environ = environ or {}
    if file is None and environ.get(FILE_VARIABLE):
        file = Path(environ[FILE_VARIABLE])
    layers = [
        reading.from_flags(overrides or {}),
        reading.from_environment(environ),
        reading.from_file(file) if file else {},
    ]
    settings = reading.settle(layers)
    if reading.problems:
        raise InvalidSettings(reading.problems)
    return settings


def render(settings: Settings) -> str:
    """The settings as a YAML file, with the source of each value in a comment."""
    lines: list[str] = []
    for section in SECTIONS:
        lines += ["", f"{section}:"] if lines else [f"{section}:"]
        for setting in SETTINGS.values():
            if setting.section == section:
                value = getattr(getattr(settings, section), setting.name)
                source = settings.sources.get(setting.path, "default")
                text = _yaml_scalar(setting.about.kind.show(value))
                lines.append(f"  {setting.name}: {text}  # {source}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Given:
    text: str
    source: str


_Layer = dict[str, _Given]


@dataclass(slots=True)
class _Reading:
    """Collects the values of all sources, and every problem with them."""

    problems: list[str] = field(default_factory=list)

    def from_flags(self, overrides: Mapping[str, str]) -> _Layer:
        by_flag = {setting.about.flag: setting.path for setting in SETTINGS.values()}
        layer: _Layer = {}
        for typed, text in overrides.items():
            is_set = not typed.startswith("--")
            source = f"flag --set {typed}" if is_set else f"flag {typed}"
            path = typed if is_set else by_flag.get(typed, typed)
            if path not in SETTINGS:
                self.problems.append(f"{path}: no such setting{_hint(path, SETTINGS)} ({source})")
            else:
                self._add(layer, path, _Given(text, source))
        return layer

    def from_environment(self, environ: Mapping[str, str]) -> _Layer:
        names = {name: path for path, row in SETTINGS.items() for name in row.variables}
        layer: _Layer = {}
        for name, text in environ.items():
            if not text:  # shells and compose files pass unset variables as empty ones
                continue
            if name in names:
                self._add(layer, names[name], _Given(text, f"environment {name}"))
            elif name.startswith(_PREFIX) and name != FILE_VARIABLE:
                # Report only names that resemble a setting. Other GOQUEUE_ variables may be
                # legitimate: Kubernetes sets GOQUEUE_PORT for a service named goqueue.
                hint = _hint(name, names, cutoff=0.85)
                if hint:
                    self.problems.append(f"{name}: no such setting{hint} (environment)")
        return layer

    def from_file(self, file: Path) -> _Layer:
        # Imported here, because only a node with a settings file needs it.
        import yaml

        try:
            root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
            self.problems.append(f"file {file}: cannot be read: {reason}")
            return {}
        layer: _Layer = {}
        for section, node, source in self._entries(root, file, "the file"):
            if section not in SECTIONS:
                hint = _hint(section, SECTIONS)
                self.problems.append(f"{section}: no such section{hint} ({source})")
                continue
            for name, value, source in self._entries(node, file, f"section {section}"):
                self._from_yaml(layer, f"{section}.{name}", value, source)
        return layer

    def settle(self, layers: Iterable[_Layer]) -> Settings:
        """Take each setting from the first layer that has it, and check their combination."""
        ranked = list(layers)
        values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
        sources = {}
        for path, setting in SETTINGS.items():
            given = next((layer[path] for layer in ranked if path in layer), None)
            if given is None:
                continue
            try:
                values[setting.section][setting.name] = setting.about.kind.read(given.text)
                sources[path] = given.source
            except ValueError as error:
                self.problems.append(f"{path}: {error} ({given.source})")
        sections: dict[str, Any] = {
            name: section(**values[name]) for name, section in SECTIONS.items()
        }
        settings = Settings(**sections, sources=sources)
        self.problems += contradictions(settings)
        return settings

    def _entries(self, node: Any, file: Path, what: str) -> Iterator[tuple[str, Any, str]]:
        """Yield key, value and location of each entry of a YAML mapping; report anything else."""
        if node is None or _is_null(node):
            return
        if node.id != "mapping":
            place = f"file {file} line {node.start_mark.line + 1}"
            self.problems.append(f"{what}: expected `name: value` lines ({place})")
            return
        seen = set()
        for key, value in node.value:
            place = f"file {file} line {key.start_mark.line + 1}"
            if key.id != "scalar":
                self.problems.append(f"{what}: a name must be a single word ({place})")
                continue
            if key.value in seen:
                self.problems.append(f"{key.value}: given twice in {what} ({place})")
            seen.add(key.value)
            yield key.value, value, place

    def _from_yaml(self, layer: _Layer, path: str, value: Any, source: str) -> None:
        if path not in SETTINGS:
            self.problems.append(f"{path}: no such setting{_hint(path, SETTINGS)} ({source})")
        elif value.id != "scalar":
            self.problems.append(f"{path}: expected a single value ({source})")
        else:
            layer[path] = _Given("" if _is_null(value) else value.value, source)

    def _add(self, layer: _Layer, path: str, given: _Given) -> None:
        other = layer.setdefault(path, given)
        if other.text != given.text:
            self.problems.append(
                f"{path}: {other.source} says {other.text!r}, {given.source} says {given.text!r}"
            )


def contradictions(settings: Settings) -> list[str]:
    """Check for values that are valid but contradict each other; one sentence per problem."""

    def told(path: str) -> str:
        section, name = path.split(".")
        value = getattr(getattr(settings, section), name)
        source = settings.sources.get(path, "default")
        return f"{path} = {SETTINGS[path].about.kind.show(value)} ({source})"

    checks = (_open_listeners, _senseless_addresses, _what_does_not_fit, _senseless_times, _nodes)
    return [fault for check in checks for fault in check(settings, told)]


_Tell = Callable[[str], str]


def _open_listeners(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    for name in ("kafka", "http", "registry"):
        is_open = not listeners.allow_unauthenticated
        if is_open and not getattr(listeners, name).is_loopback:
            yield (
                f"{told(f'listeners.{name}')}: other machines could connect without "
                "authentication; pass --allow-unauthenticated to allow it"
            )
    if not listeners.sqs.is_loopback and not settings.sqs.access_keys:
        yield (
            f"{told('listeners.sqs')}: other machines could connect without authentication; set "
            "sqs.access_keys, with which clients sign their requests"
        )


def _senseless_addresses(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    for name, who in (("kafka", "clients"), ("internal", "other nodes")):
        bound, advertised = getattr(listeners, name), getattr(listeners, f"{name}_advertised")
        if bound.is_wildcard and advertised is None:
            yield (
                f"{told(f'listeners.{name}')}: {who} cannot connect to a wildcard address; "
                f"name the address to advertise with --advertise-{name} HOST:PORT"
            )
    for name, who in (("kafka", "clients"), ("http", "clients"), ("internal", "other nodes")):
        advertised = getattr(listeners, f"{name}_advertised")
        if advertised is not None and advertised.is_wildcard:
            yield (
                f"{told(f'listeners.{name}_advertised')}: {who} cannot connect to a wildcard "
                "address; name a host"
            )


def _what_does_not_fit(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    # Percent-encoding may turn each byte of a batch into three.
    if 3 * settings.sqs.message_bytes_max > listeners.http_body_bytes_max:
        yield (
            f"{told('sqs.message_bytes_max')} does not fit into a request body: "
            f"{told('listeners.http_body_bytes_max')} must be at least three times as large"
        )
    for name in ("http_body_bytes_max", "request_bytes_max"):
        if getattr(listeners, name) > listeners.receive_buffer_bytes_total_max:
            yield (
                f"{told(f'listeners.{name}')} does not fit into "
                f"{told('listeners.receive_buffer_bytes_total_max')}"
            )
    if settings.topics.message_bytes_max > listeners.request_bytes_max:
        yield (
            f"{told('topics.message_bytes_max')} does not fit into a request: "
            f"{told('listeners.request_bytes_max')}"
        )


def _senseless_times(settings: Settings, told: _Tell) -> Iterator[str]:
    groups, cluster, compaction = settings.groups, settings.cluster, settings.compaction
    if groups.session_ms_min > groups.session_ms_max:
        yield f"{told('groups.session_ms_min')} is above {told('groups.session_ms_max')}"
    if groups.consumer_heartbeat_ms >= groups.consumer_session_ms:
        yield (
            f"{told('groups.consumer_heartbeat_ms')} must be shorter than "
            f"{told('groups.consumer_session_ms')}"
        )
    if 2 * cluster.heartbeat_ms > cluster.session_ms:
        yield (
            f"{told('cluster.heartbeat_ms')} must be at most half of {told('cluster.session_ms')}, "
            "or one lost heartbeat would count as a failed node"
        )
    if UNLIMITED != compaction.lag_max_ms < compaction.lag_min_ms:
        yield f"{told('compaction.lag_min_ms')} is above {told('compaction.lag_max_ms')}"


def _nodes(settings: Settings, told: _Tell) -> Iterator[str]:
    cluster = settings.cluster
    if cluster.peers and cluster.discovery is not None:
        yield (
            f"{told('cluster.peers')} and {told('cluster.discovery')} both define the initial "
            "voters; use one of them"
        )
    if cluster.secret and cluster.secret_file is not None:
        yield (
            f"{told('cluster.secret')} and {told('cluster.secret_file')} both define the secret; "
            "use one of them"
        )
    if cluster.secret_previous and not cluster.secret:
        yield f"{told('cluster.secret_previous')} needs cluster.secret, the current secret"
    tls = ("tls_certificate", "tls_key", "tls_authorities")
    absent = [f"cluster.{one}" for one in tls if getattr(cluster, one) is None]
    if 0 < len(absent) < len(tls):
        given = next(told(f"cluster.{one}") for one in tls if f"cluster.{one}" not in absent)
        yield f"{given} needs {' and '.join(absent)} too; give all three, or none"


def _is_null(node: Any) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _hint(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _yaml_scalar(text: str) -> str:
    is_plain = text == "-1" or re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._/-]*", text)
    return text if is_plain else "'" + text.replace("'", "''") + "'"
