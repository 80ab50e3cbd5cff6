"""`goqueue.Client`: the whole HTTP API, for programs with or without threads.

    from goqueue import Client

    with Client("127.0.0.1:8080") as client:
        client.topics.create("orders", partitions=3)
        client.publish("orders", "hello", key="customer-7")
        for message in client.queue("orders", group="billing").receive(wait=5):
            ...

Many threads may use one client; its connections are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from goqueue.client.http.api import HTTP, Api
from goqueue.client.http.areas import (
    Acls,
    Audit,
    Backups,
    Cluster,
    DeadLetters,
    Groups,
    Journeys,
    Keys,
    Node,
    Queue,
    Quotas,
    Reports,
    Roles,
    Schedules,
    Tenants,
    Topics,
    Users,
)
from goqueue.client.http.batching import ProducerSettings
from goqueue.client.http.consumers.consumer import Consumer
from goqueue.client.http.consumers.membership import Membership, OnRebalance, StreamSettings
from goqueue.client.http.consumers.stream_consumer import StreamConsumer
from goqueue.client.http.consumers.workload import ConsumerSettings
from goqueue.client.http.messages import Acks, Data, Outgoing, Published
from goqueue.client.http.moments import Duration, Position, duration_ms
from goqueue.client.http.names import new_consumer_name, new_member_id, topic_names
from goqueue.client.http.producer import Producer, publish_all
from goqueue.client.http.reading import FOLLOW_WAIT_SECONDS, MessageReader, OnDamage, Progress
from goqueue.client.http.request import Sender
from goqueue.client.http.requests.acls import AclRequests, RoleRequests
from goqueue.client.http.requests.audit import AuditRequests
from goqueue.client.http.requests.backups import BackupRequests
from goqueue.client.http.requests.cluster import ClusterRequests
from goqueue.client.http.requests.journeys import JourneyRequests
from goqueue.client.http.requests.members import MemberRequests
from goqueue.client.http.requests.messages import MessageRequests
from goqueue.client.http.requests.node import NodeRequests
from goqueue.client.http.requests.queries import QueryRequests
from goqueue.client.http.requests.quotas import QuotaRequests
from goqueue.client.http.requests.reports import ReportRequests
from goqueue.client.http.requests.schemas import SchemaRequests
from goqueue.client.http.requests.tenants import TenantRequests
from goqueue.client.http.requests.transactions import TIMEOUT_SECONDS
from goqueue.client.http.requests.users import KeyRequests, UserRequests
from goqueue.client.http.schemas import Schemas
from goqueue.client.http.settings import ADDRESS_DEFAULT, Access, HttpSettings, secured
from goqueue.client.http.shells import Shell, call
from goqueue.client.http.steps import run_steps
from goqueue.client.http.transactions import Queries, Script, Transaction, Transactions
from goqueue.client.http.transport import Transport
from goqueue.client.security.http import ClientCertificate
from goqueue.client.security.settings import Secret
from goqueue.wire.http.bodies.groups import PartitionReset
from goqueue.wire.http.fields import Start


class Client(Shell[MessageRequests]):
    """A client of the HTTP API of a broker.

    It sends an API key, or a user and a password: arguments, else `settings.login`, else the
    environment (GOQUEUE_API_KEY, or GOQUEUE_USER and GOQUEUE_PASSWORD). An https address is
    verified with `ca_file`, GOQUEUE_CA_FILE, or the authorities of the system. A client
    certificate is one PEM file, or two: the certificate and its key.
    """

    def __init__(
        self,
        address: str = ADDRESS_DEFAULT,
        settings: HttpSettings | None = None,
        *,
        api_key: Secret | None = None,
        username: str | None = None,
        password: Secret | None = None,
        ca_file: str | None = None,
        client_certificate: ClientCertificate | None = None,
    ) -> None:
        access = Access(
            api_key=api_key,
            username=username,
            password=password,
            ca_file=ca_file,
            client_certificate=client_certificate,
        )
        self._begin(HTTP, Transport(*secured(address, settings, access)))

    def _begin(self, api: Api, transport: Sender) -> None:
        """Make the areas of this client."""
        super().__init__(api.messages, transport)
        self._api = api
        self.topics = Topics(api.topics, self._transport)
        self.groups = Groups(api.groups, self._transport)
        self.transactions = Transactions(api.transactions, self._transport)
        self.queries = Queries(QueryRequests(), self._transport)
        self.schedules = Schedules(api.schedules, self._transport)
        self.schemas = Schemas(SchemaRequests(), self._transport)
        self.journeys = Journeys(JourneyRequests(), self._transport)
        self.audit = Audit(AuditRequests(), self._transport)
        self.backups = Backups(BackupRequests(), self._transport)
        self.acls = Acls(AclRequests(), self._transport)
        self.roles = Roles(RoleRequests(), self._transport)
        self.tenants = Tenants(TenantRequests(), self._transport)
        self.users = Users(UserRequests(), self._transport)
        self.keys = Keys(KeyRequests(), self._transport)
        self.quotas = Quotas(QuotaRequests(), self._transport)
        self.reports = Reports(ReportRequests(), self._transport)
        self.node = Node(NodeRequests(), self._transport)
        self.cluster = Cluster(ClusterRequests(), self._transport)

    publish = call(MessageRequests.publish)
    read_page = call(MessageRequests.read_page)
    read_one = call(MessageRequests.read_one)
    search_page = call(MessageRequests.search_page)

    def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Data], *, acks: Acks = "all"
    ) -> list[Published]:
        """Publish messages in order; raise `PartlyPublished` if some were not published."""
        return run_steps(publish_all(topic, messages, acks, self._requests), self._transport)

    def producer(self, settings: ProducerSettings | None = None, *, acks: Acks = "all") -> Producer:
        """Publish in the background, in batches, with a future for each message."""
        return Producer(self._transport, settings or ProducerSettings(), acks, self._requests)

    def read(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        from_: Position | None = None,
        until: Position | None = None,
        cursor: str = "",
        limit: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> MessageReader:
        """Read the messages of a topic from a position, up to `until` or to the end."""
        progress = Progress(
            topic,
            partition,
            offset,
            from_,
            until,
            False,
            limit,
            on_damage,
            cursor,
            api=self._api,
        )
        return MessageReader(self._transport, progress, 0)

    def follow(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        from_: Position | None = "latest",
        cursor: str = "",
        limit: int | None = None,
        wait: Duration = FOLLOW_WAIT_SECONDS,
        on_damage: OnDamage | None = None,
    ) -> MessageReader:
        """Read the messages of a topic as they arrive, until the reader is closed.

        Its `cursor` can be stored, and given to another reader that continues there.
        """
        begin = None if offset is not None else from_
        progress = Progress(
            topic,
            partition,
            offset,
            begin,
            None,
            True,
            limit,
            on_damage,
            cursor,
            api=self._api,
        )
        return MessageReader(self._transport, progress, wait)

    def queue(self, topic: str, *, group: str, consumer: str | None = None) -> Queue:
        """The messages of a topic for a queue group; the first receive creates the group."""
        requests = self._api.queue(topic, group, consumer or new_consumer_name())
        return Queue(requests, self._transport)

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        concurrency: int = 8,
        prefetch: int | None = None,
        visibility: Duration = 30,
        shutdown: Duration = 30,
        name: str | None = None,
    ) -> Consumer:
        """Call a handler for each message of a queue; see `Consumer`."""
        settings = ConsumerSettings(
            concurrency=concurrency,
            prefetch=prefetch,
            visibility_ms=duration_ms(visibility),
            shutdown_ms=duration_ms(shutdown),
        )
        requests = self._api.queue(topic, group, name or new_consumer_name())
        return Consumer(self._transport, requests, settings)

    def stream_consumer(
        self,
        topics: str | Iterable[str] = (),
        *,
        group: str,
        topic_pattern: str = "",
        start: Start = "earliest",
        auto_commit: bool = True,
        limit: int = 500,
        poll_interval_max: Duration = 300,
        instance_id: str | None = None,
        on_rebalance: OnRebalance | None = None,
        on_reset: Callable[[PartitionReset], object] | None = None,
        on_damage: OnDamage | None = None,
    ) -> StreamConsumer:
        """Read topics as a member of a stream group; see `StreamConsumer`."""
        settings = StreamSettings(
            topics=topic_names(topics),
            topic_pattern=topic_pattern,
            start=start,
            auto_commit=auto_commit,
            limit=limit,
            poll_ms_max=duration_ms(poll_interval_max),
            on_rebalance=on_rebalance,
            on_reset=on_reset,
            on_damage=on_damage,
        )
        requests = MemberRequests(group, new_member_id(), instance_id)
        return StreamConsumer(self._transport, Membership(requests, settings))

    def dead_letters(self, topic: str, *, dead_letter_topic: str | None = None) -> DeadLetters:
        """The dead letters of a topic, and the jobs that redrive them."""
        return DeadLetters(self._api.dead_letters(topic, dead_letter_topic), self._transport)

    def transaction(
        self, transactional_id: str | None = None, *, timeout: Duration = TIMEOUT_SECONDS
    ) -> Transaction:
        """Begin a transaction: the effects of its block become visible together or not at all.

        Use a fixed `transactional_id` for a writer that restarts: beginning a transaction with it
        aborts the one that its previous run left open. The broker aborts a transaction that does
        not end within `timeout`.
        """
        return Transaction(
            self._transport, Script(transactional_id, timeout, self._api.transactions)
        )

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
