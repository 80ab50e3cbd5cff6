"""The cluster: its members, how they authenticate, and how replicas keep up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from goqueue.config.fields import count, duration, setting, size
from goqueue.config.kinds import (
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    UNLIMITED,
    Address,
    File,
    HostPort,
    KiB,
    MiB,
    Optional,
    Peers,
    Secret,
    Switch,
    Word,
)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The members of the cluster, how they authenticate, and when one is considered failed."""

    peers: str = setting(
        "",
        Peers(),
        "the initial voters of a new cluster, the same list on each of them; empty: a single node",
        "--peers",
    )
    discovery: Address | None = setting(
        None,
        Optional(HostPort(port_min=1)),
        "a DNS name that resolves to the addresses of all nodes; an alternative to `peers`",
    )
    discovery_count: int = count(
        3, "number of addresses to wait for before discovery forms a new cluster", most=9
    )
    join_only: bool = setting(
        False,
        Switch(),
        "join an existing cluster and never form a new one; for a node whose lost disk was "
        "replaced by an empty one",
        "--join",
    )
    secret_file: Path | None = setting(
        None,
        Optional(File()),
        "file with the secret by which nodes authenticate each other; during a rotation a second "
        "line holds the previous secret; `goqueue cluster secret` creates it",
        "--secret-file",
    )
    secret: str = setting(
        "", Secret(), "the secret itself, for environments where files are harder to distribute"
    )
    secret_previous: str = setting(
        "", Secret(), "the previous secret, which other nodes may still use during a rotation"
    )
    tls_certificate: Path | None = setting(
        None,
        Optional(File()),
        "certificate of this node, PEM, valid for the host names that other nodes connect to; "
        "reloaded when the file changes",
    )
    tls_key: Path | None = setting(
        None, Optional(File()), "private key of the certificate, PEM, without a password"
    )
    tls_authorities: Path | None = setting(
        None,
        Optional(File()),
        "certificate authorities that sign the certificates of nodes, PEM; preferably an authority "
        "that signs nothing else",
    )
    tls_revocation_lists: Path | None = setting(
        None,
        Optional(File()),
        "revocation lists, PEM, one of each authority that signs certificates of nodes, which are "
        "refused while it has none that is up to date; reloaded when the file changes",
    )
    rack: str = setting(
        "", Word(64), "rack of this node; replicas of a partition are placed in different racks"
    )
    heartbeat_ms: int = duration(
        500,
        "interval between heartbeats; four fit into a session",
        least=10,
        most=MINUTE_MS,
    )
    session_ms: int = duration(
        2 * SECOND_MS,
        "a node that sends no heartbeat for this long loses its leaderships; the active controller "
        "is replaced after half of it, but after 1s at least; shorter values take pauses for "
        "failures",
        least=50,
        most=10 * MINUTE_MS,
    )
    replication_factor: int = count(
        3,
        "replicas of a new topic whose creator gives no number; fewer if there are fewer nodes",
        most=15,
    )
    rebalance_ms: int = duration(
        5 * SECOND_MS,
        "how often leadership is moved back to the preferred replicas, which are spread evenly",
        least=100,
    )
    leader_moves_max: int = count(
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

    lag_ms: int = duration(
        10 * SECOND_MS,
        "a follower that has been behind for this long leaves the in-sync replicas; only time "
        "counts, not the number of records",
        least=100,
        most=HOUR_MS,
    )
    retry_ms: int = duration(
        200, "pause before a failed request is retried", least=10, most=MINUTE_MS
    )
    fetch_bytes_max: int = size(
        MiB,
        "bytes of one partition in one fetch response; a larger batch is sent by itself",
        least=KiB,
        most=64 * MiB,
    )
    catch_up_bytes_per_second: int = size(
        UNLIMITED,
        "limit of what a node sends to all replicas that are not in sync; in-sync replicas have "
        "priority in any case",
        least=UNLIMITED,
    )
