"""The tests of the HTTP client, with the gRPC client in its place: the two have one surface.

Tests of what the gRPC API does not have (the health of a node, lanes, totals of a queue, reading
until a position) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import goqueue
from goqueue import grpc

from . import (
    test_http_client,
    test_http_consumer,
    test_http_stream_consumer,
    test_http_transactions,
)
from .conftest import SHARED_SETTINGS
from .grpc_nodes import GrpcBroker

MODULES = (test_http_client, test_http_consumer, test_http_stream_consumer, test_http_transactions)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcBroker]:
    node = GrpcBroker(tmp_path_factory.mktemp("grpc"), SHARED_SETTINGS)
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., GrpcBroker]]:
    nodes: list[GrpcBroker] = []

    def start(settings: dict[str, object] | None = None) -> GrpcBroker:
        nodes.append(GrpcBroker(tmp_path, settings or {}))
        nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()


@pytest.fixture(autouse=True)
def _grpc_instead(monkeypatch: pytest.MonkeyPatch, broker: GrpcBroker) -> None:
    """What those tests call a client is one of gRPC."""
    monkeypatch.setattr(GrpcBroker, "http", property(lambda node: node.grpc))
    for module in MODULES:
        monkeypatch.setattr(module, "Client", grpc.Client)
        monkeypatch.setattr(module, "AsyncClient", grpc.AsyncClient, raising=False)
        monkeypatch.setattr(module, "HttpSettings", grpc.GrpcSettings, raising=False)


@pytest.fixture
def api(broker: GrpcBroker) -> Iterator[goqueue.Client]:
    with grpc.Client(broker.grpc) as client:
        yield client


@pytest.fixture
def topic(api: goqueue.Client, unique: str) -> Iterator[str]:
    partitions = 4  # as the tests of stream groups need them
    api.topics.create(unique, partitions=partitions)
    yield unique
    api.topics.delete(unique)


@pytest.fixture
def group(unique: str) -> str:
    return f"group-of-{unique}"


@pytest.fixture
def new_topic(broker: GrpcBroker, unique: str) -> Callable[[], str]:
    names: list[str] = []

    def create() -> str:
        names.append(f"{unique}-{len(names)}")
        with grpc.Client(broker.grpc) as client:
            client.topics.create(names[-1], partitions=1)
        return names[-1]

    return create


test_topics_are_administered = test_http_client.test_topics_are_administered
test_a_broker_that_is_not_there_is_named = test_http_client.test_a_broker_that_is_not_there_is_named
test_what_is_published_is_read_again = test_http_client.test_what_is_published_is_read_again
test_a_list_is_published_in_order_and_read_in_pages = (
    test_http_client.test_a_list_is_published_in_order_and_read_in_pages
)
test_a_list_that_is_partly_refused_says_what_was_published = (
    test_http_client.test_a_list_that_is_partly_refused_says_what_was_published
)
test_a_reader_goes_on_where_another_one_stopped = (
    test_http_client.test_a_reader_goes_on_where_another_one_stopped
)
test_a_follower_sees_what_comes_and_resumes = (
    test_http_client.test_a_follower_sees_what_comes_and_resumes
)
test_a_producer_batches_and_tells_each_message_where_it_is = (
    test_http_client.test_a_producer_batches_and_tells_each_message_where_it_is
)
test_a_delayed_message_appears_in_time = test_http_client.test_a_delayed_message_appears_in_time
test_a_queue_is_looked_at_rewound_and_purged = (
    test_http_client.test_a_queue_is_looked_at_rewound_and_purged
)
test_groups_are_made_changed_listed_and_deleted = (
    test_http_client.test_groups_are_made_changed_listed_and_deleted
)
test_dead_letters_are_listed_and_brought_back = (
    test_http_client.test_dead_letters_are_listed_and_brought_back
)
test_consumers_outlive_a_broker_that_is_killed = (
    test_http_consumer.test_consumers_outlive_a_broker_that_is_killed
)
test_what_makes_no_sense_ends_the_consumer_with_its_error = (
    test_http_consumer.test_what_makes_no_sense_ends_the_consumer_with_its_error
)
test_a_group_goes_on_behind_what_was_committed = (
    test_http_stream_consumer.test_a_group_goes_on_behind_what_was_committed
)
test_what_was_handed_out_is_committed_by_leaving_in_peace = (
    test_http_stream_consumer.test_what_was_handed_out_is_committed_by_leaving_in_peace
)
test_two_members_share_the_partitions_and_one_takes_over = (
    test_http_stream_consumer.test_two_members_share_the_partitions_and_one_takes_over
)
test_a_member_outlives_a_broker_that_is_killed = (
    test_http_stream_consumer.test_a_member_outlives_a_broker_that_is_killed
)
test_a_member_that_works_for_longer_than_a_session_keeps_its_partitions = test_http_stream_consumer.test_a_member_that_works_for_longer_than_a_session_keeps_its_partitions  # noqa: E501
test_a_member_that_never_polls_again_gives_way_to_others = (
    test_http_stream_consumer.test_a_member_that_never_polls_again_gives_way_to_others
)
test_coroutines_that_never_poll_again_give_way_to_others = (
    test_http_stream_consumer.test_coroutines_that_never_poll_again_give_way_to_others
)
test_coroutines_read_the_same_way = test_http_stream_consumer.test_coroutines_read_the_same_way
test_leaving_the_block_commits_and_an_error_aborts = (
    test_http_transactions.test_leaving_the_block_commits_and_an_error_aborts
)
test_offsets_of_a_stream_group_count_with_the_commit = (
    test_http_transactions.test_offsets_of_a_stream_group_count_with_the_commit
)
