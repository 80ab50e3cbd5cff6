"""Every setting of a node: its name, default, range and reason, and how it is read.

A setting comes from a flag, else from the environment, else from the YAML file, else from its
default below. All of it is read once, at start, and every problem is reported at once. A room
receives its own section as a value; it never sees the whole, the environment or the file.
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

from goqueue.model.errors import InvalidSettings
from goqueue.setting_kinds import (
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
from goqueue.setting_kinds import UNLIMITED as UNLIMITED
from goqueue.setting_kinds import Address as Address
from goqueue.setting_kinds import Secret as Secret

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
    """What the table knows about a setting besides its default."""

    kind: Kind[object]
    why: str
    flag: str = ""


# A section is an ordinary dataclass; these put the rule of a setting beside its default.


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
    """Who this node is and where it keeps its data."""

    id: int = _count(
        1, "the number by which clients know this broker", least=0, most=INT32_MAX, flag="--node-id"
    )
    cluster_id: str = _setting(
        "", Word(64), "empty makes one at the first start and keeps it with the data"
    )
    data_dir: Path = _setting(
        Path("data"), Folder(), "a first try needs no root rights", "--data-dir"
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Which nodes belong together, and how soon one is missed."""

    peers: str = _setting(
        "",
        Peers(),
        "the first voters of a new cluster, the same list at each of them; empty is a single node",
        "--peers",
    )
    discovery: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "a name that resolves to the addresses of all nodes; an alternative to peers",
    )
    discovery_count: int = _count(
        3, "addresses to wait for before a new cluster is formed with discovery", most=9
    )
    join_only: bool = _setting(
        False,
        Switch(),
        "for an empty disk in place of a lost one: there is a cluster already, so never found one",
        "--join",
    )
    secret_file: Path | None = _setting(
        None,
        Optional(File()),
        "what nodes know each other by: a line with the secret, and while it is changed a second "
        "one with the old secret; `goqueue cluster secret` makes it",
        "--secret-file",
    )
    secret: str = _setting(
        "", Secret(), "the same in a setting, for where files are harder to hand out"
    )
    secret_previous: str = _setting(
        "", Secret(), "the secret before this one, which other nodes may still have"
    )
    tls_certificate: Path | None = _setting(
        None,
        Optional(File()),
        "what this node shows to others, PEM, with the hosts it is found at; new ones are noticed",
    )
    tls_key: Path | None = _setting(
        None, Optional(File()), "the private key of the certificate, PEM, without a password"
    )
    tls_authorities: Path | None = _setting(
        None,
        Optional(File()),
        "who signs the certificates of nodes, PEM; best an authority that signs nothing else",
    )
    rack: str = _setting("", Word(64), "replicas of a partition are kept in different racks")
    heartbeat_ms: int = _duration(500, "four chances within a session", least=10, most=MINUTE_MS)
    session_ms: int = _duration(
        2 * SECOND_MS,
        "a silent node loses its partitions after this, and a silent controller is replaced after "
        "half of it, but not within 1s; shorter takes pauses for deaths",
        least=50,
        most=10 * MINUTE_MS,
    )
    replication_factor: int = _count(
        3,
        "copies of a new topic whose creator does not say; fewer when there are fewer nodes",
        most=15,
    )
    rebalance_ms: int = _duration(
        5 * SECOND_MS, "how often leaders go back to where they are spread evenly", least=100
    )
    leader_moves_max: int = _count(
        200, "leaders that go back at once; clients of each look for it anew"
    )

    @property
    def has_tls(self) -> bool:
        """Whether nodes encrypt what they say to each other, and prove who they are."""
        return self.tls_certificate is not None


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """How copies of a partition keep up with each other."""

    lag_ms: int = _duration(
        10 * SECOND_MS,
        "a follower that was behind for so long no longer counts; time alone decides, not distance",
        least=100,
        most=HOUR_MS,
    )
    retry_ms: int = _duration(
        200, "before something that failed is tried again", least=10, most=MINUTE_MS
    )
    fetch_bytes_max: int = _size(
        MiB, "of one partition in one answer; one larger batch goes alone", least=KiB, most=64 * MiB
    )
    catch_up_bytes_per_second: int = _size(
        UNLIMITED,
        "what a node sends to all copies that are not in sync; they come last in any case",
        least=UNLIMITED,
    )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where clients connect, and how much of the node one of them may take."""

    kafka: Address = _setting(
        Address("127.0.0.1", 9092),
        HostPort(),
        "loopback only, until someone decides otherwise; port 0 picks a free one",
        "--listen-kafka",
    )
    kafka_advertised: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "the address that clients are told; empty tells them the one that is bound",
        "--advertise-kafka",
    )
    http: Address = _setting(
        Address("127.0.0.1", 8080),
        HostPort(),
        "loopback only, as for Kafka; port 0 picks a free one",
        "--listen-http",
    )
    http_advertised: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "where clients find the HTTP API if it is not at the address that is bound",
        "--advertise-http",
    )
    registry: Address = _setting(
        Address("127.0.0.1", 8081),
        HostPort(),
        "clients of schema registries expect one of their own; the same is at /registry of http",
        "--listen-registry",
    )
    sqs: Address = _setting(
        Address("127.0.0.1", 9324),
        HostPort(),
        "where AWS SDKs find queues; beyond this machine only with sqs.access_keys",
        "--listen-sqs",
    )
    internal: Address = _setting(
        Address("127.0.0.1", 7000),
        HostPort(),
        "for the other nodes of a cluster; a node that is alone does not open it",
        "--listen-internal",
    )
    internal_advertised: Address | None = _setting(
        None,
        Optional(HostPort(port_min=1)),
        "the address that other nodes are told; empty tells them the one that is bound",
        "--advertise-internal",
    )
    allow_unauthenticated: bool = _setting(
        False,
        Switch(),
        "an open port that anybody may write to must be asked for",
        "--allow-unauthenticated",
    )
    connections_max: int = _count(
        10_000, "room for many idle clients; more than that is an accident or an attack"
    )
    connections_per_address_max: int = _count(
        UNLIMITED, "many clients may share one address behind a proxy", least=UNLIMITED
    )
    idle_timeout_ms: int = _duration(
        10 * MINUTE_MS, "longer than the pauses of stock clients, which reconnect at nine minutes"
    )
    request_bytes_max: int = _size(
        100 * MiB, "what Kafka clients expect", least=KiB, most=INT32_MAX
    )
    requests_in_flight_max: int = _count(
        64, "per connection; a client that sends more waits in its socket, not in our memory"
    )
    receive_buffer_bytes_total_max: int = _size(
        128 * MiB,
        "memory for half-received requests of all connections together; when requests have to wait "
        "for it, the connection of the largest one that does not come on is closed",
        least=MiB,
    )
    unsent_bytes_total_max: int = _size(
        128 * MiB,
        "memory for answers of all connections together that clients do not take; beyond it the "
        "connection that has taken nothing for the longest time is closed",
        least=MiB,
    )
    send_buffer_bytes: int = _size(
        256 * KiB,
        "of a Kafka connection: what waits in it stays in the processor's cache until it is read; "
        "-1 lets the system choose, which is better over slow links with long delays",
        least=UNLIMITED,
        most=GiB,
    )
    http_hosts: str = _setting(
        "",
        HostNames(),
        "names besides its own that a node is reached by over HTTP, as that of a load balancer; "
        "others are refused, because a page of another site may be behind them; * takes all",
    )
    http_connections_max: int = _count(
        10_000, "as for Kafka; a stream of events keeps a connection as long as it is read"
    )
    http_idle_timeout_ms: int = _duration(
        75 * SECOND_MS, "longer than the pauses of common clients and proxies", least=SECOND_MS
    )
    http_receive_timeout_ms: int = _duration(
        MINUTE_MS, "a request that trickles in for longer is an attack or useless", least=SECOND_MS
    )
    http_body_bytes_max: int = _size(
        16 * MiB, "room for a batch of large messages", least=KiB, most=INT32_MAX
    )
    http_answer_bytes_max: int = _size(
        16 * MiB, "about the most that one read brings; the next goes on there", least=KiB, most=GiB
    )


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How logs lie on disk, and what an acknowledgement promises."""

    fsync: FsyncMode = _choice(
        "every",
        get_args(FsyncMode),
        "what is acknowledged survives a power cut; one sync serves all that wait for it",
        "--fsync",
    )
    fsync_interval_ms: int = _duration(
        SECOND_MS, "with fsync: interval, the most that a power cut may take", most=HOUR_MS
    )
    commit_journal_bytes: int = _size(
        64 * MiB,
        "with fsync: every, the space that small writes of all logs share until each is synced",
        least=32 * KiB,
        most=GiB,
    )
    segment_bytes: int = _size(
        GiB, "few files, yet retention frees space in steps of one", least=KiB, most=INT32_MAX
    )
    segment_ms: int = _duration(
        7 * DAY_MS, "a quiet log must roll too, or its oldest record would never expire"
    )
    index_interval_bytes: int = _size(
        4 * KiB, "one index entry per page of log: a look-up reads at most one more", most=MiB
    )
    retention_ms: int = _duration(7 * DAY_MS, "a week to notice a broken consumer", least=UNLIMITED)
    retention_bytes: int = _size(
        UNLIMITED, "per partition; age alone decides until someone knows the disk", least=UNLIMITED
    )
    retention_check_ms: int = _duration(
        30 * SECOND_MS, "often enough that a full disk recovers without help", least=100
    )
    free_bytes_min: int = _size(
        64 * MiB, "below it writes are refused until space is back; reads go on", least=0
    )
    reserve_bytes: int = _size(
        16 * MiB, "held back so that a node whose disk has no free byte can start", least=0
    )
    open_files_max: int = _count(
        16_384,
        "files of logs kept open, and at most half of those that the process may have; beyond it "
        "the one opened first is closed, and its next use opens it again",
        least=16,
    )
    write_chunk_bytes: int = _size(
        256 * KiB,
        "larger writes to the page cache run at a third of the speed",
        least=4 * KiB,
        most=64 * MiB,
    )


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When a log that keeps the last value per key is cleaned."""

    enabled: bool = _setting(True, Switch(), "compacted topics only shrink while it runs")
    check_ms: int = _duration(
        15 * SECOND_MS,
        "a check costs a look at each log; while logs are due none is waited for",
        least=100,
    )
    dirty_ratio_min: float = _setting(
        0.5, Ratio(), "each pass rewrites the clean part, so let it halve the log at least"
    )
    tombstone_retention_ms: int = _duration(
        DAY_MS, "a reader slower than this may miss a deletion", least=0
    )
    lag_min_ms: int = _duration(0, "a record may be superseded as soon as it is written", least=0)
    lag_max_ms: int = _duration(
        UNLIMITED, "the dirty ratio alone decides when to clean", least=UNLIMITED
    )
    map_bytes_max: int = _size(
        128 * MiB,
        "memory for the keys of one pass; what does not fit waits for the next",
        least=MiB,
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic is like when its creator does not say."""

    partitions: int = _count(1, "keeps the order of everything", most=10_000)
    topics_max: int = _count(
        20_000,
        "topics of a node or cluster; one more is refused, whoever asks for it",
        least=UNLIMITED,
    )
    partitions_total_max: int = _count(
        100_000,
        "partitions of all topics of a node or cluster; each costs memory and files",
        least=UNLIMITED,
    )
    auto_create: bool = _setting(True, Switch(), "stock clients and tools count on it")
    message_bytes_max: int = _size(
        1_048_588, "Kafka's own limit for a batch, so that clients need no change", most=INT32_MAX
    )
    unpacked_bytes_max: int = _size(
        32 * MiB,
        "what a compressed batch may unpack to; a larger one is refused, and readers that would "
        "have to unpack one that is stored pass over it",
        least=64 * KiB,
        most=INT32_MAX,
    )
    cleanup_policy: CleanupPolicy = _choice(
        "delete", get_args(CleanupPolicy), "keeping only the last value per key is a decision"
    )
    compression: Compression = _choice(
        "producer", get_args(Compression), "stores the producer's bytes untouched"
    )
    timestamp_type: TimestampType = _choice(
        "CreateTime", get_args(TimestampType), "the producer knows when it happened"
    )
    delete_enabled: bool = _setting(True, Switch(), "the owner of a topic may delete it")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What the broker remembers about idempotent producers."""

    id_expiry_ms: int = _duration(
        DAY_MS, "a producer silent for longer starts again; its retries are long over"
    )
    states_per_partition_max: int = _count(
        10_000, "bounds memory when producers come and go; the longest silent is forgotten first"
    )


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Membership and committed offsets of consumer groups."""

    session_ms_min: int = _duration(6 * SECOND_MS, "a shorter session mistakes a pause for a death")
    session_ms_max: int = _duration(
        30 * MINUTE_MS, "a dead member holds its partitions no longer than this"
    )
    initial_rebalance_delay_ms: int = _duration(
        100, "members that start together share the first assignment", least=0, most=10 * MINUTE_MS
    )
    size_max: int = _count(
        10_000, "members of one group; every assignment looks at all of them", least=UNLIMITED
    )
    per_partition_max: int = _count(
        20_000,
        "groups remembered in one partition of the offsets topic; one more is refused",
        least=UNLIMITED,
    )
    offsets_partitions: int = _count(
        16, "groups spread over these logs; fixed once the first offset is committed", most=10_000
    )
    offsets_retention_ms: int = _duration(7 * DAY_MS, "how long an empty group is remembered")
    offset_metadata_bytes_max: int = _size(
        4 * KiB, "a note beside an offset, not a payload", least=0, most=MiB
    )
    consumer_heartbeat_ms: int = _duration(
        5 * SECOND_MS,
        "told to members whose assignment the broker computes; where there are few of them, less",
    )
    consumer_session_ms: int = _duration(
        45 * SECOND_MS, "nine missed heartbeats, as Kafka clients are tuned for"
    )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Atomic writes over several partitions."""

    state_partitions: int = _count(
        16, "transactions spread over these logs; fixed once the first is begun", most=1000
    )
    timeout_ms_max: int = _duration(
        15 * MINUTE_MS, "an open transaction holds up its readers no longer than this", least=1
    )
    prepared_timeout_ms_max: int = _duration(
        DAY_MS,
        "a prepared transaction waits no longer for the commit of its epoch",
        least=1,
        most=INT32_MAX,
    )
    id_expiration_ms: int = _duration(
        7 * DAY_MS, "how long a transactional id that nobody uses is remembered"
    )
    query_expiration_ms: int = _duration(
        366 * DAY_MS, "a query that stops for longer may write its last epoch again"
    )
    ids_max: int = _count(100_000, "transactional ids remembered; one more is refused")


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Queue groups: where their state is kept, and what serving them may cost."""

    partitions: int = _count(
        8, "the state of queue groups spreads over these logs; fixed once one exists", most=1000
    )
    snapshot_bytes: int = _size(
        16 * MiB,
        "journal written before it is summed up; a start reads at most a few of it",
        least=4 * KiB,
    )
    batch_cache_bytes: int = _size(
        32 * MiB, "decoded batches kept for the next receive, so that each is decoded once"
    )
    receive_bytes_max: int = _size(
        16 * MiB, "contents of the messages in one answer; one message always fits", least=KiB
    )
    waiting_max: int = _count(
        10_000, "receive calls that wait for messages; one more is answered empty at once"
    )
    lanes_save_ms: int = _duration(
        MINUTE_MS, "how much of a log a start after a crash reads again for its lanes", least=100
    )


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Messages that are to appear later."""

    partitions: int = _count(
        4, "delayed messages spread over these logs; fixed once the first one waits", most=1000
    )
    checkpoint_ms: int = _duration(
        MINUTE_MS, "how much of their logs a start after a crash reads again", least=100
    )
    store_timeout_ms: int = _duration(
        10_000,
        "how long a batch waits for its delayed records to be stored; shorter than clients wait",
        least=100,
    )
    waiting_bytes_max: int = _size(
        64 << 20, "all batches that wait for that on one node; further ones are refused, retryable"
    )


@dataclass(frozen=True, slots=True)
class SqsSettings:
    """Clients of SQS: who they are, and where they may go beyond what AWS allows."""

    access_keys: tuple[tuple[str, str], ...] = _setting(
        (),
        AccessKeys(),
        "ID:SECRET pairs that requests must be signed with; empty lets in all of this machine",
    )
    region: str = _setting(
        "us-east-1", Word(50), "in the ARNs of queues; requests signed for another one are refused"
    )
    account_id: str = _setting(
        "000000000000",
        Digits(12),
        "in the addresses and ARNs of queues; requests that name another one are refused",
    )
    message_bytes_max: int = _size(
        MiB, "what AWS allows for a message and for a batch", least=KiB, most=GiB
    )
    long_delays: bool = _setting(
        False, Switch(), "DelaySeconds beyond the 900 of AWS, up to a hundred years"
    )
    names_rest: bool = _setting(
        False, Switch(), "refuse the name of a queue for a minute after it was deleted, as AWS does"
    )


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How much reading costs."""

    sessions_max: int = _count(
        1_000, "remembered partition lists; a reader without one sends the whole list", least=0
    )
    bytes_max: int = _size(
        55 * MiB, "cap of one answer, above what stock clients ask for", least=KiB, most=INT32_MAX
    )


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """What the node says about itself."""

    level: LogLevel = _choice(
        "info", get_args(LogLevel), "starts, stops and troubles, nothing per request", "--log-level"
    )
    format: LogFormat = _choice("text", get_args(LogFormat), "read by people first")


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections of one node, and where each value came from."""

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
        """Names in the environment: the systematic one, then that of the flag if it has one."""
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

    `file` defaults to what GOQUEUE_CONFIG names in `environ`. The keys of `overrides` are flags
    as the user typed them (`--fsync`), or `section.name` for what came by `--set`.
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
    """The settings as a YAML file that says where each value comes from."""
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
    """Collects what the sources say, and every problem with it."""

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
            if not text:  # how shells and compose files leave a variable out
                continue
            if name in names:
                self._add(layer, names[name], _Given(text, f"environment {name}"))
            elif name.startswith(_PREFIX) and name != FILE_VARIABLE:
                # Only what resembles a setting is a typing error. Other GOQUEUE_ variables are
                # not ours to judge: Kubernetes makes GOQUEUE_PORT for a service of that name.
                hint = _hint(name, names, cutoff=0.85)
                if hint:
                    self.problems.append(f"{name}: no such setting{hint} (environment)")
        return layer

    def from_file(self, file: Path) -> _Layer:
        # Imported here because a node without a settings file does not need it.
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
        """Take each setting from the first layer that has it, and check that all agree."""
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
        """The keys of a YAML mapping with their values and places; anything else is a problem."""
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
                self.problems.append(f"{what}: a name must be a word ({place})")
                continue
            if key.value in seen:
                self.problems.append(f"{key.value}: stands twice in {what} ({place})")
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
    """Settings that are each allowed but do not hold together, one sentence per fault."""

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
                f"{told(f'listeners.{name}')}: listens beyond this machine without authentication; "
                "pass --allow-unauthenticated if that is meant"
            )
    if not listeners.sqs.is_loopback and not settings.sqs.access_keys:
        yield (
            f"{told('listeners.sqs')}: listens beyond this machine without keys; give some "
            "(sqs.access_keys), which clients then sign their requests with"
        )


def _senseless_addresses(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    for name, who in (("kafka", "clients"), ("internal", "other nodes")):
        bound, advertised = getattr(listeners, name), getattr(listeners, f"{name}_advertised")
        if bound.is_wildcard and advertised is None:
            yield (
                f"{told(f'listeners.{name}')}: {who} cannot be told to connect to every address; "
                f"name one with --advertise-{name} HOST:PORT"
            )
    for name, who in (("kafka", "clients"), ("http", "clients"), ("internal", "other nodes")):
        advertised = getattr(listeners, f"{name}_advertised")
        if advertised is not None and advertised.is_wildcard:
            yield f"{told(f'listeners.{name}_advertised')}: {who} cannot connect to every address"


def _what_does_not_fit(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    # A batch of messages may be escaped byte by byte, and three for one at that.
    if 3 * settings.sqs.message_bytes_max > listeners.http_body_bytes_max:
        yield (
            f"{told('sqs.message_bytes_max')} does not fit into a body: "
            f"{told('listeners.http_body_bytes_max')} must be at least three times as much"
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
            "or one lost heartbeat is a lost node"
        )
    if UNLIMITED != compaction.lag_max_ms < compaction.lag_min_ms:
        yield f"{told('compaction.lag_min_ms')} is above {told('compaction.lag_max_ms')}"


def _nodes(settings: Settings, told: _Tell) -> Iterator[str]:
    cluster = settings.cluster
    if cluster.peers and cluster.discovery is not None:
        yield (
            f"{told('cluster.peers')} and {told('cluster.discovery')} both say who the first "
            "voters are; use one of them"
        )
    if cluster.secret and cluster.secret_file is not None:
        yield (
            f"{told('cluster.secret')} and {told('cluster.secret_file')} both say what the secret "
            "is; use one of them"
        )
    if cluster.secret_previous and not cluster.secret:
        yield f"{told('cluster.secret_previous')} needs cluster.secret, the one after it"
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
