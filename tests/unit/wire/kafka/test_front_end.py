"""What all connections of a node share."""

from __future__ import annotations

import pytest

from goqueue.wire.kafka.api import API_VERSIONS_KEY
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.kafka.handlers import HANDLERS
from goqueue.wire.kafka.messages import API_BY_KEY, API_BY_NAME
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.wire.kafka.client import Client
from tests.unit.wire.kafka.requests import request_of


def test_every_handler_is_of_an_api_that_exists() -> None:
    assert set(HANDLERS) <= set(API_BY_KEY)


@pytest.mark.parametrize("key", HANDLERS)
def test_headers_are_flexible_where_the_definitions_say_so(key: int) -> None:
    served, api = Client().node.front.served[key], API_BY_KEY[key]
    for version in range(served.version_min, served.version_max + 1):
        assert served.is_flexible(version) == api.is_flexible(version)
        header = api.response_header_version(version)
        assert served.has_flexible_header(version) == (header == 1)
    if key == API_VERSIONS_KEY:
        assert not served.has_flexible_header(served.version_max)


def test_connections_that_answer_in_one_turn_are_flushed_together() -> None:
    client = Client()
    peers = [client.node.peer() for _ in range(3)]
    request = request_of("ApiVersions", 3, client.subject)
    for peer in peers:
        peer.send(peer.frame(API_BY_NAME["ApiVersions"], 3, request))
    assert [peer.received for peer in peers] == [b"", b"", b""]
    client.node.run_for(0)
    assert all(peer.has_answer for peer in peers)


class Sending:
    """Notes how much had reached the clients when answers were held back, and when let go."""

    def __init__(self, peers: list[KafkaPeer]) -> None:
        self.noted: list[list[bool]] = []
        self._peers = peers

    def hold(self) -> None:
        self.noted.append([peer.has_answer for peer in self._peers])

    release = hold


@pytest.mark.parametrize("count", [1, 3])
def test_whoever_owns_the_sockets_is_told_that_answers_go_together(count: int) -> None:
    client = Client()
    peers = [client.node.peer() for _ in range(count)]
    sending = client.node.front.sending = Sending(peers)
    request = request_of("ApiVersions", 3, client.subject)
    for peer in peers:
        peer.send(peer.frame(API_BY_NAME["ApiVersions"], 3, request))
    client.node.run_for(0)
    assert all(peer.has_answer for peer in peers)
    assert sending.noted == ([] if count == 1 else [[False] * count, [True] * count])


def test_a_connection_that_closes_before_its_flush_gets_nothing_and_harms_nobody() -> None:
    client = Client()
    gone, other = client.node.peer(), client.node.peer()
    request = request_of("ApiVersions", 3, client.subject)
    for peer in (gone, other):
        peer.send(peer.frame(API_BY_NAME["ApiVersions"], 3, request))
    gone.connection.closed()
    client.node.run_for(0)
    assert gone.received == b""
    assert other.has_answer


def test_limits_are_handed_to_every_connection() -> None:
    client = Client(limits=Limits(request_bytes_max=123, requests_in_flight_max=4))
    front = client.node.front
    assert (front.request_bytes_max, front.requests_in_flight_max) == (123, 4)


def test_a_topic_that_comes_again_is_not_mistaken_for_the_old_one() -> None:
    client = Client()
    client.ask("Produce", 9)
    client.node.wait(client.node.broker.topics.delete("orders"))
    missing = client.ask("Produce", 9)
    assert missing.responses[0].partition_responses[0].error_code == 3
    client.node.create("orders", 1)
    again = client.ask("Produce", 9)
    assert again.responses[0].partition_responses[0].base_offset == 0
    assert client.node.values("orders") == [b"value"]
