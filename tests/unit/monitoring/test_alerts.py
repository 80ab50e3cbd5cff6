"""The alert rules: current, complete, and about metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from goqueue.wire.grpc.table import CALLS
from goqueue.wire.http.operations import OPERATIONS as HTTP_OPERATIONS
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.sqs.operations import OPERATIONS as SQS_OPERATIONS
from tests.unit.monitoring.queries import metrics_of, unknown_in
from tools.monitoring.__main__ import ROOT, files
from tools.monitoring.alerts import ALERTS, Alert
from tools.monitoring.alerts.clients import FETCH_APIS, PRODUCE_APIS

EVERY = pytest.mark.parametrize(
    "alert",
    [alert for alerts in ALERTS.values() for alert in alerts],
    ids=lambda alert: alert.name,
)


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_generated_files_are_current(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == files()[file], "run `make monitoring`"


def test_nothing_else_is_beside_the_generated_files() -> None:
    folders = {file.parent for file in files() if ROOT / "deploy" in file.parents}
    there = {file for folder in folders for file in folder.iterdir() if file.is_file()}
    by_hand = {ROOT / "deploy" / "prometheus" / "prometheus.yml"}
    assert there - by_hand == {file for file in files() if file.parent in folders}


@EVERY
def test_expressions_name_metrics_of_the_catalogue(alert: Alert) -> None:
    assert not unknown_in(alert.expression)


@EVERY
def test_cases_are_about_the_metrics_of_the_expression(alert: Alert) -> None:
    wanted = metrics_of(alert.expression)
    for case in (alert.firing, alert.silent):
        assert case.series, "a case without series proves nothing"
        for series in case.series:
            assert not unknown_in(series)
            assert metrics_of(series) <= wanted


@EVERY
def test_texts_use_labels_that_the_alert_has(alert: Alert) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    assert alert.firing.labels is not None, "the first case fires"
    assert used <= alert.firing.labels.keys()
    assert alert.silent.labels is None


@EVERY
def test_alerts_are_evaluated_by_cluster(alert: Alert) -> None:
    """One Prometheus may watch several clusters; their series are told apart by the job."""
    assert alert.firing.labels is not None
    assert "job" in alert.firing.labels


def test_names_are_unique() -> None:
    names = [alert.name for alerts in ALERTS.values() for alert in alerts]
    assert len(names) == len(set(names))


def test_the_rules_are_what_prometheus_reads() -> None:
    tree = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    rules = [rule for group in tree["groups"] for rule in group["rules"]]
    assert len(rules) == sum(map(len, ALERTS.values()))
    texts = {"summary", "description", "runbook_url"}
    assert all(rule["annotations"].keys() == texts for rule in rules)


def test_latencies_are_those_of_every_front_end() -> None:
    apis = {
        *API_BY_NAME,
        *(one.name for one in (*HTTP_OPERATIONS, *SQS_OPERATIONS)),
        *(one.name for one in CALLS),
    }
    assert {one for one in apis if re.fullmatch(PRODUCE_APIS, one)} == {
        "Produce",
        *("publish", "publishBatch", "publishInTransaction"),
        *("SendMessage", "SendMessageBatch"),
        *("Publish", "PublishStream", "PublishInTransaction"),
    }
    assert {one for one in apis if re.fullmatch(FETCH_APIS, one)} == set(FETCH_APIS.split("|"))
