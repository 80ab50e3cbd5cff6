"""The listeners and what their connections may consume, and settings of single front ends."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.config.fields import count, duration, setting, size
from goqueue.config.kinds import (
    INT32_MAX,
    MINUTE_MS,
    SECOND_MS,
    UNLIMITED,
    AccessKeys,
    Address,
    Digits,
    GiB,
    HostNames,
    HostPort,
    KiB,
    MiB,
    Optional,
    Switch,
    Word,
)
from goqueue.config.listener_kinds import (
    PLAINTEXT,
    AdvertisedAddresses,
    ListenerAddress,
    Listeners,
    NamedAddress,
)


def _alone(protocol: str, port: int) -> tuple[ListenerAddress, ...]:
    """The default: one listener for clients of this machine."""
    return (ListenerAddress(protocol, PLAINTEXT, Address("127.0.0.1", port)),)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where clients and nodes connect, and the limits on what connections may consume."""

    kafka: tuple[ListenerAddress, ...] = setting(
        _alone("kafka", 9092),
        Listeners("kafka"),
        "addresses of the Kafka listeners, with `ssl://`, `sasl_plaintext://` or `sasl_ssl://` "
        "unless they are plain; loopback only by default; port 0 picks a free port; clients are "
        "sent to the addresses of the listener that they connected to",
        "--listen-kafka",
    )
    kafka_advertised: tuple[NamedAddress, ...] = setting(
        (),
        AdvertisedAddresses(),
        "the addresses advertised to Kafka clients, by listener; the bound one of those that are "
        "not named here",
        "--advertise-kafka",
    )
    http: tuple[ListenerAddress, ...] = setting(
        _alone("http", 8080),
        Listeners("http"),
        "addresses of the HTTP listeners; with `sasl_`, requests must carry credentials",
        "--listen-http",
    )
    http_advertised: tuple[NamedAddress, ...] = setting(
        (),
        AdvertisedAddresses(),
        "the addresses advertised to HTTP clients, by listener; the bound one of those that are "
        "not named here",
        "--advertise-http",
    )
    registry: tuple[ListenerAddress, ...] = setting(
        _alone("registry", 8081),
        Listeners("registry"),
        "addresses of the schema registry, whose clients expect a port of its own; the HTTP "
        "listeners serve it too, under `/registry`",
        "--listen-registry",
    )
    sqs: tuple[ListenerAddress, ...] = setting(
        _alone("sqs", 9324),
        Listeners("sqs"),
        "addresses of the SQS listeners; other than loopback only with `sasl_` or "
        "`sqs.access_keys`",
        "--listen-sqs",
    )
    grpc: tuple[ListenerAddress, ...] = setting(
        (),
        Listeners("grpc", may_be_empty=True, port_default=9000),
        "addresses of the gRPC listeners; without a port it is 9000, as in `127.0.0.1`. There are "
        "none by default: the first client loads a library of 30 MB, and other programs often have "
        "that port. With `sasl_`, calls must carry credentials",
        "--listen-grpc",
    )
    internal: Address = setting(
        Address("127.0.0.1", 7000),
        HostPort(),
        "address for the other nodes of a cluster; a single node does not open it",
        "--listen-internal",
    )
    internal_advertised: Address | None = setting(
        None,
        Optional(HostPort(port_min=1)),
        "the address advertised to other nodes; if empty, the bound one",
        "--advertise-internal",
    )
    allow_unauthenticated: bool = setting(
        False,
        Switch(),
        "required to listen on other than loopback addresses without authentication, because "
        "anybody who can connect can read and write",
        "--allow-unauthenticated",
    )
    connections_max: int = count(
        10_000,
        "connections of a Kafka listener, and as many of the internal one; room for many idle "
        "clients, but more are likely a fault or an attack",
    )
    connections_per_address_max: int = count(
        UNLIMITED,
        "connections of one client address to one listener; many clients may share an address "
        "behind a proxy",
        least=UNLIMITED,
    )
    idle_timeout_ms: int = duration(
        10 * MINUTE_MS,
        "an idle Kafka or internal connection is closed after this; stock Kafka clients reconnect "
        "after nine minutes",
    )
    request_bytes_max: int = size(
        100 * MiB,
        "size of a Produce request; the default is Kafka's. Other requests have at most 8 MiB",
        least=KiB,
        most=INT32_MAX,
    )
    requests_in_flight_max: int = count(
        64,
        "requests in flight per Kafka connection; further ones are not read from the socket",
    )
    receive_buffer_bytes_total_max: int = size(
        128 * MiB,
        "memory for partly received requests of all connections together; when requests have to "
        "wait for it, the connection with the largest stalled request is closed",
        least=MiB,
    )
    unsent_bytes_total_max: int = size(
        128 * MiB,
        "memory for responses of all connections together that clients have not read; beyond it, "
        "the connection that has read nothing for the longest time is closed",
        least=MiB,
    )
    send_buffer_bytes: int = size(
        256 * KiB,
        "socket send buffer of a Kafka connection, small enough to stay in the processor's cache; "
        "-1 lets the system choose, which is better over links with high latency",
        least=UNLIMITED,
        most=GiB,
    )
    http_hosts: str = setting(
        "",
        HostNames(),
        "further host names that HTTP requests may be addressed to, such as that of a load "
        "balancer; others are refused as a protection against DNS rebinding; * accepts all",
    )
    http_connections_max: int = count(
        10_000, "HTTP connections; an event stream occupies one for as long as it is read"
    )
    http_idle_timeout_ms: int = duration(
        75 * SECOND_MS,
        "an idle HTTP connection is closed after this; longer than common clients and proxies keep "
        "one",
        least=SECOND_MS,
    )
    http_receive_timeout_ms: int = duration(
        MINUTE_MS, "time within which a whole HTTP request must be received", least=SECOND_MS
    )
    http_body_bytes_max: int = size(
        16 * MiB,
        "size of an HTTP request body; room for a batch of large messages",
        least=KiB,
        most=INT32_MAX,
    )
    http_answer_bytes_max: int = size(
        16 * MiB,
        "approximate limit of one HTTP read; the next read continues from there",
        least=KiB,
        most=GiB,
    )
    grpc_connections_max: int = count(
        1_000, "gRPC connections; a client needs one, however many calls it makes at a time"
    )
    grpc_streams_max: int = count(
        100, "calls at a time of one gRPC connection, streams included; further ones wait"
    )
    grpc_message_bytes_max: int = size(
        4 * MiB,
        "size of a gRPC message that a client sends; the default is that of gRPC",
        least=KiB,
        most=INT32_MAX,
    )
    grpc_idle_timeout_ms: int = duration(
        30 * MINUTE_MS,
        "an idle gRPC connection, which has no call in progress, is closed after this; clients "
        "reconnect by themselves",
        least=SECOND_MS,
    )
    grpc_keepalive_ms: int = duration(
        2 * MINUTE_MS,
        "silence after which a gRPC client is asked whether it is still there; without an answer "
        "within the same time, at most 20 s, its connection is closed",
        least=SECOND_MS,
    )

    def of_clients(self) -> dict[str, tuple[ListenerAddress, ...]]:
        """Return the listeners for clients, by protocol."""
        return {
            "kafka": self.kafka,
            "http": self.http,
            "registry": self.registry,
            "sqs": self.sqs,
            "grpc": self.grpc,
        }

    def all_of_clients(self) -> list[ListenerAddress]:
        """Return the listeners for clients of every protocol."""
        return [one for listeners in self.of_clients().values() for one in listeners]

    def advertised(self, listener: ListenerAddress) -> Address | None:
        """Return the address to advertise to the clients of a listener, if one is set."""
        of_protocol = ((self.kafka, self.kafka_advertised), (self.http, self.http_advertised))
        for listeners, advertised in of_protocol:
            for one in advertised:
                if (one.name or listeners[0].name) == listener.name:
                    return one.address
        return None


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Limits on Kafka fetch requests."""

    sessions_max: int = count(
        1_000,
        "fetch sessions cached; a consumer without one sends its full list of partitions",
        least=0,
    )
    share_sessions_max: int = count(
        2_000,
        "share sessions; a member of a share group needs one on each node that it reads from",
        least=0,
    )
    bytes_max: int = size(
        55 * MiB,
        "size of one response; above what stock clients request",
        least=KiB,
        most=INT32_MAX,
    )


@dataclass(frozen=True, slots=True)
class SqsSettings:
    """SQS clients: their access keys, and where GoQueue differs from AWS."""

    access_keys: tuple[tuple[str, str], ...] = setting(
        (),
        AccessKeys(),
        "access keys that requests must be signed with; if empty, any client of this machine is "
        "accepted",
    )
    region: str = setting(
        "us-east-1",
        Word(50),
        "region in the ARNs of queues; requests signed for another one are refused",
    )
    account_id: str = setting(
        "000000000000",
        Digits(12),
        "account in the URLs and ARNs of queues; requests that name another one are refused",
    )
    message_bytes_max: int = size(
        MiB, "size of a message and of a batch; the default is that of AWS", least=KiB, most=GiB
    )
    long_delays: bool = setting(
        False, Switch(), "allow DelaySeconds above the 900 of AWS, up to a hundred years"
    )
    names_rest: bool = setting(
        False,
        Switch(),
        "refuse to reuse the name of a queue for a minute after its deletion, as AWS does",
    )
