"""`goqueue.AsyncClient`: the whole HTTP API, for coroutines.

    from goqueue import AsyncClient

    async with AsyncClient("127.0.0.1:8080") as client:
        await client.publish("orders", "hello", key="customer-7")
        async for message in client.follow("orders"):
            ...

A client belongs to one event loop; its connections are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from goqueue.client.http.api import HTTP, Api
from goqueue.client.http.areas import (
    AsyncAcls,
    AsyncAudit,
    AsyncBackups,
    AsyncCluster,
    AsyncDeadLetters,
    AsyncGroups,
    AsyncJourneys,
    AsyncKeys,
    AsyncNode,
    AsyncQueue,
    AsyncQuotas,
    AsyncReports,
    AsyncRoles,
    AsyncSchedules,
    AsyncTenants,
    AsyncTopics,
    AsyncUsers,
)
from goqueue.client.http.batching import ProducerSettings
from goqueue.client.http.consumers.async_consumer import AsyncConsumer
from goqueue.client.http.consumers.membership import Membership, OnRebalance, StreamSettings
from goqueue.client.http.consumers.stream_consumer import AsyncStreamConsumer
from goqueue.client.http.consumers.workload import ConsumerSettings
from goqueue.client.http.messages import Acks, Data, Outgoing, Published
from goqueue.client.http.moments import Duration, Position, duration_ms
from goqueue.client.http.names import new_consumer_name, new_member_id, topic_names
from goqueue.client.http.producer import AsyncProducer, publish_all
from goqueue.client.http.reading import FOLLOW_WAIT_SECONDS, AsyncMessageReader, OnDamage, Progress
from goqueue.client.http.request import AsyncSender
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
from goqueue.client.http.schemas import AsyncSchemas
from goqueue.client.http.settings import ADDRESS_DEFAULT, Access, HttpSettings, secured
from goqueue.client.http.shells import AsyncShell, async_call
from goqueue.client.http.steps import run_steps_async
from goqueue.client.http.transactions import (
    AsyncQueries,
    AsyncTransaction,
    AsyncTransactions,
    Script,
)
from goqueue.client.http.transport import AsyncTransport
from goqueue.client.security.http import ClientCertificate
from goqueue.client.security.settings import Secret
from goqueue.wire.http.bodies.groups import PartitionReset
from goqueue.wire.http.fields import Start


class AsyncClient(AsyncShell[MessageRequests]):
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
        self._begin(HTTP, AsyncTransport(*secured(address, settings, access)))

    def _begin(self, api: Api, transport: AsyncSender) -> None:
        """Make the areas of this client."""
        super().__init__(api.messages, transport)
        self._api = api
        self.topics = AsyncTopics(api.topics, self._transport)
        self.groups = AsyncGroups(api.groups, self._transport)
        self.transactions = AsyncTransactions(api.transactions, self._transport)
        self.queries = AsyncQueries(QueryRequests(), self._transport)
        self.schedules = AsyncSchedules(api.schedules, self._transport)
        self.schemas = AsyncSchemas(SchemaRequests(), self._transport)
        self.journeys = AsyncJourneys(JourneyRequests(), self._transport)
        self.audit = AsyncAudit(AuditRequests(), self._transport)
        self.backups = AsyncBackups(BackupRequests(), self._transport)
        self.acls = AsyncAcls(AclRequests(), self._transport)
        self.roles = AsyncRoles(RoleRequests(), self._transport)
        self.tenants = AsyncTenants(TenantRequests(), self._transport)
        self.users = AsyncUsers(UserRequests(), self._transport)
        self.keys = AsyncKeys(KeyRequests(), self._transport)
        self.quotas = AsyncQuotas(QuotaRequests(), self._transport)
        self.reports = AsyncReports(ReportRequests(), self._transport)
        self.node = AsyncNode(NodeRequests(), self._transport)
        self.cluster = AsyncCluster(ClusterRequests(), self._transport)

    publish = async_call(MessageRequests.publish)
    read_page = async_call(MessageRequests.read_page)
    read_one = async_call(MessageRequests.read_one)
    search_page = async_call(MessageRequests.search_page)

    async def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Data], *, acks: Acks = "all"
    ) -> list[Published]:
        """Publish messages in order; raise `PartlyPublished` if some were not published."""
        return await run_steps_async(
            publish_all(topic, messages, acks, self._requests), self._transport
        )

    def producer(
        self, settings: ProducerSettings | None = None, *, acks: Acks = "all"
    ) -> AsyncProducer:
        """Publish in the background, in batches, with a future for each message."""
        return AsyncProducer(self._transport, settings or ProducerSettings(), acks, self._requests)

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
    ) -> AsyncMessageReader:
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
        return AsyncMessageReader(self._transport, progress, 0)

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
    ) -> AsyncMessageReader:
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
        return AsyncMessageReader(self._transport, progress, wait)

    def queue(self, topic: str, *, group: str, consumer: str | None = None) -> AsyncQueue:
        """The messages of a topic for a queue group; the first receive creates the group."""
        requests = self._api.queue(topic, group, consumer or new_consumer_name())
        return AsyncQueue(requests, self._transport)

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        concurrency: int = 32,
        prefetch: int | None = None,
        visibility: Duration = 30,
        shutdown: Duration = 30,
        name: str | None = None,
    ) -> AsyncConsumer:
        """Call a handler for each message of a queue; see `AsyncConsumer`."""
        settings = ConsumerSettings(
            concurrency=concurrency,
            prefetch=prefetch,
            visibility_ms=duration_ms(visibility),
            shutdown_ms=duration_ms(shutdown),
        )
        requests = self._api.queue(topic, group, name or new_consumer_name())
        return AsyncConsumer(self._transport, requests, settings)

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
    ) -> AsyncStreamConsumer:
        """Read topics as a member of a stream group; see `AsyncStreamConsumer`."""
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
        return AsyncStreamConsumer(self._transport, Membership(requests, settings))

    def dead_letters(self, topic: str, *, dead_letter_topic: str | None = None) -> AsyncDeadLetters:
        """The dead letters of a topic, and the jobs that redrive them."""
        return AsyncDeadLetters(self._api.dead_letters(topic, dead_letter_topic), self._transport)

    def transaction(
        self, transactional_id: str | None = None, *, timeout: Duration = TIMEOUT_SECONDS
    ) -> AsyncTransaction:
        """Begin a transaction: the effects of its block become visible together or not at all.

        Use a fixed `transactional_id` for a writer that restarts: beginning a transaction with it
        aborts the one that its previous run left open. The broker aborts a transaction that does
        not end within `timeout`.
        """
        return AsyncTransaction(
            self._transport, Script(transactional_id, timeout, self._api.transactions)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
