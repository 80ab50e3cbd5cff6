"""Deadlines, cancellation, clients that vanish, quotas, and a node that stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2

from goqueue.client.http import Client as HttpClient
from goqueue.wire.grpc.messages import admin_service_pb2 as admin
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import group_service_pb2 as groups
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.grpc.messages import topic_service_pb2 as topics
from goqueue.wire.grpc.watches import CONNECTION_WATCHES_MAX, WATCHES_MAX
from tests.integration.process import Broker
from tests.integration.waiting import eventually

from .calls import LISTENER, SECONDS, Rpc, details_of, messages, reason_of
from .frames import Frame, FrameClient

MB = 1 << 20
LEASE_MS = 600_000  # longer than any test: what comes back sooner was given back
STREAMS = 100  # of one connection
CONNECTIONS = 100
WATCHES = 20  # of one connection


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "listeners.grpc_keepalive_ms": 1000,
        "listeners.connections_per_address_max": 1000,
        "groups.initial_rebalance_delay_ms": 0,
        **LISTENER,
    }
    node = Broker(tmp_path_factory.mktemp("grpc-calls"), settings)
    try:
        node.start()
        yield node
    finally:
        node.close()


def stats_of(rpc: Rpc, name: str) -> groups.GetQueueStatsResponse:
    request = groups.GetQueueStatsRequest(group=name, topic=name)
    answer: groups.GetQueueStatsResponse = rpc.call(rpc.groups.GetQueueStats, request)
    return answer


def started(
    rpc: Rpc, name: str, credit: int, settings: Mapping[str, str] | None = None
) -> consuming.ReceiveRequest:
    """The first request of a receive stream whose group exists, with a long lease."""
    rpc.create(name)
    settings = {"visibility_ms": str(LEASE_MS), **(settings or {})}
    rpc.call(rpc.groups.PutQueueGroup, groups.PutQueueGroupRequest(group=name, settings=settings))
    start = consuming.ReceiveStart(group=name, topic=name)
    return consuming.ReceiveRequest(start=start, credit=credit)


def test_a_deadline_ends_a_wait_and_leaves_no_lease(rpc: Rpc, name: str) -> None:
    first = started(rpc, name, 10)
    with pytest.raises(grpc.RpcError) as raised:
        next(rpc.consuming.Receive(iter([first]), timeout=0.5))
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    pull = consuming.PullRequest(group=name, topic=name, wait_ms=30_000)
    pending = rpc.consuming.Pull.future(pull, timeout=30)
    pending.cancel()
    rpc.publish(name, b"afterwards")
    [message] = rpc.pull(name, name)
    assert (message.value, message.attempt) == (b"afterwards", 1), "nobody else waited for it"


def test_many_cancelled_calls_leave_nothing_behind(rpc: Rpc, name: str) -> None:
    first = started(rpc, name, 10)
    pull = consuming.PullRequest(group=name, topic=name, wait_ms=30_000)
    for _ in range(50):
        stream = rpc.stream(rpc.consuming.Receive, first)
        pending = rpc.consuming.Pull.future(pull, timeout=30)
        stream.close()
        pending.cancel()
    values = [b"%d" % number for number in range(100)]
    rpc.publish(name, *values)
    received: list[bytes] = []

    def all_received() -> bool:
        received.extend(one.value for one in rpc.pull(name, name, count=100, wait_ms=100))
        return len(received) == len(values)

    eventually(all_received, because="calls that were cancelled give back what they leased")
    assert sorted(received) == sorted(values)


def test_a_publish_stream_that_is_cancelled_stores_each_request_whole_or_not(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    stream = rpc.stream(rpc.publishing.PublishStream)
    for number in range(200):
        values = [b"%d-%d" % (number, part) for part in range(10)]
        stream.send(
            publishing.PublishStreamRequest(number=number, topic=name, messages=messages(*values))
        )
    confirmed = {stream.next().number for _ in range(5)}
    stream.close()
    stored: list[bytes] = []
    request = consuming.ReadRequest(topic=name, messages_max=1000, wait_ms=200)
    while page := rpc.call(rpc.consuming.Read, request):
        if not page.messages:
            break
        stored += [one.value for one in page.messages]
        request = consuming.ReadRequest(
            topic=name, messages_max=1000, wait_ms=200, cursor=page.cursor
        )
    whole = [stored[at : at + 10] for at in range(0, len(stored), 10)]
    numbers = [int(one[0].partition(b"-")[0]) for one in whole]
    assert whole == [[b"%d-%d" % (one, part) for part in range(10)] for one in numbers]
    assert numbers == sorted(numbers), "in the order of the stream"
    assert confirmed <= set(numbers)


def test_a_client_that_vanishes_without_a_word_is_disconnected(
    node: Broker, rpc: Rpc, name: str
) -> None:
    """It answers no pings; what it has not read comes to others before its lease ends."""
    first = started(rpc, name, 1000)
    client = FrameClient(node.grpc)
    client.open(1, "/goqueue.v1.ConsumeService/Receive", first)
    client.wait_for(Frame.HEADERS)  # the stream has begun
    rpc.publish(name, *[b"x" * 60_000] * 20)  # more than its window
    eventually(lambda: stats_of(rpc, name).in_flight == 20, because="it has leases")
    assert client.is_closed_by_the_node()
    eventually(lambda: stats_of(rpc, name).in_flight == 0, because="what it has not read returns")
    assert len(rpc.pull(name, name, count=20)) == 20


def test_a_stream_that_breaks_counts_no_delivery_of_what_its_client_has_not_got(
    node: Broker, rpc: Rpc, name: str
) -> None:
    client = stuck_receiver(node, rpc, name)
    client.close()
    check_never_delivered(rpc, name)


def test_a_deadline_counts_no_delivery_of_what_its_client_has_not_read(
    node: Broker, rpc: Rpc, name: str
) -> None:
    client = stuck_receiver(node, rpc, name, timeout="2S")
    check_never_delivered(rpc, name)
    client.close()


def stuck_receiver(node: Broker, rpc: Rpc, name: str, timeout: str = "") -> FrameClient:
    """A client whose window is full before it has a whole response, of a group without retries."""
    first = started(rpc, name, 1000, {"deliveries_max": "1"})
    client = FrameClient(node.grpc)
    client.answer_pings()
    client.open(1, "/goqueue.v1.ConsumeService/Receive", first, timeout=timeout)
    client.wait_for(Frame.HEADERS)  # the stream has begun
    rpc.publish(name, *[b"x" * 60_000] * 20)
    eventually(lambda: stats_of(rpc, name).in_flight == 20, because="it has leases")
    return client


def check_never_delivered(rpc: Rpc, name: str) -> None:
    eventually(lambda: stats_of(rpc, name).in_flight == 0, because="what it has not got is back")
    again = rpc.pull(name, name, count=20)
    assert [one.attempt for one in again] == [1] * 20
    with pytest.raises(grpc.RpcError) as raised:
        rpc.call(rpc.topics.GetTopic, topics.GetTopicRequest(topic=f"{name}.dlq"))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND, "nothing was dead-lettered"


def test_ten_thousand_idle_streams_take_bounded_memory(node: Broker, rpc: Rpc, name: str) -> None:
    rpc.create(name)
    before = node.rss_bytes
    clients = [FrameClient(node.grpc) for _ in range(CONNECTIONS)]
    request = consuming.FollowRequest(topic=name)
    for client in clients:
        client.answer_pings()
        for number in range(STREAMS):
            client.open(2 * number + 1, "/goqueue.v1.ConsumeService/Follow", request, last=True)
    for client in clients:
        client.wait_for(Frame.HEADERS, count=STREAMS)
    assert node.rss_bytes - before < 500 * MB
    report = rpc.publish(name, b"others are served")
    assert list(report.offsets) == [0]
    for client in clients:
        client.close()
    rpc.publish(name, b"and afterwards")


def test_a_client_over_its_quota_is_told_when_to_come_again(node: Broker, name: str) -> None:
    with Rpc(node.grpc) as rpc, HttpClient(node.http) as api:
        rpc.create(name)
        try:
            api.quotas.set({"user": "ANONYMOUS"}, {"producer_byte_rate": 10_000})
            refused = _refusal(rpc, name)
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
            assert reason_of(refused) == "quota_exceeded"
            [retry] = details_of(refused, error_details_pb2.RetryInfo)
            assert retry.retry_delay.ToMilliseconds() > 0
            [quota] = details_of(refused, error_details_pb2.QuotaFailure)
            assert quota.violations[0].subject == "producer_byte_rate"
        finally:
            api.quotas.set({"user": "ANONYMOUS"}, {"producer_byte_rate": None})


def test_a_publish_stream_over_a_quota_is_slowed_and_all_of_it_is_stored(
    node: Broker, name: str
) -> None:
    """In each request, messages of two partitions, which are charged one after the other."""
    outgoing = [shared.OutgoingMessage(value=b"x" * 25_000, partition=one) for one in (0, 1)]
    with Rpc(node.grpc) as rpc, HttpClient(node.http) as api:
        rpc.create(name, partitions=2)
        requests = [
            publishing.PublishStreamRequest(number=number, topic=name, messages=outgoing)
            for number in range(6)
        ]
        for limits in ({"producer_byte_rate": 100_000}, {"producer_message_rate": 4}):
            try:
                api.quotas.set({"user": "ANONYMOUS"}, limits)
                began = monotonic()
                answers = list(rpc.publishing.PublishStream(iter(requests), timeout=SECONDS))
                seconds = monotonic() - began
            finally:
                api.quotas.set({"user": "ANONYMOUS"}, dict.fromkeys(limits))
            assert sum(len(one.report.offsets) for one in answers) == 12
            assert not any(one.report.errors or one.HasField("error") for one in answers)
            assert 1 < seconds < 6, limits


def test_a_receive_stream_over_its_rate_of_requests_is_slowed_and_settles_all(
    node: Broker, name: str
) -> None:
    with Rpc(node.grpc) as rpc, HttpClient(node.http) as api:
        first = started(rpc, name, 100)
        rpc.publish(name, *[b"x"] * 100)
        stream = rpc.stream(rpc.consuming.Receive, first)
        receipts: list[str] = []
        while len(receipts) < 100:
            receipts += [one.receipt for one in stream.next().messages]
        try:
            api.quotas.set({"user": "ANONYMOUS"}, {"request_rate": 40})
            began = monotonic()
            for number, receipt in enumerate(receipts, 1):
                stream.send(consuming.ReceiveRequest(number=number, ack=[receipt]))
            stream.half_close()
            settled = [one for response in stream for one in response.settlements]
            seconds = monotonic() - began
        finally:
            api.quotas.set({"user": "ANONYMOUS"}, {"request_rate": None})
        assert [one.accepted for one in settled] == [1] * 100
        assert seconds > 1
        assert stats_of(rpc, name).in_flight == 0


def test_health_checks_are_not_counted_as_requests(node: Broker, name: str) -> None:
    """Otherwise a stranger who floods them has the probes of others refused."""
    with Rpc(node.grpc) as rpc, HttpClient(node.http) as api:
        try:
            api.quotas.set({"user": "ANONYMOUS"}, {"request_rate": 20})
            for _ in range(200):
                checked = rpc.health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
                assert checked.status == health_pb2.HealthCheckResponse.SERVING
            assert rpc.call(rpc.admin.GetSession, admin.GetSessionRequest()).principal
        finally:
            api.quotas.set({"user": "ANONYMOUS"}, {"request_rate": None})


def test_health_streams_of_strangers_are_few_and_take_nothing_from_others(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    before, count = node.rss_bytes, WATCHES_MAX // CONNECTION_WATCHES_MAX + 5
    clients = [FrameClient(node.grpc) for _ in range(count)]
    request = health_pb2.HealthCheckRequest()
    for client in clients:
        client.answer_pings()
        for number in range(WATCHES):
            client.open(2 * number + 1, "/grpc.health.v1.Health/Watch", request, last=True)
    answers = (Frame.HEADERS, Frame.DATA, Frame.RST_STREAM)
    for client in clients:
        # Each stream has its headers, and then a status of the node or the end of the stream.
        eventually(lambda: client.count_of(*answers) == 2 * WATCHES, because="all are answered")  # noqa: B023
    held = [client.count_of(Frame.DATA) for client in clients]
    assert max(held) == CONNECTION_WATCHES_MAX
    assert sum(held) == WATCHES_MAX
    assert node.rss_bytes - before < 100 * MB
    slowest = max(timed(lambda: rpc.publish(name, b"x")) for _ in range(50))
    assert slowest < 1.0
    for client in clients:
        client.close()
    rpc.publish(name, b"and afterwards")


def timed(work: Callable[[], object]) -> float:
    began = monotonic()
    work()
    return monotonic() - began


def _refusal(rpc: Rpc, name: str) -> grpc.RpcError:
    """What publishing is refused with, when the burst is used up."""
    for _ in range(1000):
        try:
            rpc.publish(name, b"x" * 50_000)
        except grpc.RpcError as error:
            return error
    raise AssertionError("nothing was refused")


def test_a_node_that_stops_says_so_on_every_connection(node: Broker, rpc: Rpc, name: str) -> None:
    first = started(rpc, name, 10)
    receiving = rpc.stream(rpc.consuming.Receive, first)
    rpc.publish(name, b"one")
    assert receiving.next().messages
    publisher = rpc.stream(rpc.publishing.PublishStream)
    publisher.send(publishing.PublishStreamRequest(number=1, topic=name, messages=messages(b"two")))
    assert publisher.next().number == 1
    following = rpc.consuming.Follow(consuming.FollowRequest(topic=name), timeout=SECONDS)
    following.initial_metadata()  # The node has begun this call.
    watching = FrameClient(node.grpc)
    watching.answer_pings()
    watching.wait_for(Frame.SETTINGS)
    node.ask_to_stop()
    watching.wait_for(Frame.GOAWAY)
    for stream in (receiving, publisher, following):
        with pytest.raises(grpc.RpcError) as raised:
            list(stream)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert reason_of(raised.value) == "node_stopping"
    receiving.half_close()
    publisher.half_close()
    node.until_stopped()
    node.start()
    assert watching.is_closed_by_the_node()


def test_more_streams_than_may_wait_for_messages_get_them_later_and_delay_nobody(
    tmp_path: Path, name: str
) -> None:
    node = Broker(tmp_path, {"delivery.waiting_max": 2, **LISTENER})
    try:
        node.start()
        with Rpc(node.grpc) as client, Rpc(node.grpc) as bystander:
            bystander.create(name)
            start = consuming.ReceiveStart(group=name, topic=name)
            streams = [
                client.stream(
                    client.consuming.Receive, consuming.ReceiveRequest(start=start, credit=1)
                )
                for _ in range(6)
            ]
            for number in range(6):
                bystander.publish(name, b"%d" % number)
            found = [stream.next().messages[0].value for stream in streams]
            assert sorted(found) == [b"%d" % number for number in range(6)]
            for stream in streams:
                stream.close()
    finally:
        node.close()
