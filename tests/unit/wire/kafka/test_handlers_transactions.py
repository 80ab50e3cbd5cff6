"""Transactions over the wire: what each version is told, and what readers see."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from goqueue.client.aborted import AbortedTransaction, AbortedTransactions
from goqueue.model.batch import Record, decode_batch, encode_batch, read_header
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from goqueue.wire.kafka.messages.list_transactions import ListTransactionsRequest
from tests.unit.wire.kafka.client import Client, about, error_codes, failures
from tests.unit.wire.kafka.requests import (
    add_partitions_request,
    end_request,
    fetch_request,
    init_request,
    list_request,
    markers_request,
    offset_fetch_request,
    produce_request,
    txn_commit_request,
)

__all__ = ["failures"]

COMMITTED, UNCOMMITTED = 1, 0
JOINS = 12  # the first version of Produce that makes its partitions part of the transaction


@pytest.fixture
def client(failures: list[Exception]) -> Iterator[Client]:
    yield Client()
    assert failures == []


def begin(client: Client) -> None:
    """Become the producer of the usual transactional id."""
    found = client.call("InitProducerId", init_request(client.subject))
    assert found.error_code == 0
    client.subject.producer_id = found.producer_id
    client.subject.producer_epoch = found.producer_epoch


def batch(client: Client, *values: bytes, sequence: int = 0, **fields: int) -> bytes:
    identity = {
        "producer_id": client.subject.producer_id,
        "producer_epoch": client.subject.producer_epoch,
    } | fields
    records = [Record(None, value, timestamp_ms=1) for value in values]
    return bytes(encode_batch(records, base_sequence=sequence, is_transactional=True, **identity))


def write(
    client: Client,
    *values: bytes,
    version: int = JOINS,
    partition: int = 0,
    sequence: int = 0,
    **fields: int,
) -> Any:
    """The answer for the one partition."""
    request = produce_request(
        version,
        about(client.subject, {"partition": partition}),
        batch(client, *values, sequence=sequence, **fields),
        transactional_id=client.subject.transaction,
    )
    answer = client.call("Produce", request, version)
    return answer.responses[0].partition_responses[0]


def end(client: Client, version: int = 5, *, is_commit: bool = True) -> Any:
    answer = client.call("EndTxn", end_request(client.subject, is_commit=is_commit), version)
    if version >= 5 and not answer.error_code:
        client.subject.producer_id = answer.producer_id
        client.subject.producer_epoch = answer.producer_epoch
    return answer


def settle(client: Client) -> None:
    """Let the markers of a decision be written."""
    client.node.run_for(1000)


def fetched(client: Client, isolation: int, partition: int = 0) -> Any:
    request = fetch_request(about(client.subject, {"partition": partition}), isolation=isolation)
    return client.call("Fetch", request, 12).responses[0].partitions[0]


def read(client: Client, isolation: int, partition: int = 0) -> list[bytes | None]:
    """What a client of that isolation shows to its user."""
    answer = fetched(client, isolation, partition)
    aborted = AbortedTransactions(
        AbortedTransaction(one.first_offset, one.producer_id)
        for one in answer.aborted_transactions or ()
    )
    values: list[bytes | None] = []
    at = 0
    while at < len(answer.records):
        header = read_header(answer.records, at)
        data = answer.records[at : at + header.size]
        if not aborted.covers(header, data) and not header.is_control:
            values += [one.value for one in decode_batch(data)]
        at += header.size
    return values


# Producers


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_and_counts_its_lives(
    client: Client, version: int
) -> None:
    answers = [client.call("InitProducerId", init_request(client.subject), version) for _ in "ab"]
    assert [one.error_code for one in answers] == [0, 0]
    assert answers[0].producer_id == answers[1].producer_id
    assert [one.producer_epoch for one in answers] == [0, 1]


@pytest.mark.parametrize("version", range(6))
def test_bad_questions_for_a_producer_id_are_refused(client: Client, version: int) -> None:
    def code(**fields: Any) -> int:
        request = InitProducerIdRequest(**{"transaction_timeout_ms": 1000} | fields)
        answer = client.call("InitProducerId", request, version)
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return int(answer.error_code)

    assert code(transactional_id="") == ErrorCode.INVALID_REQUEST
    too_long = code(transactional_id="till", transaction_timeout_ms=1 << 30)
    assert too_long == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if version >= 3:
        assert code(transactional_id="till", producer_id=7) == ErrorCode.INVALID_REQUEST


# In each of these APIs, the versions below the second number know only of old epochs.
@pytest.mark.parametrize(
    ("name", "first_with_fenced"),
    [("InitProducerId", 4), ("AddPartitionsToTxn", 2), ("AddOffsetsToTxn", 2), ("EndTxn", 2)],
)
def test_a_fenced_producer_is_told_so_in_words_it_knows(
    client: Client, name: str, first_with_fenced: int
) -> None:
    client.have_transaction()
    begin(client)
    old = about(client.subject, {"producer_epoch": 0})
    api = API_BY_NAME[name]
    for version in range(api.version_min, api.version_stable_max + 1):
        if name == "InitProducerId":
            if version < 3:
                continue  # It cannot say who it is.
            answer = client.call(name, init_request(old, is_again=True), version)
        else:
            answer = client.ask(name, version, **vars(old))
        expected = (
            ErrorCode.PRODUCER_FENCED
            if version >= first_with_fenced
            else ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert error_codes(answer) == {expected}, f"version {version}"


@pytest.mark.parametrize(
    "name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"]
)
def test_a_producer_id_that_belongs_to_no_transaction_is_refused(client: Client, name: str) -> None:
    client.have_transaction()
    api = API_BY_NAME[name]
    for version in range(api.version_min, api.version_stable_max + 1):
        answer = client.ask(name, version, producer_id=123_456)
        assert error_codes(answer) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        answer = client.ask(name, version, transaction="unknown")
        assert error_codes(answer) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


# Partitions


@pytest.mark.parametrize("version", range(6))
def test_one_unknown_partition_keeps_all_out(client: Client, version: int) -> None:
    begin(client)
    request = add_partitions_request(version, client.subject, 0, 9)
    answer = client.call("AddPartitionsToTxn", request, version)
    assert error_codes(answer) == {
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("version", [4, 5])
def test_only_a_participant_is_verified(client: Client, version: int) -> None:
    client.have_transaction()

    def codes(partition: int) -> set[int]:
        subject = about(client.subject, {"partition": partition})
        request = add_partitions_request(version, subject, verify_only=True)
        return error_codes(client.call("AddPartitionsToTxn", request, version))

    assert codes(0) == set()
    assert codes(1) == {
        ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
    }


def test_a_client_cannot_add_a_topic_of_the_brokers_own(client: Client) -> None:
    begin(client)
    answer = client.ask("AddPartitionsToTxn", 3, topic="__transaction_state")
    assert error_codes(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_for_a_partition_that_was_not_added(client: Client, version: int) -> None:
    client.have_transaction()
    answer = write(client, b"a", version=version, partition=1)
    joins = version >= JOINS
    assert answer.error_code == (0 if joins else ErrorCode.INVALID_TXN_STATE)
    assert answer.base_offset == (0 if joins else -1)


def test_a_transactional_batch_without_an_id_is_refused(client: Client) -> None:
    client.have_transaction()
    request = produce_request(9, client.subject, batch(client, b"a"))
    answer = client.call("Produce", request, 9)
    assert error_codes(answer) == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_of_an_old_epoch_is_refused_as_such(client: Client, version: int) -> None:
    client.have_transaction()
    begin(client)
    answer = write(client, b"a", version=version, producer_epoch=0)
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# Ends


@pytest.mark.parametrize("version", range(6))
def test_a_commit_is_seen_by_all_and_an_abort_by_those_who_want_all(
    client: Client, version: int
) -> None:
    client.have_transaction()
    assert write(client, b"good", version=10).error_code == 0
    assert end(client, version).error_code == 0
    settle(client)
    client.ask("AddPartitionsToTxn", 3)
    sequence = 0 if version >= 5 else 1
    assert write(client, b"bad", version=10, sequence=sequence).error_code == 0
    assert end(client, version, is_commit=False).error_code == 0
    settle(client)
    assert read(client, COMMITTED) == [b"good"]
    assert read(client, UNCOMMITTED) == [b"good", b"bad"]


def test_from_version_five_every_transaction_has_an_epoch_of_its_own(client: Client) -> None:
    client.have_transaction()
    before = client.subject.producer_epoch
    end(client)
    assert client.subject.producer_epoch == before + 1
    assert client.call("EndTxn", end_request(client.subject), 4).producer_epoch == -1


def test_ending_what_was_never_begun_is_refused(client: Client) -> None:
    begin(client)
    for version in range(5):
        assert end(client, version).error_code == ErrorCode.INVALID_TXN_STATE
    # A producer of the newer kind aborts to be sure.
    assert end(client, 5, is_commit=False).error_code == 0


def test_the_other_end_is_refused_when_one_was_decided(client: Client) -> None:
    client.have_transaction()
    assert end(client, 3).error_code == 0
    settle(client)
    assert end(client, 3).error_code == 0
    assert end(client, 3, is_commit=False).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", range(1, 12))
def test_the_end_for_readers_of_committed_records_is_where_a_transaction_is_open(
    client: Client, version: int
) -> None:
    client.have_transaction()
    client.produce(b"plain")
    write(client, b"open")
    client.produce(b"later", timestamp_ms=9)

    def found(timestamp: int, isolation: int) -> int:
        request = list_request(client.subject, timestamp, isolation=isolation)
        answer = client.call("ListOffsets", request, version)
        return int(answer.topics[0].partitions[0].offset)

    is_told = version >= 2
    assert found(-1, UNCOMMITTED) == 3
    if is_told:
        assert found(-1, COMMITTED) == 1
        assert found(9, COMMITTED) == -1
    assert found(9, UNCOMMITTED) == 2


def test_a_fetch_tells_where_aborted_transactions_begin_only_to_those_who_care(
    client: Client,
) -> None:
    client.have_transaction()
    write(client, b"a")
    end(client, is_commit=False)
    settle(client)
    assert fetched(client, UNCOMMITTED).aborted_transactions is None
    data = fetched(client, COMMITTED)
    (aborted,) = data.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (client.subject.producer_id, 0)
    assert data.last_stable_offset == data.high_watermark == 2


# Offsets


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_count_when_the_transaction_does(
    client: Client, version: int, is_commit: bool
) -> None:
    client.have_transaction()
    request = txn_commit_request(version, client.subject, 7)
    assert error_codes(client.call("TxnOffsetCommit", request, version)) == set()

    def offset(*, is_stable: bool) -> tuple[int, int]:
        request = offset_fetch_request(9, client.subject, is_stable=is_stable)
        (one,) = client.call("OffsetFetch", request, 9).groups[0].topics[0].partitions
        return one.error_code, one.committed_offset

    assert offset(is_stable=False) == (0, -1)
    assert offset(is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    end(client, is_commit=is_commit)
    settle(client)
    assert offset(is_stable=True) == (0, 7 if is_commit else -1)


@pytest.mark.parametrize("version", range(1, 11))
def test_unstable_offsets_are_among_all_that_are_asked_for(client: Client, version: int) -> None:
    client.have_transaction()
    client.call("TxnOffsetCommit", txn_commit_request(3, client.subject, 7), 3)
    if version < 7:
        return  # These cannot ask for what is stable.
    request = offset_fetch_request(version, client.subject, wants_all=True, is_stable=True)
    answer = client.call("OffsetFetch", request, version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    (one,) = topics[0].partitions
    assert (one.error_code, one.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


@pytest.mark.parametrize("version", range(7))
def test_offsets_of_a_group_that_was_not_added(client: Client, version: int) -> None:
    begin(client)
    client.ask("AddPartitionsToTxn", 3)
    answer = client.call("TxnOffsetCommit", txn_commit_request(version, client.subject), version)
    joins = version >= 5
    if joins:
        assert error_codes(answer) == set()
    else:
        assert error_codes(answer) & {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("version", range(3, 7))
def test_a_consumer_that_was_left_behind_commits_nothing(client: Client, version: int) -> None:
    client.have_groups()
    client.have_transaction()
    subject = about(client.subject, {"generation": client.subject.generation + 1})
    answer = client.call("TxnOffsetCommit", txn_commit_request(version, subject), version)
    assert error_codes(answer) == {ErrorCode.ILLEGAL_GENERATION}


# Administration


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_by_state(client: Client, version: int) -> None:
    client.have_transaction()

    def listed(**filters: Any) -> Any:
        return client.call("ListTransactions", ListTransactionsRequest(**filters), version)

    (one,) = listed().transaction_states
    assert (one.transactional_id, one.transaction_state) == ("till", "Ongoing")
    assert listed(state_filters=["Empty"]).transaction_states == []
    answer = listed(state_filters=["Ongoing", "Bored"])
    assert [one.transactional_id for one in answer.transaction_states] == ["till"]
    assert answer.unknown_state_filters == ["Bored"]
    assert listed(state_filters=["Bored"]).transaction_states == []
    if version >= 1:
        assert listed(duration_filter=3_600_000).transaction_states == []
    if version >= 2:
        assert len(listed(transactional_id_pattern="t.*").transaction_states) == 1
        assert listed(transactional_id_pattern="t").transaction_states == []
        refused = listed(transactional_id_pattern="(")
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_transaction_is_described_with_its_partitions(client: Client) -> None:
    client.have_transaction()
    (one,) = client.ask("DescribeTransactions").transaction_states
    assert (one.transaction_state, one.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert one.producer_id == client.subject.producer_id
    assert {topic.topic: topic.partitions for topic in one.topics} == {
        "orders": [0],
        "__consumer_offsets": [0],
    }
    (one,) = client.ask("DescribeTransactions", transaction="unknown").transaction_states
    assert one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_producers_are_described_with_the_transaction_they_have_open(client: Client) -> None:
    def described() -> Any:
        return client.ask("DescribeProducers").topics[0].partitions[0].active_producers

    client.have_transaction()
    client.produce(b"before")
    write(client, b"open")
    (one,) = described()
    assert (one.producer_id, one.current_txn_start_offset) == (client.subject.producer_id, 1)
    end(client)
    settle(client)
    (one,) = described()
    assert one.current_txn_start_offset == -1


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_an_operator_aborts_a_known_transaction_as_a_whole(
    client: Client, version: int
) -> None:
    client.have_transaction()
    write(client, b"ours")
    commit = markers_request(client.subject)
    commit.markers[0].transaction_result = True
    answer = client.call("WriteTxnMarkers", commit, version)
    assert error_codes(answer) == {ErrorCode.INVALID_TXN_STATE}, "only its producer commits"
    later = about(client.subject, {"producer_epoch": client.subject.producer_epoch + 1})
    answer = client.call("WriteTxnMarkers", markers_request(later), version)
    assert error_codes(answer) == {ErrorCode.INVALID_PRODUCER_EPOCH}, "that is another one"
    answer = client.call("WriteTxnMarkers", markers_request(client.subject), version)
    assert error_codes(answer) == set()
    (state,) = client.ask("DescribeTransactions").transaction_states
    assert (state.transaction_state, state.topics) == ("CompleteAbort", [])
    partition = client.node.broker.topics.get("orders").partition(0)
    assert partition.last_stable_offset == partition.high_watermark
    stranger = about(client.subject, {"producer_id": 123_456})
    answer = client.call("WriteTxnMarkers", markers_request(stranger), version)
    assert error_codes(answer) == set()
    nowhere = about(client.subject, {"topic": "nowhere"})
    answer = client.call("WriteTxnMarkers", markers_request(nowhere), version)
    assert error_codes(answer) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# The newer kind of producer, which waits for nothing


@pytest.mark.seeds(10)
def test_producers_that_send_before_the_last_transaction_is_complete(
    client: Client, seed: int
) -> None:
    """Batches of the next transaction follow the end of the last one at once, all in one line."""
    chance = random.Random(seed)
    begin(client)
    expected: dict[int, list[bytes | None]] = {number: [] for number in range(4)}
    for round_number in range(40):
        is_commit = chance.random() < 0.6
        numbers = chance.sample(range(4), chance.randint(1, 4))
        sequences = dict.fromkeys(numbers, 0)
        sent = []
        for step in range(chance.randint(1, 8)):
            number = chance.choice(numbers)
            value = b"%d.%d" % (round_number, step)
            sent.append((number, value, sequences[number]))
            sequences[number] += 1
        _send_all(client, sent, chance)
        assert end(client, is_commit=is_commit).error_code == 0
        if is_commit:
            for number, value, _ in sent:
                expected[number].append(value)
    settle(client)
    assert {number: read(client, COMMITTED, number) for number in range(4)} == expected


def _send_all(client: Client, sent: list[tuple[int, bytes, int]], chance: random.Random) -> None:
    """Send every batch without waiting for answers; send again what has to be."""
    api = API_BY_NAME["Produce"]
    while sent:
        for number, value, sequence in sent:
            request = produce_request(
                JOINS,
                about(client.subject, {"partition": number}),
                batch(client, value, sequence=sequence),
                transactional_id=client.subject.transaction,
            )
            client.peer.send(client.peer.frame(api, JOINS, request))
            if chance.random() < 0.3:
                client.node.run_for(chance.choice([0, 1, 5]))
        again = []
        for one in sent:
            client.node.run_until(lambda: client.peer.has_answer)
            answer = client.peer.take_answer(api, JOINS).responses[0].partition_responses[0]
            if answer.error_code in (
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ):
                again.append(one)
            else:
                assert answer.error_code == 0
        sent = again
