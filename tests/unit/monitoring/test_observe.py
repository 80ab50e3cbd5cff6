"""What `make observe` starts: a configuration for the nodes, and boards that are found."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tools.monitoring.boards import BOARDS
from tools.monitoring.observe import configuration, grafana_environment
from tools.monitoring.programs import ROOT


def test_prometheus_scrapes_the_nodes_and_has_the_rules() -> None:
    tree = configuration(["127.0.0.1:8080", "127.0.0.1:8081"])
    (job,) = tree["scrape_configs"]  # type: ignore[misc]
    assert job["job_name"] == "goqueue"
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8080", "127.0.0.1:8081"]}]
    (rules,) = tree["rule_files"]  # type: ignore[misc]
    assert Path(rules).is_file()


def test_grafana_is_given_what_its_provisioning_asks_for() -> None:
    environment = grafana_environment("127.0.0.1:9090", 3000)
    provisioning = Path(environment["GF_PATHS_PROVISIONING"])
    texts = [file.read_text(encoding="utf-8") for file in provisioning.rglob("*.yml")]
    assert len(texts) == 2
    assert {name for text in texts for name in re.findall(r"\$\{(\w+)\}", text)} <= set(environment)
    assert all(yaml.safe_load(text)["apiVersion"] == 1 for text in texts)
    boards = Path(environment["GOQUEUE_DASHBOARDS"])
    assert boards == ROOT / "deploy" / "grafana" / "dashboards"
    assert len(list(boards.glob("*.json"))) == len(BOARDS)
