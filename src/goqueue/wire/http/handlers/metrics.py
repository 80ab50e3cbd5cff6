"""The metrics of the node, in the format that the client prefers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.node import MEDIA_TYPES
from goqueue.wire.carrier.calls import Raw
from goqueue.wire.http.bodies.node import MetricsDetails

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_PROMETHEUS, _OPENMETRICS = "prometheus", "openmetrics"
_OPENMETRICS_TYPE = b"application/openmetrics-text"
_VERSIONS = (b"", b"1.0.0", b"0.0.1")


async def scrape(front: FrontEnd, call: Call, _: object) -> Raw:
    return await _scrape(front, call, ())


async def scrape_details(front: FrontEnd, call: Call, query: MetricsDetails) -> Raw:
    names = [one.strip() for one in query.family.split(",")]
    return await _scrape(front, call, list(dict.fromkeys(names)))


async def _scrape(front: FrontEnd, call: Call, families: Sequence[str]) -> Raw:
    text_format = preferred_format(call.accept)
    text = await front.gate.metrics.scrape(
        call.session,
        text_format=text_format,
        families=families,
        cancellation=call.cancellation,
    )
    return Raw(text, MEDIA_TYPES[text_format].encode())


def preferred_format(accept: bytes) -> str:
    """Return the format with the greatest quality in `Accept`; the one of Prometheus if equal.

    Whatever else a client accepts, it gets the format of Prometheus, which is plain text.
    """
    qualities = {_PROMETHEUS: -1.0, _OPENMETRICS: 0.0}
    for part in accept.lower().split(b","):
        kind, *pairs = (one.strip() for one in part.split(b";"))
        parameters = dict(one.partition(b"=")[::2] for one in pairs)
        if kind == _OPENMETRICS_TYPE:
            if parameters.get(b"version", b"") in _VERSIONS:
                qualities[_OPENMETRICS] = max(qualities[_OPENMETRICS], _quality(parameters))
        elif kind in (b"text/plain", b"text/*", b"*/*"):
            qualities[_PROMETHEUS] = max(qualities[_PROMETHEUS], _quality(parameters))
    is_open = qualities[_OPENMETRICS] > max(0, qualities[_PROMETHEUS])
    return _OPENMETRICS if is_open else _PROMETHEUS


def _quality(parameters: dict[bytes, bytes]) -> float:
    try:
        return min(1.0, max(0.0, float(parameters.get(b"q", b"1"))))
    except ValueError:
        return 0.0
