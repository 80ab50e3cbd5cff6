"""The names of the text formats of metrics, which a node knows before it renders any."""

from __future__ import annotations

from enum import Enum


class TextFormat(Enum):
    """A format, by its media type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
