"""Settings of the export of metrics, and the variables that other programs read too."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.config import load, render
from goqueue.config.export_kinds import (
    CollectorAddress,
    Prefixes,
    RequestHeaders,
    ResourceAttributes,
)
from goqueue.model.errors import InvalidSettings

ADDRESS = CollectorAddress("/v1/metrics")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ""),
        ("http://collector:4318", "http://collector:4318/v1/metrics"),
        ("http://collector:4318/", "http://collector:4318/v1/metrics"),
        ("https://collector/otlp/v1/metrics?a=b", "https://collector/otlp/v1/metrics?a=b"),
        ("http://[::1]:4318/x", "http://[::1]:4318/x"),
    ],
)
def test_an_address_without_a_path_gets_the_usual_one(text: str, address: str) -> None:
    assert ADDRESS.read(text) == address


@pytest.mark.parametrize(
    "text", ["collector:4318", "ftp://a", "http://", "http://a:x", "http://u:p@a", "http://a b"]
)
def test_what_is_no_address_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="not the address") as raised:
        ADDRESS.read(text)
    assert text not in str(raised.value)


def test_headers_are_decoded_and_hidden() -> None:
    kind = RequestHeaders()
    headers = kind.read("authorization=Bearer%20a%3Db, x-one=1,")
    assert headers == (("authorization", "Bearer a=b"), ("x-one", "1"))
    assert kind.show(headers) == "authorization=(hidden),x-one=(hidden)"


@pytest.mark.parametrize("text", ["a", "a=", "a b=c", "host=x", "a=%0d%0a", "a=\u00e4"])
def test_bad_headers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a header cannot be read"):
        RequestHeaders().read(text)


def test_too_many_headers_are_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        RequestHeaders().read(",".join(f"a{number}=b" for number in range(21)))


def test_attributes_are_shown_as_they_are_read() -> None:
    kind = ResourceAttributes()
    value = kind.read("deployment.environment=test%2C1,b=")
    assert value == (("deployment.environment", "test,1"), ("b", ""))
    assert kind.read(kind.show(value)) == value
    with pytest.raises(ValueError, match="cannot be read"):
        kind.read("=x")


def test_prefixes_are_names() -> None:
    assert Prefixes().read("a.b., c") == ("a.b.", "c")
    with pytest.raises(ValueError, match="begins no name"):
        Prefixes().read("a b")


def test_the_variables_of_opentelemetry_are_read() -> None:
    settings = load(
        environ={
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/base/",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_METRIC_EXPORT_INTERVAL": "30000",
            "OTEL_SERVICE_NAME": "shop",
            "OTEL_RESOURCE_ATTRIBUTES": "a=b",
        }
    )
    metrics = settings.metrics
    assert metrics.otlp_endpoint == "http://collector:4318/base/v1/metrics"
    assert metrics.otlp_headers == (("a", "1"),)
    assert (metrics.otlp_timeout_ms, metrics.otlp_interval_ms) == (2_500, 30_000)
    assert metrics.otlp_compression == "none"
    assert metrics.otlp_service_name == "shop"
    assert metrics.otlp_attributes == (("a", "b"),)
    assert "environment OTEL_SERVICE_NAME" in render(settings)


def test_a_variable_for_metrics_comes_before_that_for_everything() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics:4318/here",
    }
    assert load(environ=environ).metrics.otlp_endpoint == "http://metrics:4318/here"


def test_traces_have_variables_of_their_own_and_share_the_general_ones() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318/base",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
    }
    journeys = load(environ=environ).journeys
    assert journeys.otlp_endpoint == "http://all:4318/base/v1/traces"
    assert journeys.otlp_headers == (("a", "1"),)
    environ |= {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/here",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2",
    }
    journeys = load(environ=environ).journeys
    assert journeys.otlp_endpoint == "http://traces:4318/here"
    assert journeys.otlp_headers == (("b", "2"),)
    settings = load(environ={**environ, "OTEL_TRACES_EXPORTER": "none"})
    assert settings.journeys.otlp_endpoint == ""
    assert settings.metrics.otlp_endpoint == "http://all:4318/base/v1/metrics"


def test_what_names_a_setting_comes_before_the_variables_of_others(tmp_path: Path) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318"}
    file = tmp_path / "goqueue.yaml"
    file.write_text("metrics:\n  otlp_endpoint: http://file:4318\n")
    assert load(environ=environ, file=file).metrics.otlp_endpoint == "http://file:4318/v1/metrics"
    own = {**environ, "GOQUEUE_METRICS_OTLP_ENDPOINT": "http://own:4318"}
    assert load(environ=own).metrics.otlp_endpoint == "http://own:4318/v1/metrics"


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_METRICS_EXPORTER", "none")]
)
def test_the_export_can_be_switched_off_for_all_programs(variable: str, value: str) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318", variable: value}
    assert load(environ=environ).metrics.otlp_endpoint == ""


def test_a_bad_variable_is_reported_with_its_name() -> None:
    with pytest.raises(InvalidSettings, match="OTEL_EXPORTER_OTLP_TIMEOUT"):
        load(environ={"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"})
