"""What an alert is: its rule, and two cases for the test tool of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# One scrape job is one cluster; that of a second cluster has a name that begins alike.
OF_GOQUEUE = 'job=~"goqueue.*"'

Severity = Literal["critical", "high", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Series with one sample a minute, and the minute at which the alert is looked at."""

    series: Mapping[str, str]  # in the notation of promtool: "0+10x60" grows by 10, 60 times
    minute: int
    # Of the alert that fires: its labels beside `severity`, and the value as its text shows it.
    labels: Mapping[str, str] | None = None
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert: one rule of Prometheus, and the proof that it fires and does not."""

    name: str
    expression: str
    minutes: int  # for how long the expression must hold
    severity: Severity
    summary: str
    description: str
    firing: Case
    silent: Case
