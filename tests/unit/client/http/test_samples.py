"""The text of metrics, read as it is written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.client.errors import BrokerRefused
from goqueue.client.http.samples import Sample, read_samples
from goqueue.metrics import Counter, Histogram
from goqueue.metrics.catalogue import GROUP_LAG_MESSAGES, NODE_READY, REQUEST_DURATION
from goqueue.metrics.rendering import Series, render
from goqueue.metrics.text_format import TextFormat

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


def written(*series: Series) -> bytes:
    return b"".join(render(series, TextFormat.PROMETHEUS))


@given(NAMES, NAMES, st.floats(allow_nan=False, allow_infinity=False))
def test_what_a_node_renders_is_read_back(group: str, topic: str, value: float) -> None:
    text = written(Series(GROUP_LAG_MESSAGES, [((group, topic), value)]))
    labels = (("group", group), ("topic", topic))
    assert read_samples(text) == [Sample("goqueue_group_lag_messages", labels, value)]


def test_histograms_are_read_as_their_parts() -> None:
    histogram = Histogram()
    histogram.observe(0.003)
    samples = read_samples(written(Series(REQUEST_DURATION, [(("kafka", "Fetch"), histogram)])))
    by_name = {(one.name, one.label("le")): one.value for one in samples}
    assert by_name["goqueue_request_duration_seconds_bucket", "0.0025"] == 0
    assert by_name["goqueue_request_duration_seconds_bucket", "0.005"] == 1
    assert by_name["goqueue_request_duration_seconds_count", ""] == 1
    assert all(one.label("api") == "Fetch" for one in samples)


def test_values_without_labels_and_beyond_numbers_are_read() -> None:
    assert read_samples(written(Series(NODE_READY, [((), 1)]))) == [
        Sample("goqueue_node_ready", (), 1.0)
    ]
    (infinite, nothing) = read_samples(b"a +Inf\nb NaN 1700000000000\n")
    assert infinite.value == math.inf
    assert math.isnan(nothing.value)


def test_a_counter_is_read_as_a_number() -> None:
    counter = Counter()
    counter.value += 3
    assert read_samples(written(Series(NODE_READY, [((), counter)])))[0].value == 3  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text", [b"<html>", b'a{b="c"', b"a{b=c} 1", b'a{b="c"} many', b"\xff 1", b"a"]
)
def test_what_is_no_text_of_metrics_is_refused(text: bytes) -> None:
    with pytest.raises(BrokerRefused, match="is not a text of metrics"):
        read_samples(text)


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_samples(data)
    except BrokerRefused:
        pass
