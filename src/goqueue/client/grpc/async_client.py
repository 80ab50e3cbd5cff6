"""`goqueue.grpc.AsyncClient`: the gRPC API, for coroutines.

    from goqueue.grpc import AsyncClient

    async with AsyncClient("127.0.0.1:9000") as client:
        await client.publish("orders", "hello", key="customer-7")

It has the methods of `goqueue.AsyncClient`. Those of areas that the gRPC API does not have raise
`NotInGrpc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from goqueue.client.grpc.areas import GRPC, AsyncCluster, AsyncQueue
from goqueue.client.grpc.settings import ADDRESS_DEFAULT, GrpcSettings, secured
from goqueue.client.grpc.stream_consumer import AsyncStreamConsumer
from goqueue.client.grpc.subscription import Subscription
from goqueue.client.grpc.transport import AsyncTransport
from goqueue.client.http import async_client as http
from goqueue.client.http.consumers.membership import OnRebalance, StreamSettings
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.names import new_consumer_name, new_member_id, topic_names
from goqueue.client.http.reading import OnDamage
from goqueue.client.http.settings import Access
from goqueue.client.security.http import ClientCertificate
from goqueue.client.security.settings import Secret
from goqueue.wire.http.bodies.groups import PartitionReset
from goqueue.wire.http.fields import Start


class AsyncClient(http.AsyncClient):
    """A client of the gRPC API of a broker.

    One event loop may use it. Credentials are those of `goqueue.AsyncClient`. An
    address that begins with grpcs:// is verified with `ca_file`, GOQUEUE_CA_FILE, or the
    authorities of the system.
    """

    def __init__(
        self,
        address: str = ADDRESS_DEFAULT,
        settings: GrpcSettings | None = None,
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
        self._channel = AsyncTransport(*secured(address, settings, access))
        self._begin(GRPC, self._channel)
        self.cluster = AsyncCluster(self._channel)

    def queue(self, topic: str, *, group: str, consumer: str | None = None) -> AsyncQueue:
        """The messages of a topic for a queue group; the first receive creates the group."""
        requests = GRPC.queue(topic, group, consumer or new_consumer_name())
        return AsyncQueue(requests, self._transport)

    def stream_consumer(  # type: ignore[override]  # of the same form, over another protocol
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
        subscription = Subscription(group, new_member_id(), instance_id, settings)
        return AsyncStreamConsumer(self._channel, subscription)
