"""Kinds of values for the export to a collector of OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from goqueue.config.kinds import Address

METRICS_PATH = "/v1/metrics"
TRACES_PATH = "/v1/traces"
_HEADERS_MAX = 20
_PREFIX_PATTERN = r"[A-Za-z0-9._-]{1,200}"
# Set by the exporter itself.
_OWN_HEADERS = frozenset(("host", "content-length", "content-type", "content-encoding"))


@dataclass(frozen=True, slots=True)
class CollectorAddress:
    """Where a collector receives data of one kind, or empty."""

    path: str  # that collectors use for it, added to an address without one

    @property
    def allowed(self) -> str:
        return f"http(s)://HOST[:PORT][/PATH], or empty; without a path, {self.path}"

    def read(self, text: str) -> str:
        text = text.strip()
        if not text:
            return ""
        try:
            parts = urlsplit(text)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
            is_valid = is_valid and (parts.port is None or parts.port > 0)
        except ValueError:
            is_valid = False
        if not is_valid or not text.isprintable() or " " in text or parts.username is not None:
            # The text may contain a password, so the error does not repeat it.
            raise ValueError(f"not the address of a collector; expected {self.allowed}")
        path = self.path if parts.path in ("", "/") else parts.path
        return parts._replace(path=path, fragment="").geturl()

    def show(self, value: object) -> str:
        return str(value)


class RequestHeaders:
    """`NAME=VALUE` of several headers, values percent-encoded as in a URL, or empty."""

    @property
    def allowed(self) -> str:
        return "NAME=VALUE,NAME=VALUE,... with percent-encoded values, or empty"

    def read(self, text: str) -> tuple[tuple[str, str], ...]:
        pairs = _pairs(text)
        for name, value in pairs:
            is_name = re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", name)
            if not is_name or name.lower() in _OWN_HEADERS or not _is_value(value):
                # The text may contain a secret, so the error does not repeat it.
                raise ValueError(f"a header cannot be read; expected {self.allowed}")
        if len(pairs) > _HEADERS_MAX:
            raise ValueError(f"{len(pairs)} headers are too many; expected at most {_HEADERS_MAX}")
        return tuple(pairs)

    def show(self, value: object) -> str:
        """Return the names without the values, which are secrets more often than not."""
        assert isinstance(value, tuple)
        return ",".join(f"{name}=(hidden)" for name, _ in value)


class ResourceAttributes:
    """`NAME=VALUE` of several attributes, values percent-encoded as in a URL, or empty."""

    @property
    def allowed(self) -> str:
        return "NAME=VALUE,NAME=VALUE,... with percent-encoded values, or empty"

    def read(self, text: str) -> tuple[tuple[str, str], ...]:
        pairs = _pairs(text)
        for name, value in pairs:
            if not name or not f"{name}{value}".isprintable() or len(name) + len(value) > 1_024:
                raise ValueError(f"{name[:60]!r} cannot be read; expected {self.allowed}")
        return tuple(pairs)

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(f"{name}={quote(text)}" for name, text in value)


class Prefixes:
    """Beginnings of names of metrics, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return "PREFIX,PREFIX,... or empty"

    def read(self, text: str) -> tuple[str, ...]:
        prefixes = tuple(one.strip() for one in text.split(",") if one.strip())
        for one in prefixes:
            if not re.fullmatch(_PREFIX_PATTERN, one):
                raise ValueError(f"{one[:60]!r} begins no name; expected {self.allowed}")
        return prefixes

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)


def is_near(address: str) -> bool:
    """Whether an address leads to this machine, so that nobody on the way can read along."""
    return Address(urlsplit(address).hostname or "", 0).is_loopback


def _pairs(text: str) -> list[tuple[str, str]]:
    """Names and values, the latter decoded."""
    given = [one.strip().partition("=") for one in text.split(",") if one.strip()]
    return [(name.strip(), unquote(value.strip())) for name, _, value in given]


def _is_value(value: str) -> bool:
    return bool(value) and len(value) <= 8_192 and value.isascii() and value.isprintable()


def standard_values(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return settings that the variables of OpenTelemetry give, each with its variable.

    A variable for metrics, or for traces, comes before that for all kinds of data.
    """
    found: dict[str, tuple[str, str]] = {}
    for variable, path in _VARIABLES:
        text = environ.get(variable, "").strip()
        if text and path not in found:
            if variable == _ENDPOINT_OF_ALL:
                text = text.rstrip("/") + _PATHS[path]
            found[path] = text, variable
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    for variable, path in _EXPORTERS:
        if is_disabled or environ.get(variable, "").strip().lower() == "none":
            found.pop(path, None)
    return found


_ENDPOINT_OF_ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
_EXPORTERS = (
    ("OTEL_METRICS_EXPORTER", "metrics.otlp_endpoint"),
    ("OTEL_TRACES_EXPORTER", "journeys.otlp_endpoint"),
)
_PATHS = {"metrics.otlp_endpoint": METRICS_PATH, "journeys.otlp_endpoint": TRACES_PATH}
_VARIABLES = (
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "journeys.otlp_endpoint"),
    (_ENDPOINT_OF_ALL, "journeys.otlp_endpoint"),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "journeys.otlp_headers"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "journeys.otlp_headers"),
    ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "metrics.otlp_endpoint"),
    (_ENDPOINT_OF_ALL, "metrics.otlp_endpoint"),
    ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "metrics.otlp_headers"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "metrics.otlp_headers"),
    ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "metrics.otlp_compression"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "metrics.otlp_compression"),
    ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "metrics.otlp_timeout_ms"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "metrics.otlp_timeout_ms"),
    ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "metrics.otlp_authorities"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "metrics.otlp_authorities"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "metrics.otlp_interval_ms"),
    ("OTEL_SERVICE_NAME", "metrics.otlp_service_name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "metrics.otlp_attributes"),
)
