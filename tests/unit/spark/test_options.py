"""Options: what users of Kafka's source know, and everything that is wrong at once."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.journeys.options import CLOCKS_MS_MAX
from goqueue.spark.options import (
    BOOTSTRAP_DEFAULT,
    EARLIEST,
    LATEST,
    SPLIT_BYTES_DEFAULT,
    ReadOptions,
    Start,
    read_options,
)
from goqueue.tracing.events import Kind


def table(**options: str) -> ReadOptions:
    return read_options({"subscribe": "orders", **options}, is_streaming=False)


def stream(**options: str) -> ReadOptions:
    return read_options({"subscribe": "orders", **options}, is_streaming=True)


def test_a_table_of_one_topic_needs_nothing_but_its_name() -> None:
    options = table()
    assert options.bootstrap == BOOTSTRAP_DEFAULT
    assert options.topics == ("orders",)
    assert (options.start, options.end) == (Start(EARLIEST), Start(LATEST))
    assert options.split_bytes == SPLIT_BYTES_DEFAULT
    assert options.fails_on_data_loss
    assert options.is_committed_only
    assert not options.has_headers


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert stream().start == Start(LATEST)
    assert stream(startingOffsets="earliest").start == Start(EARLIEST)


def test_names_are_known_in_any_case() -> None:
    given = {"SUBSCRIBE": "a, b,a", "kafka.Bootstrap.Servers": "h:1", "includeheaders": "TRUE"}
    options = read_options(given, is_streaming=False)
    assert options.topics == ("a", "b")
    assert options.bootstrap == "h:1"
    assert options.has_headers


def test_places_are_words_numbers_or_offsets_by_partition() -> None:
    assert table(startingOffsets='{"orders": {"0": 23, "1": -2}}').start == Start(
        EARLIEST, offsets={"orders": {0: 23, 1: -2}}
    )
    assert table(startingOffsets="500", endingOffsets="900").start == Start(EARLIEST, offset=500)
    assert table(endingOffsets='{"orders": {"0": -1}}').end == Start(
        LATEST, offsets={"orders": {0: -1}}
    )
    assert table(startingTimestamp="1700").start.timestamp_ms == 1700
    assert table(startingTimestamp="1970-01-01T00:00:01.5Z").start.timestamp_ms == 1500
    assert table(startingTimestamp="1970-01-01").start.timestamp_ms == 0
    assert table(endingOffsetsByTimestamp='{"orders": {"3": 9}}').end.timestamps == {
        "orders": {3: 9}
    }


def test_limits_and_durations_have_units() -> None:
    options = stream(
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        maxBytesPerTrigger="1000",
        maxTriggerDelay="90s",
        splitBytes="65536",
        group="g",
    )
    assert (options.trigger_offsets_min, options.trigger_offsets_max) == (5, 10)
    assert (options.trigger_bytes_max, options.trigger_delay_ms_max) == (1000, 90_000)
    assert (options.split_bytes, options.group_id) == (65_536, "g")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15min", 900_000),
        ("15m", 900_000),
        ("15 minutes", 900_000),
        ("1 minute", 60_000),
        ("2h", 7_200_000),
        ("1 day", 86_400_000),
        ("30 Seconds", 30_000),
        ("250", 250),
        ("250 milliseconds", 250),
        ("5000us", 5),
    ],
)
def test_durations_are_written_as_spark_writes_them(text: str, expected: int) -> None:
    assert stream(maxTriggerDelay=text).trigger_delay_ms_max == expected


def test_the_strongest_of_several_starting_options_counts() -> None:
    times, offsets = '{"orders": {"0": 7}}', '{"orders": {"0": 3}}'
    every = {
        "startingOffsets": offsets,
        "startingOffsetsByTimestamp": times,
        "startingTimestamp": "9",
    }
    assert table(**every).start == Start(EARLIEST, timestamp_ms=9, needs_match=True)
    del every["startingTimestamp"]
    assert table(**every).start == Start(EARLIEST, timestamps={"orders": {0: 7}}, needs_match=True)
    del every["startingOffsetsByTimestamp"]
    assert table(**every).start == Start(EARLIEST, offsets={"orders": {0: 3}})
    ending = {"endingOffsets": offsets, "endingTimestamp": "9"}
    assert table(**ending).end == Start(LATEST, timestamp_ms=9)


def test_a_starting_time_that_nothing_matches_is_an_error_unless_told_otherwise() -> None:
    options = {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}
    assert not stream(**options).start.needs_match
    assert stream(startingTimestamp="9").start.needs_match


def test_every_option_that_kafkas_source_documents_is_known() -> None:
    """A job moves over by the name of its format; what follows is the list of its documentation."""
    options = {
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "120000",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "maxOffsetsPerTrigger": "10",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "15m",
        "minPartitions": "3",
        "maxRecordsPerPartition": "100",
        "groupIdPrefix": "jobs",
        "kafka.group.id": "mine",
        "includeHeaders": "true",
        "startingTimestamp": "1",
        "startingOffsetsByTimestamp": '{"orders": {"0": 1}}',
        "startingOffsets": "earliest",
        "startingOffsetsByTimestampStrategy": "latest",
        "kafka.bootstrap.servers": "h:1",
    }
    found = stream(**options)
    assert (found.group_id, found.group_prefix) == ("mine", "jobs")
    del options["kafka.group.id"]
    assert stream(**options).group_id is None
    ending = {
        "endingTimestamp": "9",
        "endingOffsetsByTimestamp": '{"orders": {"0": 1}}',
        "endingOffsets": "latest",
    }
    assert table(**options, **ending).end.timestamp_ms == 9


def test_options_of_the_kafka_consumer_may_stay() -> None:
    assert table(**{"kafka.fetch.max.bytes": "1", "kafka.security.protocol": "PLAINTEXT"})
    assert not table(**{"kafka.isolation.level": "read_uncommitted"}).is_committed_only


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": ""}, "exactly one of subscribe, subscribePattern and assign"),
        ({"assign": '{"orders": [0]}'}, "exactly one of"),
        ({"assign": '{"orders": [0.5]}', "subscribe": ""}, "assign takes JSON"),
        ({"subscribePattern": "(", "subscribe": ""}, "no regular expression"),
        ({"startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"nonsense": "1"}, "no option 'nonsense'"),
        ({"startingOffsets": "latest"}, "give earliest"),
        ({"startingOffsets": "soon"}, "startingOffsets is 'soon'"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot hold -1"),
        ({"endingOffsets": "earliest"}, "give latest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot hold -2"),
        ({"startingOffsets": '{"orders": 3}'}, "startingOffsets takes JSON"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "startingOffsets takes JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets takes JSON"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "startingOffsets takes JSON"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error, latest"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is higher than"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets to earliest"),
        ({"kafka.enable.auto.commit": "false"}, "kafka.enable.auto.commit is not supported"),
        ({"maxTriggerDelay": "15 moons"}, "such as 500ms"),
        ({"startingTimestamp": "yesterday"}, "2026-01-31T12:00:00Z"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "takes JSON"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"splitBytes": "12"}, "from 65536 on"),
        ({"includeHeaders": "yes"}, "give true or false"),
        ({"view": "rows"}, "records, batches"),
        ({"partitions": "0;1"}, "as 0,1,5"),
        ({"maxTriggerDelay": "soon"}, "such as 500ms"),
        ({"kafka.isolation.level": "none"}, "read_committed, read_uncommitted"),
        ({"kafka.sasl.login.class": "x"}, "not supported here"),
        ({"kafka.security.protocol": "TLS"}, "SASL_SSL"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        table(**options)


@pytest.mark.parametrize(
    "ending",
    [
        {"endingOffsets": "500"},
        {"endingOffsets": "latest"},
        {"endingTimestamp": "500"},
        {"endingOffsetsByTimestamp": '{"orders": {"0": 1}}'},
    ],
    ids=str,
)
def test_a_stream_has_no_end(ending: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="A stream has no end"):
        stream(**ending)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidRequest) as found:
        read_options(
            {
                "view": "rows",
                "minPartitions": "few",
                "strartingOffsets": "1",
                "includeHeaders": "2",
            },
            is_streaming=False,
        )
    for name in ("view", "minPartitions", "startingOffsets", "includeHeaders", "subscribe"):
        assert name in str(found.value)


def test_before_it_is_known_what_is_read_both_kinds_of_options_are_right() -> None:
    for options in ({"startingOffsets": "latest"}, {"endingOffsets": "5"}):
        assert read_options({"subscribe": "orders", **options}, is_streaming=None)


def test_the_journal_of_journeys_needs_no_topic_and_takes_selections() -> None:
    options = {
        "view": "journeys",
        "journeys.topics": "orders, payments",
        "journeys.kinds": "acked,Lease_Expired",
        "journeys.from": "2026-01-31T12:00:00Z",
        "journeys.until": "1769864400000",
    }
    found = read_options(options, is_streaming=False)
    from_ms = 1769860800000
    assert found.topics == ("__journeys",)
    assert found.events.topics == {"orders", "payments"}
    assert found.events.kinds == {Kind.ACKED, Kind.LEASE_EXPIRED}
    assert (found.events.from_ms, found.events.until_ms) == (from_ms, 1769864400000)
    assert found.start == Start(EARLIEST, timestamp_ms=from_ms - CLOCKS_MS_MAX)
    started = read_options({**options, "startingOffsets": "7"}, is_streaming=False)
    assert started.start == Start(EARLIEST, offset=7)
    assert read_options({**options, "topic": "copy"}, is_streaming=False).topics == ("copy",)


def test_selections_of_events_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="need the view journeys"):
        read_options({"topic": "orders", "journeys.kinds": "acked"}, is_streaming=False)
    with pytest.raises(InvalidRequest, match=r"journeys.kinds has 'lost'; give some of received,"):
        read_options({"view": "journeys", "journeys.kinds": "lost"}, is_streaming=False)
