"""What clients of the gRPC listener do wrong, and that others do not notice it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import grpc
import pytest

from goqueue.wire.grpc.messages import ack_service_pb2 as acks
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import group_service_pb2 as groups
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from tests.integration.process import Broker
from tests.integration.waiting import eventually

from .calls import LISTENER, SECONDS, Rpc, messages, reason_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
RST_STREAM, SETTINGS_KIND, GOAWAY, WINDOW_UPDATE = 3, 4, 7, 8
INITIAL_WINDOW = b"\0\x04"  # the setting
WINDOW = 65_535  # bytes, of a new connection and of a new stream
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
MB = 1 << 20
ACCEPTS = 0x10000  # the flag of a socket that listens


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "listeners.receive_buffer_bytes_total_max": "8MiB",
        "listeners.unsent_bytes_total_max": "8MiB",
        "listeners.request_bytes_max": "4MiB",
        "listeners.http_body_bytes_max": "4MiB",
        "listeners.grpc_connections_max": 50,
        **LISTENER,
    }
    node = Broker(tmp_path_factory.mktemp("grpc-abuse"), settings)
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def bystander(rpc: Rpc, name: str) -> Iterator[Rpc]:
    """A client that publishes before, during and after; every call must succeed."""
    rpc.create(name)
    rpc.publish(name, b"before")
    yield rpc
    rpc.publish(name, b"after")


def connected(node: Broker) -> socket.socket:
    host, _, port = node.grpc.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS)


def is_closed(client: socket.socket) -> bool:
    """Whether the node ends the connection, whatever it says before."""
    try:
        while client.recv(MB):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\0\0",
        b"nonsense that is longer than the preface",
        PREFACE + b"\xff" * 4096,
        PREFACE + SETTINGS + b"\0\0\x08\x03\0\0\0\0\0RSTRESET",
    ],
    ids=["http1", "tls", "kafka", "text", "frames", "reset"],
)
def test_who_speaks_something_else_is_disconnected(
    node: Broker, bystander: Rpc, name: str, said: bytes
) -> None:
    with connected(node) as client:
        client.sendall(said)
        assert is_closed(client)
    bystander.publish(name, b"during")


def test_bytes_that_are_no_message_are_refused_as_such(bystander: Rpc, name: str) -> None:
    publish = bystander.channel.unary_unary("/goqueue.v1.PublishService/Publish")
    with pytest.raises(grpc.RpcError) as raised:
        publish(b"\xff\xff\xff", timeout=SECONDS)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason_of(raised.value) == "malformed_request"
    stream = bystander.channel.stream_stream("/goqueue.v1.PublishService/PublishStream")
    with pytest.raises(grpc.RpcError) as raised:
        next(stream(iter([b"\xff\xff\xff"]), timeout=SECONDS))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_unknown_calls_and_messages_beyond_the_limit_are_refused(bystander: Rpc, name: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        bystander.channel.unary_unary("/goqueue.v1.PublishService/Nothing")(b"", timeout=SECONDS)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError) as raised:
        bystander.publish(name, b"x" * (5 * MB))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as raised:
        bystander.publish(name, *[b"x"] * 1001)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_compressed_message_is_refused_because_its_size_is_unknown(
    node: Broker, bystander: Rpc, name: str
) -> None:
    with Rpc(node.grpc) as client, pytest.raises(grpc.RpcError) as raised:
        client.publishing.Publish(
            publishing.PublishRequest(topic=name, messages=messages(b"x" * 3 * MB)),
            compression=grpc.Compression.Gzip,
            timeout=SECONDS,
        )
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_messages_that_clients_never_complete_take_bounded_memory(
    node: Broker, bystander: Rpc, name: str
) -> None:
    """Each of them is allowed by itself; together they would take five times what they may."""
    held = []
    for _ in range(20):
        client = connected(node)
        client.sendall(PREFACE + SETTINGS)
        head = _headers("/goqueue.v1.PublishService/PublishStream")
        client.sendall(b"%c%c%c\x01\x04\0\0\0\x01" % _length(head) + head)
        held.append(client)
    prefix = b"\0" + (3 * MB).to_bytes(4, "big")
    for client in held:
        client.sendall(_data(prefix))
    for client in held:
        _fill(client, 2 * MB)
    bystander.publish(name, b"during")
    assert "incomplete messages" in node.log_text
    closed = sum(is_closed_now(one) for one in held)
    assert 10 < closed < 20, "the node has closed some of them"
    for client in held:
        client.close()


def _fill(client: socket.socket, size: int) -> None:
    """Send a part of a message as the node gives room for it, until it hangs up."""
    payload = b"x" * 16_000
    rooms = {0: WINDOW - 5, 1: WINDOW - 5}  # of the connection and of the stream, less a prefix
    try:
        with client.makefile("rb") as frames:
            for _ in range(0, size, len(payload)):
                while min(rooms.values()) < len(payload):
                    if not _make_room(frames, rooms):
                        return
                client.sendall(_data(payload))
                for stream in rooms:
                    rooms[stream] -= len(payload)
    except ConnectionError:
        return


def _make_room(frames: BinaryIO, rooms: dict[int, int]) -> bool:
    """Take the next frame of the node into account; whether it lets the stream go on."""
    head = frames.read(9)
    if len(head) < 9 or head[3] in (RST_STREAM, GOAWAY):
        return False
    payload = frames.read(int.from_bytes(head[:3], "big"))
    if head[3] == WINDOW_UPDATE:
        rooms[int.from_bytes(head[5:], "big")] += int.from_bytes(payload, "big")
    elif head[3] == SETTINGS_KIND:
        for at in range(0, len(payload), 6):
            if payload[at : at + 2] == INITIAL_WINDOW:
                rooms[1] += int.from_bytes(payload[at + 2 : at + 6], "big") - WINDOW
    return True


def _data(payload: bytes) -> bytes:
    return b"%c%c%c\0\0\0\0\0\x01" % _length(payload) + payload


def _length(payload: bytes) -> tuple[int, int, int]:
    size = len(payload)
    return size >> 16, size >> 8 & 255, size & 255


def _headers(path: str) -> bytes:
    """The head of a call, in literals of HPACK without an index."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode())
        for name, value in fields.items()
    )


def test_streams_whose_clients_never_read_are_ended_for_those_who_do(
    node: Broker, bystander: Rpc, name: str
) -> None:
    for _ in range(12):
        bystander.publish(name, b"x" * (900 << 10))
    lazy = [Rpc(node.grpc) for _ in range(20)]
    begin = {"from": consuming.Position(start=consuming.START_EARLIEST)}
    streams = [
        one.consuming.Follow(consuming.FollowRequest(topic=name, messages_max=3, **begin))
        for one in lazy
    ]
    for one in streams:
        one.initial_metadata()
    bystander.publish(name, b"during")
    reader = bystander.consuming.Follow(
        consuming.FollowRequest(topic=name, messages_max=3, **begin)
    )
    read = 0
    while read < 12:
        read += len(next(reader).messages)
    reader.cancel()
    assert node.rss_bytes < 250 * MB
    reasons = [reason for one in streams if (reason := end_within(one, count=12))]
    assert reasons
    assert set(reasons) == {"RESOURCE_EXHAUSTED slow_reader"}
    for one in lazy:
        one.close()


def end_within(stream: Iterable[consuming.FollowResponse], *, count: int) -> str:
    """Why a stream ended before so many messages; empty if it did not."""
    seen = 0
    try:
        for response in stream:
            seen += len(response.messages)
            if seen >= count:
                break
    except grpc.RpcError as error:
        return f"{error.code().name} {reason_of(error)}"
    return ""


def test_a_publisher_that_never_reads_its_responses_is_slowed_down(
    node: Broker, bystander: Rpc, name: str
) -> None:
    client = Rpc(node.grpc)
    sent = 0
    halted = threading.Event()

    def requests() -> Iterator[publishing.PublishStreamRequest]:
        nonlocal sent
        while not halted.is_set():
            sent += 1
            yield publishing.PublishStreamRequest(
                number=sent, topic=name, messages=messages(*[b"%d" % sent] * 100)
            )

    stream = client.publishing.PublishStream(requests())
    seen = -1

    def is_still() -> bool:
        nonlocal seen
        before, seen = seen, sent
        halted.wait(1)
        return before == sent

    eventually(is_still, because="the publisher has to wait")
    bystander.publish(name, b"during")
    halted.set()
    stream.cancel()
    client.close()


def test_messages_of_a_client_that_hangs_up_before_it_reads_them_are_delivered_again_soon(
    node: Broker, bystander: Rpc, name: str
) -> None:
    """It had a lease of half a minute."""
    values = [b"%d" % number + b"x" * (300 << 10) for number in range(20)]
    for value in values:
        bystander.publish(name, value)
    lazy = Rpc(node.grpc)
    start = consuming.ReceiveStart(group=name, topic=name)
    stream = lazy.stream(lazy.consuming.Receive, consuming.ReceiveRequest(start=start, credit=1000))
    eventually(lambda: in_flight(bystander, name) >= 10, because="the client has leases")
    stream.close()
    lazy.close()
    got = {one.value for one in bystander.pull(name, name, count=3)}
    assert got


def in_flight(rpc: Rpc, name: str) -> int:
    """How many messages a queue group has leased, which may not exist yet."""
    request = groups.GetQueueStatsRequest(group=name, topic=name)
    try:
        return int(rpc.call(rpc.groups.GetQueueStats, request).in_flight)
    except grpc.RpcError as error:
        if reason_of(error) != "unknown_group":
            raise
        return 0


def test_calls_of_a_thousand_streams_are_bounded_and_served(
    node: Broker, bystander: Rpc, name: str
) -> None:
    clients = [Rpc(node.grpc) for _ in range(10)]
    streams = [
        one.consuming.Follow(consuming.FollowRequest(topic=name), timeout=SECONDS)
        for one in clients
        for _ in range(100)
    ]
    bystander.publish(name, b"to all")
    before = node.rss_bytes
    bystander.publish(name, b"to all")
    assert node.rss_bytes < before + 100 * MB
    for one in streams:
        one.cancel()
    for client in clients:
        client.close()
    bystander.publish(name, b"again")


def test_connections_beyond_the_limit_are_refused(node: Broker, bystander: Rpc, name: str) -> None:
    idle = [connected(node) for _ in range(60)]
    eventually(lambda: any(is_closed_now(one) for one in idle), because="some are refused")
    for one in idle:
        one.close()
    bystander.publish(name, b"during")


def is_closed_now(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        while client.recv(MB):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_senseless_credit_ends_the_stream_with_a_reason(bystander: Rpc, name: str) -> None:
    start = consuming.ReceiveStart(group=name, topic=name)
    for first in (
        consuming.ReceiveRequest(credit=1),
        consuming.ReceiveRequest(start=start, credit=-1),
        consuming.ReceiveRequest(start=start, credit=2_000_000_000),
        consuming.ReceiveRequest(start=start, ack=["without a number"]),
    ):
        stream = bystander.stream(bystander.consuming.Receive, first)
        with pytest.raises(grpc.RpcError) as raised:
            stream.next()
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert reason_of(raised.value) == "invalid_field"
        stream.half_close()


@pytest.mark.parametrize("what", ["nack", "reject", "extend"])
def test_a_request_that_settles_very_much_is_refused_before_any_of_it_is_done(
    bystander: Rpc, name: str, what: str
) -> None:
    entry = {"nack": consuming.Nack, "reject": consuming.Reject, "extend": consuming.Extend}[what]
    start = consuming.ReceiveStart(group=name, topic=name)
    stream = bystander.stream(
        bystander.consuming.Receive, consuming.ReceiveRequest(start=start, credit=1)
    )
    [message] = stream.next().messages
    # Each of these entries is five bytes, and would be an operation of its own.
    entries = {what: [entry(receipts=[message.receipt]), *[entry(receipts=["r"])] * 100_000]}
    stream.send(consuming.ReceiveRequest(number=1, **entries))
    with pytest.raises(grpc.RpcError) as raised:
        stream.next()
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason_of(raised.value) == "invalid_field"
    stream.half_close()
    request = acks.ExtendRequest(group=name, receipts=[message.receipt], visibility_ms=60_000)
    assert not bystander.call(bystander.acks.Extend, request).errors, "it is still leased"


def test_many_headers_are_refused(bystander: Rpc, name: str) -> None:
    header = shared.Header(name="h", value=b"v")
    message = shared.OutgoingMessage(value=b"v", headers=[header] * 60_000)
    with pytest.raises(grpc.RpcError) as raised:
        bystander.call(
            bystander.publishing.Publish,
            publishing.PublishRequest(topic=name, messages=[message]),
        )
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_node_stops_in_order_under_open_streams(node: Broker, rpc: Rpc, name: str) -> None:
    rpc.create(name)
    start = consuming.ReceiveStart(group=name, topic=name)
    stream = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=1))
    stats = groups.ListGroupsRequest(prefix=name)
    eventually(lambda: rpc.call(rpc.groups.ListGroups, stats).groups, because="it has begun")
    node.stop()
    with pytest.raises(grpc.RpcError) as raised:
        stream.next()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reason_of(raised.value) == "node_stopping"
    stream.half_close()
    node.start()


def test_only_the_user_of_the_node_reaches_the_server_of_the_library(
    node: Broker, bystander: Rpc
) -> None:
    """Past the listeners there are no limits, so there must be no other way to it."""
    folder = node.data_dir / "grpc"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "server").is_socket()
    listening = [
        line.split()[-1]
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]
        if int(line.split()[3], 16) & ACCEPTS and "goqueue-" in line
    ]
    assert [one for one in listening if one.startswith("@")] == []
