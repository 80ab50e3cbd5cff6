"""Prometheus, as Debian packages it, that scrapes the nodes of a test with our rules."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from goqueue.client.http import Sample
from tests.integration.ports import quiet_port
from tests.integration.process import END_WITH_US
from tests.integration.waiting import eventually
from tools.monitoring.programs import ROOT, find

JOB = "goqueue"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"


class Prometheus:
    """A server with a data directory of its own."""

    def __init__(self, directory: Path, targets: Sequence[str], *, interval_seconds: int) -> None:
        program = find("prometheus")
        assert program is not None, "run `make prometheus`, or install Prometheus"
        self.url = f"http://127.0.0.1:{quiet_port()}"
        self.targets = list(targets)
        self._program = program
        self._directory = directory
        self._interval = f"{interval_seconds}s"
        self._http = httpx.Client(base_url=self.url, timeout=30)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = self._directory / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._configuration()))
        with (self._directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *END_WITH_US,
                    str(self._program),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(self._is_ready, because="Prometheus is ready")

    def close(self) -> None:
        self._http.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that a query gives now."""
        answer = self._http.get("/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def samples(self, pattern: str) -> list[Sample]:
        """Every series whose name matches, at its last scrape, of all nodes."""
        found = []
        for one in self.query(f'{{__name__=~"{pattern}", job="{JOB}"}}'):
            labels = {key: text for key, text in one["metric"].items() if key not in _OURS}
            value = float(one["value"][1])
            found.append(Sample(one["metric"]["__name__"], tuple(labels.items()), value))
        return found

    def scrapes(self) -> int:
        """How many scrapes have succeeded, of all nodes together."""
        (found,) = self.query(f'sum(sum_over_time(up{{job="{JOB}"}}[1h]))') or [{"value": [0, 0]}]
        return int(found["value"][1])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health, and the alerts that it has raised."""
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _configuration(self) -> dict[str, Any]:
        return {
            "global": {"scrape_interval": self._interval, "evaluation_interval": self._interval},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": JOB, "static_configs": [{"targets": self.targets}]},
            ],
        }

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "prometheus.log").read_text()
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


_OURS = ("__name__", "job", "instance")  # labels that Prometheus has added
