"""Writes spans as an OTLP export request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from goqueue.loop.clock import NANOSECONDS
from goqueue.metrics.otlp.fields import fixed, nested, number, text
from goqueue.metrics.otlp.writing import attribute, resource, scope
from goqueue.tracing.spans import SCHEMA_URL, Span, SpanEvent, SpanLink

_ERROR = 2


def request(attributes: Mapping[str, str], version: str, spans: Iterable[Span]) -> bytes:
    """Encode an export request of one node, which its attributes identify."""
    encoded = b"".join(nested(2, encode_span(one)) for one in spans)
    scoped = scope(version) + encoded + text(3, SCHEMA_URL)
    return nested(1, resource(attributes) + nested(2, scoped) + text(3, SCHEMA_URL))


def encode_span(span: Span) -> bytes:
    parts = [nested(1, span.trace_id), nested(2, span.span_id)]
    if span.parent_id:
        parts.append(nested(4, span.parent_id))
    parts += (text(5, span.name), number(6, span.kind))
    parts += (fixed(7, span.start_ms * NANOSECONDS), fixed(8, span.end_ms * NANOSECONDS))
    parts += (attribute(9, name, value) for name, value in span.attributes)
    parts += (nested(11, _event(one)) for one in span.events)
    parts += (nested(13, _link(one)) for one in span.links)
    if span.error:
        parts.append(nested(15, text(2, span.error) + number(3, _ERROR)))
    return b"".join(parts)


def _event(event: SpanEvent) -> bytes:
    attributes = b"".join(attribute(3, name, value) for name, value in event.attributes)
    return fixed(1, event.time_ms * NANOSECONDS) + text(2, event.name) + attributes


def _link(link: SpanLink) -> bytes:
    return nested(1, link.trace_id) + nested(2, link.span_id)
