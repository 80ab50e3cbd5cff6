"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: places in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.model.batch import Record
from goqueue.partition import records_end
from goqueue.partition.records_end import SLICE_BATCHES
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import API_BY_NAME
from tests.unit.wire.kafka.client import Client, about
from tests.unit.wire.kafka.requests import delete_records_request, epoch_end_request, list_request

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = range(-1, -6, -1)
RECORDS_END = -1000  # an extension
LIST_VERSIONS = range(1, 12)


@pytest.fixture
def client() -> Client:
    """Records at offsets 0 to 3 with the times 10, 40, 20, 40, of which the first is deleted."""
    client = Client()
    for timestamp_ms in (10, 40, 20, 40):
        client.produce(b"a", timestamp_ms=timestamp_ms)
    client.node.broker.administration.delete_records("orders", 0, before_offset=1)
    return client


def list_offset(client: Client, timestamp: int, version: int = 11, **fields: Any) -> Any:
    subject = about(client.subject, fields.pop("subject", {}))
    answer = client.call("ListOffsets", list_request(subject, timestamp, **fields), version)
    ((one,),) = [topic.partitions for topic in answer.topics]
    return one


def test_the_end_of_records_is_searched_in_slices(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, partition = (
        client.node.broker.clock,
        client.node.broker.topics.get("orders").partition(0),
    )
    for producer_id in range(1_000, 2_500):
        partition.append_marker(
            producer_id=producer_id,
            producer_epoch=0,
            is_commit=False,
            coordinator_epoch=0,
            now_ms=1,
        )
    client.node.run_until(lambda: partition.high_watermark == 1_504)
    read_in_turn = [0]
    stretch, call_soon = records_end._stretch, clock.call_soon

    def reading(*where: Any) -> Any:
        found = stretch(*where)
        read_in_turn[-1] += len(found[1])
        return found

    def in_next_turn(action: Callable[[], None]) -> None:
        read_in_turn.append(0)
        call_soon(action)

    monkeypatch.setattr(records_end, "_stretch", reading)
    monkeypatch.setattr(clock, "call_soon", in_next_turn)
    found = list_offset(client, RECORDS_END)
    assert (found.error_code, found.offset) == (0, 4)
    assert sum(read_in_turn) >= 1_500
    # A slice, the rest of an index entry, and a last look at the end that was found.
    assert max(read_in_turn) <= 3 * SLICE_BATCHES


@pytest.mark.parametrize("subject", [{"topic": "unknown"}, {"partition": 9}])
def test_the_end_of_records_that_are_not_here_is_refused_as_any_offset(
    client: Client, subject: dict[str, Any]
) -> None:
    latest = list_offset(client, LATEST, subject=subject)
    found = list_offset(client, RECORDS_END, subject=subject)
    assert found.error_code == latest.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", LIST_VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "offset", "time"),
    [
        (LATEST, 4, -1),
        (EARLIEST, 1, -1),
        (MAX_TIMESTAMP, 1, 40),
        (EARLIEST_LOCAL, 1, -1),
        (LATEST_TIERED, -1, -1),
        (RECORDS_END, 4, -1),
        (0, 1, 40),
        (15, 1, 40),
        (40, 1, 40),
        (41, -1, -1),
        ((1 << 63) - 1, -1, -1),
    ],
)
def test_every_way_to_ask_for_an_offset(
    client: Client, version: int, timestamp: int, offset: int, time: int
) -> None:
    one = list_offset(client, timestamp, version)
    assert (one.error_code, one.offset, one.timestamp) == (0, offset, time)
    expected_epoch = 0 if version >= 4 and offset >= 0 else -1
    assert one.leader_epoch == expected_epoch


@pytest.mark.parametrize("timestamp", [-6, -7, -(1 << 63)])
def test_a_special_time_that_is_not_known_is_refused(client: Client, timestamp: int) -> None:
    assert list_offset(client, timestamp).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_an_empty_partition_begins_and_ends_at_zero(client: Client, version: int) -> None:
    elsewhere = {"partition": 1}
    for timestamp in (LATEST, EARLIEST):
        assert list_offset(client, timestamp, version, subject=elsewhere).offset == 0
    assert list_offset(client, MAX_TIMESTAMP, version, subject=elsewhere).offset == -1


def test_uncommitted_records_are_not_listed(client: Client) -> None:
    partition = client.node.broker.topics.get("orders").partition(0)
    record = Record(None, b"new", timestamp_ms=client.node.clock.now_ms())
    client.node.append(partition, [record], lambda _: None)
    version, request = 11, list_request(client.subject, LATEST)
    api = API_BY_NAME["ListOffsets"]
    client.peer.send(client.peer.frame(api, version, request))
    client.node.front.flush_all()
    answer = client.peer.take_answer(api, version)
    assert answer.topics[0].partitions[0].offset == 4


@pytest.mark.parametrize("version", range(4, 12))
def test_a_client_that_knows_another_leader_is_told(client: Client, version: int) -> None:
    assert list_offset(client, LATEST, version, current_leader_epoch=0).error_code == 0
    one = list_offset(client, LATEST, version, current_leader_epoch=5)
    assert one.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", LIST_VERSIONS)
@pytest.mark.parametrize("nowhere", [{"topic": "nowhere"}, {"partition": 9}, {"partition": -1}])
def test_unknown_places_have_no_offsets(
    client: Client, version: int, nowhere: dict[str, Any]
) -> None:
    one = list_offset(client, LATEST, version, subject=nowhere)
    assert (one.error_code, one.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# Epochs


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch_is_where_the_next_began(client: Client, version: int) -> None:
    partition = client.node.broker.topics.get("orders").partition(0)
    partition.leader_epoch = 2
    client.produce(b"by the next leader")
    ends = []
    for epoch in (0, 1, 2, 9):
        request = epoch_end_request(client.subject, epoch)
        answer = client.call("OffsetForLeaderEpoch", request, version)
        one = answer.topics[0].partitions[0]
        assert one.error_code == 0
        ends.append((one.leader_epoch, one.end_offset))
    assert ends == [(0, 4), (0, 4), (2, 5), (2, 5)]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_before_all_is_answered_with_none(client: Client, version: int) -> None:
    request = epoch_end_request(client.subject, -1)
    one = client.call("OffsetForLeaderEpoch", request, version).topics[0].partitions[0]
    assert (one.error_code, one.leader_epoch, one.end_offset) == (0, -1, -1)


@pytest.mark.parametrize(
    ("current", "code"), [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_the_end_of_an_epoch_is_not_told_to_who_knows_another_leader(
    client: Client, current: int, code: ErrorCode
) -> None:
    client.node.broker.topics.get("orders").partition(0).leader_epoch = 2
    request = epoch_end_request(client.subject, 0, current_leader_epoch=current)
    one = client.call("OffsetForLeaderEpoch", request).topics[0].partitions[0]
    assert (one.error_code, one.end_offset) == (code, -1)


# Deleting


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("offset", "low", "code"),
    [
        (2, 2, 0),
        (-1, 4, 0),
        (0, 1, 0),
        (4, 4, 0),
        (5, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_records_are_deleted_up_to_an_offset(
    client: Client, version: int, offset: int, low: int, code: int
) -> None:
    request = delete_records_request(client.subject, offset)
    one = client.call("DeleteRecords", request, version).topics[0].partitions[0]
    assert (one.low_watermark, one.error_code) == (low, code)


def test_records_of_a_compacted_topic_are_kept() -> None:
    client = Client()
    client.node.create("kept", cleanup_policy="compact")
    request = delete_records_request(about(client.subject, {"topic": "kept"}), -1)
    one = client.call("DeleteRecords", request).topics[0].partitions[0]
    assert one.error_code == ErrorCode.POLICY_VIOLATION
