"""One connection: frames, order, versions, and what is said when it breaks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from goqueue.client.addresses import Address
from goqueue.client.connection import Connection
from goqueue.client.errors import ConnectionLost
from goqueue.client.settings import ClientSettings
from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTimedOut, UnsupportedVersion
from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.headers import decode_request_header, encode_response_header
from goqueue.wire.kafka.messages import API_BY_KEY, api_versions, list_groups, metadata

ADDRESS = Address("queue.example", 9092)
UNSUPPORTED_VERSION = 35
Answer = Callable[[Api, int, int], bytes]


class FakeSocket:
    """Answers each request that is written, and hands out its answers in pieces."""

    def __init__(self, *, piece_bytes: int = 1 << 20, versions: dict[int, tuple[int, int]]) -> None:
        self.versions = versions
        self.piece_bytes = piece_bytes
        self.requests: list[tuple[str, int]] = []
        self.api_versions_max = 4
        self.is_closed = False
        self.is_silent = False
        self._out = bytearray()

    def sendall(self, data: bytes, /) -> None:
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        header, start = decode_request_header(data, 4)
        api = API_BY_KEY[header.request_api_key]
        self.requests.append((api.name, header.request_api_version))
        body = self._answer(api, header.request_api_version, data, start)
        self.answer(api, header.request_api_version, header.correlation_id, body)

    def answer(self, api: Api, version: int, correlation_id: int, body: bytes) -> None:
        head = encode_response_header(api, version=version, correlation_id=correlation_id)
        self.feed((len(head) + len(body)).to_bytes(4, "big") + head + body)

    def feed(self, data: bytes) -> None:
        self._out += data

    def recv_into(self, buffer: memoryview, /) -> int:
        if self.is_silent:
            raise TimeoutError("timed out")
        count = min(self.piece_bytes, len(buffer), len(self._out))
        buffer[:count] = self._out[:count]
        del self._out[:count]
        return count

    def settimeout(self, value: float | None, /) -> None:
        assert value is not None
        assert value > 0

    def close(self) -> None:
        self.is_closed = True

    def _answer(self, api: Api, version: int, data: bytes, start: int) -> bytes:
        if api.name == "ApiVersions":
            return self._answer_versions(version)
        if api.name == "Metadata":
            request = metadata.decode_request(data, version, start)
            names = [each.name for each in request.topics or []]
            topics = [metadata.MetadataResponseTopic(name=name) for name in names]
            return metadata.encode_response(metadata.MetadataResponse(topics=topics), version)
        return list_groups.encode_response(list_groups.ListGroupsResponse(), version)

    def _answer_versions(self, version: int) -> bytes:
        if version > self.api_versions_max:
            refusal = api_versions.ApiVersionsResponse(UNSUPPORTED_VERSION)
            return api_versions.encode_response(refusal, 0)
        keys = [api_versions.ApiVersion(key, *found) for key, found in self.versions.items()]
        return api_versions.encode_response(api_versions.ApiVersionsResponse(0, keys), version)


def connected(sock: FakeSocket) -> Connection:
    connection = Connection(sock, ADDRESS, ClientSettings(answer_bytes_max=1 << 20))
    connection.negotiate()
    return connection


def ask(name: str) -> metadata.MetadataRequest:
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)], False)


def answered(response: metadata.MetadataResponse) -> str | None:
    return response.topics[0].name


@pytest.mark.parametrize("piece_bytes", [1, 3, 1 << 20])
def test_an_answer_is_read_however_it_is_cut(piece_bytes: int) -> None:
    connection = connected(FakeSocket(piece_bytes=piece_bytes, versions={3: (0, 12)}))
    assert answered(connection.call(metadata, ask("orders"))) == "orders"


def test_answers_find_their_requests_in_any_order_of_asking() -> None:
    connection = connected(FakeSocket(versions={3: (0, 12)}))
    pending = [connection.send(metadata, ask(name)) for name in "abc"]
    assert [answered(connection.receive(each)) for each in reversed(pending)] == ["c", "b", "a"]


def test_memory_of_answers_is_used_again_and_each_is_read_right() -> None:
    sock = FakeSocket(piece_bytes=50_000, versions={3: (0, 12)})
    connection = Connection(sock, ADDRESS, ClientSettings(buffers_kept_max=2))
    connection.negotiate()
    for letter in "abcd":
        request = metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=letter * 240) for _ in range(600)], False
        )
        response = connection.call(metadata, request)
        assert {topic.name for topic in response.topics} == {letter * 240}
    assert len(connection._buffers._kept) == 1


def test_the_newest_common_version_is_spoken() -> None:
    sock = FakeSocket(versions={3: (0, 9), 16: (0, 3)})
    connection = connected(sock)
    connection.call(metadata, ask("orders"))
    connection.call(list_groups, list_groups.ListGroupsRequest())
    assert sock.requests[1:] == [("Metadata", 9), ("ListGroups", 3)]


def test_a_broker_that_knows_only_the_first_apiversions_is_asked_again() -> None:
    sock = FakeSocket(versions={3: (0, 5)})
    sock.api_versions_max = 0
    assert connected(sock).version_of(metadata) == 5
    assert [version for _, version in sock.requests] == [3, 0]


def test_an_api_the_broker_lacks_is_refused_before_anything_is_sent() -> None:
    sock = FakeSocket(versions={3: (0, 12)})
    connection = connected(sock)
    assert not connection.offers(list_groups)
    with pytest.raises(UnsupportedVersion):
        connection.call(list_groups, list_groups.ListGroupsRequest())
    assert len(sock.requests) == 1


def test_a_broker_that_hangs_up_fails_every_request_on_its_way() -> None:
    sock = FakeSocket(versions={3: (0, 12)})
    connection = connected(sock)
    pending = [connection.send(metadata, ask(name)) for name in "ab"]
    sock._out.clear()
    for each in pending:
        with pytest.raises(ConnectionLost, match=r"queue\.example:9092"):
            connection.receive(each)
    assert sock.is_closed
    with pytest.raises(ConnectionLost):
        connection.call(metadata, ask("c"))


def test_silence_is_a_time_out() -> None:
    sock = FakeSocket(versions={3: (0, 12)})
    connection = connected(sock)
    sock.is_silent = True
    with pytest.raises(RequestTimedOut):
        connection.call(metadata, ask("a"))
    assert not connection.is_open


def test_an_answer_to_another_question_closes_the_connection() -> None:
    sock = FakeSocket(versions={3: (0, 12)})
    connection = connected(sock)
    pending = connection.send(metadata, ask("a"))
    sock._out.clear()
    sock.answer(API_BY_KEY[3], 12, 999, b"")
    with pytest.raises(MalformedRequest, match="999"):
        connection.receive(pending)
    assert not connection.is_open


def test_a_listener_of_another_protocol_is_recognised() -> None:
    sock = FakeSocket(versions={3: (0, 12)})
    connection = connected(sock)
    pending = connection.send(metadata, ask("a"))
    sock._out[:] = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(MalformedRequest, match="is it a Kafka listener"):
        connection.receive(pending)


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_raise_only_errors_for_callers(seed: int) -> None:
    sock = FakeSocket(versions={3: (0, 12)})
    connection = connected(sock)
    pending = connection.send(metadata, ask("a"))
    noise = random.Random(seed).randbytes(60)
    sock._out[:] = len(noise).to_bytes(4, "big") + (2).to_bytes(4, "big") + noise
    with pytest.raises(GoQueueError):
        connection.receive(pending)
