"""Every generated message in every version, against a slow reading of Kafka's definitions."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import MalformedRequest, UnsupportedVersion
from goqueue.wire.kafka.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from goqueue.wire.kafka.messages import (
    API_BY_KEY,
    API_BY_NAME,
    fetch,
    heartbeat,
    join_group,
    metadata,
    produce,
)
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.unit.wire.kafka.reference import MESSAGES, Field, Message, holds

SEEDS = st.integers(0, 2**32)
quickly = settings(max_examples=12, derandomize=True, deadline=None, database=None)

# A decoded struct is up to 51 times larger than the few bytes it can be sent in: an empty array
# is one byte on the wire and an object in memory.
ALLOCATION_FACTOR = 64
ALLOCATION_ALLOWANCE = 20_000  # an exception and its traceback


@pytest.fixture(params=MESSAGES)
def message(request: pytest.FixtureRequest) -> Message:
    return Message(request.param)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_version_is_written_as_defined_and_read_back(name: str) -> None:
    message = Message(name)

    @quickly
    @given(seed=SEEDS, items_max=st.integers(0, 3))
    def round_trip(seed: int, items_max: int) -> None:
        for version in message.versions:
            value = message.random(version, Random(seed), items_max=items_max)
            data = message.encode(value, version)
            assert data == message.reference(value, version)
            assert message.decode(data, version) == value
            assert message.decode(memoryview(bytearray(b"before" + data)), version, 6) == value

    round_trip()


def test_the_table_lists_what_the_definitions_list(message: Message) -> None:
    api = message.api
    assert (api.version_min, api.version_max) == tuple(message.definition["versions"])
    for version in message.versions:
        assert api.supports(version)
        assert api.is_flexible(version) == message.is_flexible(version)
    assert API_BY_KEY[api.key] is api


# Bytes that are not what they should be


def test_a_message_cut_anywhere_is_malformed(message: Message) -> None:
    for version in message.versions:
        data = message.encode(message.random(version, Random(version), items_max=1), version)
        for length in range(len(data)):
            with pytest.raises(MalformedRequest):
                message.decode(data[:length], version)


def test_bytes_after_a_message_are_passed_over(message: Message) -> None:
    for version in message.versions:
        data = message.encode(message.cls(), version)
        assert message.decode(data + b"\x00", version) == message.decode(data, version)


@pytest.mark.parametrize("name", MESSAGES)
def test_random_and_damaged_bytes_are_read_or_malformed(name: str) -> None:
    message = Message(name)

    @quickly
    @given(seed=SEEDS)
    def decode_damaged(seed: int) -> None:
        random = Random(seed)
        for version in message.versions:
            data = bytearray(message.encode(message.random(version, random), version))
            for _ in range(3):
                if data:
                    data[random.randrange(len(data))] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            for attempt in (bytes(data), random.randbytes(random.randint(0, 60))):
                _decode_or_reject(message, attempt, version)

    decode_damaged()


def test_announced_lengths_are_not_believed(message: Message) -> None:
    for version in {message.versions[0], message.versions[-1]}:
        data = message.encode(message.random(version, Random(7), items_max=1), version)
        for position in range(len(data)):
            for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00\xff\xff\xff"):
                _decode_or_reject(message, data[:position] + lie + data[position:], version)
                _decode_or_reject(message, data[:position] + lie + data[position + 4 :], version)


def test_decoding_allocates_a_small_multiple_of_its_input(message: Message) -> None:
    version = message.versions[-1]
    size = 20_000
    attempts = [bytes([byte]) * size for byte in (0, 1, 2, 3, 0x7F, 0xFF)]
    value = message.random(version, Random(3), items_max=1)
    data = message.encode(value, version)
    attempts += [
        data[:position] + lie + bytes([filling]) * size
        for position in range(0, len(data), 1 + len(data) // 12)
        for lie in (b"\x00\x00\x10\x00", b"\xa0\x9c\x01", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f")
        for filling in (0, 1)
    ]
    for attempt in attempts:
        tracemalloc.start()
        _decode_or_reject(message, attempt, version)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < ALLOCATION_FACTOR * len(attempt) + ALLOCATION_ALLOWANCE


def _decode_or_reject(message: Message, data: bytes, version: int) -> None:
    try:
        message.decode(data, version)
    except MalformedRequest:
        pass


# Versions


def test_unknown_tagged_fields_are_skipped(message: Message) -> None:
    for version in message.versions:
        if message.is_flexible(version):
            value = message.random(version, Random(version))
            data = message.reference(value, version, unknown_tags=True)
            assert message.decode(data, version) == value


def test_a_default_message_can_be_written_in_every_version(message: Message) -> None:
    for version in message.versions:
        assert message.decode(message.encode(message.cls(), version), version) == message.cls()


def test_a_value_is_refused_by_versions_without_its_field_unless_it_may_be_lost(
    message: Message,
) -> None:
    for field in message.fields:
        for version in message.versions:
            if holds(field["versions"], version):
                continue
            given = message.cls(**{field["name"]: _other_than_default(message, field)})
            if field.get("ignorable"):
                assert message.decode(message.encode(given, version), version) == message.cls()
            else:
                with pytest.raises(UnsupportedVersion, match=field["name"]):
                    message.encode(given, version)


def _other_than_default(message: Message, field: Field) -> Any:
    version = max(v for v in message.versions if holds(field["versions"], v))
    for seed in range(100):
        value = getattr(message.random(version, Random(seed)), field["name"])
        if value is not None and value != getattr(message.cls(), field["name"]):
            return value
    raise AssertionError(f"no value differs from the default of {field['name']}")


def test_unsupported_versions_are_named(message: Message) -> None:
    for version in (message.versions[0] - 1, message.versions[-1] + 1):
        with pytest.raises(UnsupportedVersion, match=f"Version {version} of {message.name}"):
            message.decode(b"", version)
        with pytest.raises(UnsupportedVersion, match=f"Version {version} of {message.name}"):
            message.encode(message.cls(), version)


# Old producers


def test_the_oldest_produce_requests_have_no_transactional_id() -> None:
    data = bytes.fromhex("0001 00000400 00000001 0001 74 00000001 00000005 00000003 616263")
    expected = ProduceRequest(
        acks=1,
        timeout_ms=1024,
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=5, records=b"abc")]
            )
        ],
    )
    for version in (0, 1, 2):
        assert produce.decode_request(data, version) == expected
        assert produce.encode_request(expected, version) == data
    assert produce.decode_request(b"\xff\xff" + data, 3) == expected


def test_produce_responses_grow_with_their_version() -> None:
    partition = PartitionProduceResponse(index=5, base_offset=9, log_append_time_ms=7)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])],
        throttle_time_ms=3,
    )
    head = bytes.fromhex("00000001 0001 74 00000001 00000005 0000 0000000000000009")
    append_time, throttle_time = bytes.fromhex("0000000000000007"), bytes.fromhex("00000003")
    assert produce.encode_response(response, 0) == head
    assert produce.encode_response(response, 1) == head + throttle_time
    assert produce.encode_response(response, 2) == head + append_time + throttle_time


# Memory and values


def test_records_are_views_of_the_input_and_bytes_are_copies() -> None:
    partition = fetch.PartitionData(records=b"batches")
    response = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])]
    )
    data = bytearray(fetch.encode_response(response, 11))
    records = fetch.decode_response(data, 11).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    data[data.index(b"batches")] = ord("B")
    assert bytes(records) == b"Batches"

    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"topics")
    data = bytearray(
        join_group.encode_request(join_group.JoinGroupRequest(protocols=[protocol]), 5)
    )
    request = join_group.decode_request(data, 5)
    data[:] = bytes(len(data))
    assert request.protocols[0].metadata == b"topics"


def test_records_are_written_from_any_buffer_and_without_copying() -> None:
    for records in (b"batch", bytearray(b"batch"), memoryview(b"batch")):
        request = ProduceRequest(
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])
            ]
        )
        chunks: list[bytes | bytearray | memoryview] = []
        produce.write_request(request, 7, chunks)
        assert any(chunk is records for chunk in chunks)
        assert b"".join(chunks) == produce.encode_request(request, 7)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (heartbeat.HeartbeatRequest(generation_id=2**31), 4),
        (heartbeat.HeartbeatRequest(group_id=None), 4),  # type: ignore[arg-type]
        (heartbeat.HeartbeatRequest(group_id="g" * 40_000), 3),
        (heartbeat.HeartbeatRequest(group_id="g" * 40_000), 4),
        (heartbeat.HeartbeatRequest(group_id="\ud800"), 4),
    ],
)
def test_values_that_do_not_fit_are_refused(
    request_: heartbeat.HeartbeatRequest, version: int
) -> None:
    with pytest.raises(ValueError, match=f"HeartbeatRequest version {version} cannot carry"):
        heartbeat.encode_request(request_, version)


def test_null_is_refused_by_versions_that_do_not_know_it() -> None:
    response = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(name=None)])
    assert metadata.decode_response(metadata.encode_response(response, 12), 12) == response
    with pytest.raises(ValueError, match="name may not be null"):
        metadata.encode_response(response, 9)


def test_a_uuid_of_the_wrong_length_is_refused() -> None:
    response = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(topic_id=b"short")])
    with pytest.raises(ValueError, match="a uuid has 16 bytes"):
        metadata.encode_response(response, 12)


def test_a_tagged_field_must_fill_its_stated_size() -> None:
    data = bytearray(fetch.encode_request(fetch.FetchRequest(cluster_id="abc"), 15))
    position = data.index(b"\x04abc")
    data[position] = 3
    with pytest.raises(MalformedRequest, match="tagged field 0"):
        fetch.decode_request(data, 15)


# Headers


def test_headers_follow_the_version_of_their_api() -> None:
    api = API_BY_NAME["Heartbeat"]
    for version, ending in ((3, b""), (4, b"\x00")):
        data = encode_request_header(api, version=version, correlation_id=7, client_id="me")
        assert data == bytes([0, 12, 0, version, 0, 0, 0, 7, 0, 2]) + b"me" + ending
        header, body = decode_request_header(b"...." + data + b"body", 4)
        assert (header.request_api_key, header.request_api_version) == (12, version)
        assert (header.correlation_id, header.client_id, body) == (7, "me", 4 + len(data))

        data = encode_response_header(api, version=version, correlation_id=7)
        assert data == b"\x00\x00\x00\x07" + ending
        response_header, body = decode_response_header(data + b"body", api, version)
        assert (response_header.correlation_id, body) == (7, len(data))


def test_a_client_may_have_no_id() -> None:
    for version in (3, 4):
        data = encode_request_header(
            API_BY_NAME["Heartbeat"], version=version, correlation_id=1, client_id=None
        )
        assert decode_request_header(data)[0].client_id is None


def test_answers_to_api_versions_have_the_oldest_header() -> None:
    api = API_BY_NAME["ApiVersions"]
    for version in range(api.version_max + 1):
        assert encode_response_header(api, version=version, correlation_id=1) == b"\x00\x00\x00\x01"


def test_the_header_of_a_version_from_the_future_can_be_read() -> None:
    api = API_BY_NAME["ApiVersions"]
    data = encode_request_header(api, version=99, correlation_id=1, client_id="new")
    header, _ = decode_request_header(data + b"who knows")
    assert header.request_api_version == 99
    assert not api.supports(99)


@quickly
@given(data=st.binary(max_size=40), key=st.sampled_from(sorted(API_BY_KEY)))
def test_random_headers_are_read_or_malformed(data: bytes, key: int) -> None:
    for attempt in (data, key.to_bytes(2, "big") + data):
        try:
            decode_request_header(attempt)
        except MalformedRequest:
            pass


def test_an_unstable_version_is_not_the_newest_stable_one() -> None:
    for api in API_BY_KEY.values():
        assert api.version_stable_max == api.version_max - (1 if api.is_latest_unstable else 0)
