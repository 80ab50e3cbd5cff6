"""Cluster metadata (brokers, topics, coordinators), and calls that retry on stale metadata.

A `Cluster` belongs to one thread. It opens connections on demand, keeps them, and discards its
metadata whenever a response shows that it is stale.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from goqueue.client.addresses import Address, read_addresses
from goqueue.client.backoff import Backoff
from goqueue.client.connection import Codec, Connection, Pending
from goqueue.client.errors import (
    BrokerUnready,
    ConnectionLost,
    ErrorContext,
    HungUp,
    SecretRefused,
    Unreachable,
    check,
)
from goqueue.client.settings import ClientSettings
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    RequestTimedOut,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import find_coordinator, metadata

Request = TypeVar("Request")
Response = TypeVar("Response")
T = TypeVar("T")

GROUP_KEY = 0
TRANSACTION_KEY = 1
NO_NODE = -1
# Waiting does not create a missing topic, except right after its creation was requested.
MISSING = (UnknownTopic, UnknownPartition)
_FINAL_AT_FIRST = (Unreachable, HungUp, SecretRefused)


class Link(Protocol):
    """A connection, or a replacement in tests."""

    is_open: bool

    def offers(self, codec: Codec[Any, Any]) -> bool: ...
    def version_of(self, codec: Codec[Any, Any]) -> int: ...
    def call(
        self, codec: Codec[Request, Response], request: Request, *, extra_ms: int = 0
    ) -> Response: ...
    def send(self, codec: Codec[Request, Response], request: Request) -> Pending[Response]: ...
    def send_only(self, codec: Codec[Request, Response], request: Request) -> None: ...
    def receive(self, pending: Pending[Response], *, extra_ms: int = 0) -> Response: ...
    def close(self) -> None: ...


Connect = Callable[[Address, ClientSettings], Link]


@dataclass(frozen=True, slots=True)
class Node:
    """One broker."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The leader and the replicas of a partition."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the brokers describe it."""

    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[PartitionView, ...]

    @property
    def names(self) -> list[TopicPartition]:
        """The names of its partitions."""
        return [TopicPartition(self.name, each.index) for each in self.partitions]


class Cluster:
    """The brokers behind a bootstrap address."""

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        connect: Connect = Connection.open,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bootstrap = read_addresses(bootstrap)
        self.settings = settings or ClientSettings()
        self.rng = rng or random.Random()
        self.clock = clock
        self.sleep = sleep
        self.cluster_id = ""
        self.controller_id = NO_NODE
        self._connect = connect
        self._links: dict[Address, Link] = {}
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, tuple[float, TopicView]] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._was_reached = False

    def close(self) -> None:
        """Close every connection."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def forget(self) -> None:
        """Discard all metadata; it is requested again when needed."""
        self._topics.clear()
        self._coordinators.clear()

    # Metadata

    def nodes(self) -> list[Node]:
        """The brokers that are up."""
        self._ask_metadata([])
        return sorted(self._nodes.values(), key=lambda node: node.id)

    def topics(self) -> list[TopicView]:
        """All topics, by name."""
        response = self._ask_metadata(None)
        for topic in response.topics:
            check(topic.error_code, None, ErrorContext(topic.name or ""))
        return sorted(map(_topic_view, response.topics), key=lambda topic: topic.name)

    def topic(self, name: str, *, is_created: bool = False) -> TopicView:
        """Describe one topic; `is_created` allows the broker to create it, if so configured."""
        known = self.known_topic(name)
        if known is not None:
            return known
        response = self._ask_metadata([name], is_created=is_created)
        for topic in response.topics:
            check(topic.error_code, None, ErrorContext(name))
        view = _topic_view(response.topics[0])
        expires = self.clock() + self.settings.metadata_age_ms_max / 1000
        self._topics[name] = expires, view
        return view

    def known_topic(self, name: str) -> TopicView | None:
        """The cached metadata of a topic, without a request."""
        known = self._topics.get(name)
        return known[1] if known is not None and self.clock() < known[0] else None

    def leader_of(self, partition: TopicPartition) -> Node:
        """The leader of a partition."""
        view = self.topic(partition.topic)
        for each in view.partitions:
            if each.index == partition.partition:
                if each.leader not in self._nodes:
                    self._topics.pop(partition.topic, None)
                    raise BrokerUnready(f"{partition} has no leader at the moment.")
                return self._nodes[each.leader]
        raise UnknownPartition(partition)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Node, dict[str, list[int]]]:
        """Group partitions for requests to leaders: by broker, then by topic."""
        found: dict[Node, dict[str, list[int]]] = {}
        for each in partitions:
            topics = found.setdefault(self.leader_of(each), {})
            topics.setdefault(each.topic, []).append(each.partition)
        return found

    def coordinator_of(self, name: str, *, key_type: int = GROUP_KEY) -> Address:
        """The coordinator of a group, or of a transactional id."""
        key = key_type, name
        if key not in self._coordinators:
            request = find_coordinator.FindCoordinatorRequest(
                key_type=key_type, coordinator_keys=[name]
            )
            response = self.call_any(find_coordinator, request)
            if not response.coordinators:
                raise CoordinatorNotAvailable(f"No broker coordinates {name!r} yet.")
            found = response.coordinators[0]
            is_group = key_type == GROUP_KEY
            about = ErrorContext(group=name) if is_group else ErrorContext(transaction=name)
            check(found.error_code, found.error_message, about)
            self._coordinators[key] = Address(found.host, found.port)
        return self._coordinators[key]

    # Calls

    def link(self, address: Address) -> Link:
        """A connection to a broker, opened if necessary."""
        link = self._links.get(address)
        if link is None or not link.is_open:
            link = self._connect(address, self.settings)
            self._links[address] = link
        return link

    def call_any(
        self,
        codec: Codec[Request, Response],
        request: Request,
        *,
        first: Iterable[Address] = (),
    ) -> Response:
        """Send a request to any broker that responds, the preferred ones first."""
        failure: GoQueueError | None = None
        for address in self._candidates(first):
            try:
                response = self.link(address).call(codec, request)
            except (Unreachable, ConnectionLost, RequestTimedOut) as error:
                failure = failure or error
            else:
                self._was_reached = True
                return response
        assert failure is not None, "there is always a bootstrap address"
        raise failure

    def call_controller(self, codec: Codec[Request, Response], request: Request) -> Response:
        """Send a request to the controller; any other broker forwards such a request."""
        node = self._nodes.get(self.controller_id)
        return self.call_any(codec, request, first=[node.address] if node else [])

    def call_coordinator(
        self,
        name: str,
        codec: Codec[Request, Response],
        request: Request,
        *,
        key_type: int = GROUP_KEY,
    ) -> Response:
        """Send a request to the coordinator of a group or a transactional id."""
        return self.link(self.coordinator_of(name, key_type=key_type)).call(codec, request)

    def call_leaders(
        self,
        codec: Codec[Request, Response],
        requests: Mapping[Node, Request],
        *,
        extra_ms: int = 0,
    ) -> list[Response]:
        """Send requests to several brokers concurrently."""
        sent = []
        for node, request in requests.items():
            link = self.link(node.address)
            sent.append((link, link.send(codec, request)))
        return [link.receive(pending, extra_ms=extra_ms) for link, pending in sent]

    def retrying(
        self,
        attempt: Callable[[], T],
        *,
        final: tuple[type[GoQueueError], ...] = MISSING,
        ms_max: int | None = None,
    ) -> T:
        """Run `attempt` until it succeeds, fails permanently, or the retry timeout has passed."""
        backoff = self.backoff()
        patience_ms = self.settings.retry_ms_max if ms_max is None else ms_max
        deadline = self.clock() + patience_ms / 1000
        while True:
            try:
                return attempt()
            except GoQueueError as error:
                wait = backoff.next_ms() / 1000
                if not self.is_worth_retrying(error, final) or self.clock() + wait > deadline:
                    raise
            self.forget()
            self.sleep(wait)

    def is_worth_retrying(
        self, error: GoQueueError, final: tuple[type[GoQueueError], ...] = ()
    ) -> bool:
        """Whether the same call may succeed later."""
        # A broker that never responded is more likely a wrong address, or a listener that requires
        # TLS or credentials, than a restart; a secret that never worked is a wrong one.
        is_first = not self._was_reached and isinstance(error, _FINAL_AT_FIRST)
        return error.retryable and not isinstance(error, final) and not is_first

    def backoff(self) -> Backoff:
        """A new series of waits between attempts."""
        return Backoff(self.settings.backoff_ms_min, self.settings.backoff_ms_max, self.rng)

    def _ask_metadata(
        self, topics: list[str] | None, *, is_created: bool = False
    ) -> metadata.MetadataResponse:
        wanted = (
            None
            if topics is None
            else [metadata.MetadataRequestTopic(name=name) for name in topics]
        )
        response = self.call_any(metadata, metadata.MetadataRequest(wanted, is_created))
        check(response.error_code)
        if not response.brokers:
            # Such a broker has not loaded its metadata, so what it reports about topics is
            # incomplete.
            raise BrokerUnready(
                "The broker knows no running node of its cluster; `goqueue cluster health --http "
                "HOST:PORT` shows what it waits for."
            )
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        self._nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        return response

    def _candidates(self, first: Iterable[Address]) -> list[Address]:
        """The preferred brokers, then those with a connection, then all known ones."""
        is_live = [address for address, link in self._links.items() if link.is_open]
        known = [node.address for node in self._nodes.values()]
        return list(dict.fromkeys([*first, *is_live, *known, *self.bootstrap]))


def wait_for(cluster: Cluster, topic: str, *, partition_count: int) -> None:
    """Wait until all partitions of a topic that was just created or extended have leaders."""

    def look() -> None:
        cluster.forget()
        view = cluster.topic(topic)
        if len(view.partitions) < partition_count:
            raise BrokerUnready(f"Topic {topic!r} does not have all its partitions yet.")
        for partition in view.names:
            cluster.leader_of(partition)

    with suppress(BrokerUnready):
        cluster.retrying(look, final=())


def _topic_view(topic: metadata.MetadataResponseTopic) -> TopicView:
    partitions = [
        PartitionView(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in topic.partitions
    ]
    partitions.sort(key=lambda each: each.index)
    return TopicView(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))
