"""OffsetCommit, OffsetFetch and OffsetDelete, by names and by ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import offset_commit, offset_fetch
from tests.unit.wire.kafka.client import Client, about, failures
from tests.unit.wire.kafka.requests import (
    Subject,
    commit_request,
    offset_fetch_request,
    request_of,
)

__all__ = ["failures"]

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
UNKNOWN_ID = b"?" * 16


@pytest.fixture
def client(failures: list[Exception]) -> Iterator[Client]:
    yield Client()
    assert failures == []


def commit(client: Client, offset: int, version: int = 10, **subject: Any) -> int:
    """The error code of one commit."""
    place = about(client.subject, subject)
    answer = client.call("OffsetCommit", commit_request(place, offset), version)
    ((one,),) = [topic.partitions for topic in answer.topics]
    assert one.partition_index == place.partition
    return int(one.error_code)


def fetch(client: Client, version: int, *, wants_all: bool = False, **subject: Any) -> Any:
    """The group's answer."""
    place = about(client.subject, subject)
    request = offset_fetch_request(version, place, wants_all=wants_all)
    answer = client.call("OffsetFetch", request, version)
    return answer.groups[0] if version >= 8 else answer


def only(group: Any) -> Any:
    ((one,),) = [topic.partitions for topic in group.topics]
    return one


# Commit and fetch


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_committed_offset_is_fetched_in_every_version(client: Client, version: int) -> None:
    client.node.host_groups()
    assert commit(client, 41 + version, version) == 0
    for other in FETCH_VERSIONS:
        one = only(fetch(client, other))
        assert (one.error_code, one.committed_offset) == (0, 41 + version)
        assert one.metadata == "note"


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_answer_names_topics_as_the_request_does(client: Client, version: int) -> None:
    client.node.host_groups()
    commit(client, 5)
    for wants_all in (False, True) if version >= 2 else (False,):
        (topic,) = fetch(client, version, wants_all=wants_all).topics
        if version >= 10:
            assert (topic.name, topic.topic_id) == ("", client.subject.topic_id)
        else:
            assert topic.name == "orders"


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_nothing_committed_is_minus_one(client: Client, version: int) -> None:
    one = only(fetch(client, version, group="nobody"))
    assert (one.error_code, one.committed_offset) == (0, -1)
    client.node.host_groups()
    one = only(fetch(client, version, group="nobody"))
    assert (one.error_code, one.committed_offset) == (0, -1)


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_may_be_fetched_at_once(client: Client, version: int) -> None:
    client.node.host_groups()
    assert fetch(client, version, wants_all=True).topics == []
    for partition in (0, 2):
        commit(client, partition, partition=partition)
    (topic,) = fetch(client, version, wants_all=True).topics
    found = [(one.partition_index, one.committed_offset) for one in topic.partitions]
    assert found == [(0, 0), (2, 2)]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_are_fetched_in_one_request(client: Client, version: int) -> None:
    client.node.host_groups()
    commit(client, 1, group="a")
    commit(client, 2, group="b")
    request = offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch_request(version, about(client.subject, {"group": name})).groups[0]
            for name in ("b", "nobody", "", "a")
        ]
    )
    answer = client.call("OffsetFetch", request, version)
    assert [group.group_id for group in answer.groups] == ["b", "nobody", "", "a"]
    assert [group.error_code for group in answer.groups] == [0, 0, ErrorCode.INVALID_GROUP_ID, 0]
    found = [only(group).committed_offset for group in answer.groups if group.topics]
    assert found == [2, -1, 1]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_group_without_a_name_is_refused_where_the_answer_has_room_for_it(
    client: Client, version: int
) -> None:
    group = fetch(client, version, group="")
    if version == 1:
        assert only(group).error_code == ErrorCode.INVALID_GROUP_ID
    else:
        assert group.error_code == ErrorCode.INVALID_GROUP_ID


# Unknown places


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_offsets_of_unknown_places_are_refused(client: Client, version: int) -> None:
    by_id = version >= 10
    expected = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, 1, version, topic="nowhere", topic_id=UNKNOWN_ID) == expected
    for partition in (-1, 9):
        code = commit(client, 1, version, partition=partition)
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_known_places_are_committed_though_others_are_unknown(client: Client, version: int) -> None:
    request = commit_request(client.subject, 7)
    request.topics[0].partitions.append(
        offset_commit.OffsetCommitRequestPartition(partition_index=9, committed_offset=1)
    )
    request.topics += commit_request(Subject(topic="nowhere", topic_id=UNKNOWN_ID), 1).topics
    answer = client.call("OffsetCommit", request, version)
    codes = [[one.error_code for one in topic.partitions] for topic in answer.topics]
    assert codes[0] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes[1][0] != 0
    assert only(fetch(client, 9)).committed_offset == 7


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_unknown_topic_has_no_offset_and_an_unknown_id_is_an_error(
    client: Client, version: int
) -> None:
    client.node.host_groups()
    one = only(fetch(client, version, topic="nowhere", topic_id=UNKNOWN_ID))
    assert one.committed_offset == -1
    assert one.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0)


# Members


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_only_members_of_the_current_generation_commit_for_a_group_in_use(
    client: Client, version: int
) -> None:
    client.have_groups()
    assert commit(client, 1, version) == 0
    assert commit(client, 2, version, member="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    stale = commit(client, 2, version, generation=99)
    assert stale == ErrorCode.ILLEGAL_GENERATION
    assert only(fetch(client, 9)).committed_offset == 1


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_note_that_is_too_long_is_refused(client: Client, version: int) -> None:
    client.node.host_groups()
    request = commit_request(client.subject, 1, metadata="n" * 20_000)
    answer = client.call("OffsetCommit", request, version)
    code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("retention_ms", [-1, 0, 1000, (1 << 63) - 1])
def test_any_retention_of_an_old_client_is_taken(client: Client, retention_ms: int) -> None:
    request = commit_request(client.subject, 1)
    request.retention_time_ms = retention_ms
    answer = client.call("OffsetCommit", request, 2)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_commit_is_durable_when_it_is_answered(client: Client) -> None:
    commit(client, 33)
    client.node.restart_after_crash()
    assert client.node.committed("shop") == 33


def test_a_commit_that_cannot_be_stored_is_to_be_retried(client: Client) -> None:
    client.node.host_groups()
    client.node.disk.fill_after(0)
    assert commit(client, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


# Deleting


def test_offsets_are_deleted_place_by_place(client: Client) -> None:
    client.node.host_groups()
    commit(client, 1)
    request = request_of("OffsetDelete", 0, client.subject)
    request.topics[0].partitions.append(type(request.topics[0].partitions[0])(partition_index=9))
    answer = client.call("OffsetDelete", request)
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert only(fetch(client, 9)).committed_offset == -1


def test_offsets_that_a_member_reads_are_not_deleted(client: Client) -> None:
    client.have_groups()
    commit(client, 1)
    answer = client.ask("OffsetDelete")
    code = answer.error_code or answer.topics[0].partitions[0].error_code
    assert code in (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NON_EMPTY_GROUP)
    assert only(fetch(client, 9)).committed_offset == 1


@pytest.mark.parametrize("has_groups", [False, True])
def test_a_group_that_does_not_exist_has_no_offsets_to_delete(
    client: Client, has_groups: bool
) -> None:
    if has_groups:
        client.node.host_groups()
    assert client.ask("OffsetDelete", group="nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
