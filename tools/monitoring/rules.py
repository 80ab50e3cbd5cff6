"""Writes the alerts as rules of Prometheus, and their cases as tests of promtool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tools.monitoring.alerts import ALERTS, Alert, Case

RULES = "rules.yml"
# Where the pages of the alerts are; `python -m tools.monitoring --runbooks URL` writes another.
RUNBOOKS = "docs/runbooks"
HEADING = "# Written by `make monitoring` from tools/monitoring/alerts; change the alerts there.\n"
RUNBOOKS_HEADING = """\
# Alerts

Written by `make monitoring` from `tools/monitoring/alerts`; change the alerts there. *critical*:
clients are refused, or data cannot be reached. *high*: act today. *warning*: look at it.

| alert | severity | fires when |
|---|---|---|"""
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_VALUE = re.compile(r"\{\{ \$value[^}]*\}\}")


def rules_text(runbooks: str = RUNBOOKS) -> str:
    """The file of rules."""
    groups = [
        {"name": f"goqueue-{subject}", "rules": [_rule(one, runbooks) for one in alerts]}
        for subject, alerts in ALERTS.items()
    ]
    return HEADING + _dump({"groups": groups})


def case_texts(runbooks: str = RUNBOOKS) -> dict[str, str]:
    """The files of tests, by name; `promtool test rules` runs them."""
    return {
        f"{subject}.yml": HEADING + _dump(_tests(alerts, runbooks))
        for subject, alerts in ALERTS.items()
    }


def runbooks_text() -> str:
    """The list of all alerts, which leads to their pages."""
    rows = [
        f"| [{one.name}]({one.name}.md) | {one.severity} | {_condition(one)} |"
        for alerts in ALERTS.values()
        for one in alerts
    ]
    return "\n".join([RUNBOOKS_HEADING, *rows, ""])


def _condition(alert: Alert) -> str:
    expression = " ".join(alert.expression.split()).replace("|", "\\|")
    return f"`{expression}`" + (f" for {alert.minutes} min" if alert.minutes else "")


def _rule(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": _annotations(alert, runbooks),
    }


def _annotations(alert: Alert, runbooks: str) -> dict[str, str]:
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{runbooks}/{alert.name}.md",
    }


def _tests(alerts: Sequence[Alert], runbooks: str) -> dict[str, Any]:
    return {
        "rule_files": [f"../{RULES}"],
        "evaluation_interval": "1m",
        "tests": [
            test
            for alert in alerts
            for test in (
                _test(f"{alert.name} fires", alert, alert.firing, runbooks),
                _test(f"{alert.name} is silent", alert, alert.silent, runbooks),
            )
        ],
    }


def _test(name: str, alert: Alert, case: Case, runbooks: str) -> dict[str, Any]:
    expected: dict[str, Any] = {"eval_time": f"{case.minute}m", "alertname": alert.name}
    if case.labels is not None:
        texts = _annotations(alert, runbooks).items()
        expected["exp_alerts"] = [
            {
                "exp_labels": {"severity": alert.severity, **case.labels},
                "exp_annotations": {key: _expected(text, case) for key, text in texts},
            }
        ]
    return {
        "name": name,
        "interval": "1m",
        "input_series": _series(case.series),
        "alert_rule_test": [expected],
    }


def _series(series: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values.strip()} for name, values in series.items()]


def _expected(text: str, case: Case) -> str:
    """A text as Prometheus must fill it in."""
    assert case.labels is not None
    filled = _LABEL.sub(lambda found: (case.labels or {})[found[1]], text)
    return _VALUE.sub(case.value, filled)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, so that expressions can be read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _dump(tree: object) -> str:
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=100)
