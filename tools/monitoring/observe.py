"""Watches a broker with Prometheus and Grafana, as far as they are installed.

make observe                                # starts a broker, if none answers
make observe ARGS="--http 127.0.0.1:8090"   # another one, with all nodes of its cluster
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import yaml

from goqueue import Client
from goqueue.cli.access import Access
from goqueue.cli.connecting import bare, node_http_addresses
from goqueue.client.http import HttpSettings, RetrySettings
from goqueue.model.errors import GoQueueError
from tools.monitoring.programs import ROOT, find, find_grafana

DATA = ROOT / "data" / "observe"
PROMETHEUS_PORT, GRAFANA_PORT = 9090, 3000
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.5
_DEPLOY = ROOT / "deploy"
_ONE_TRY = HttpSettings(connect_ms_max=1_000, retry=RetrySettings(retries_max=0))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make observe", description=__doc__.partition("\n")[0])
    parser.add_argument("--http", default="127.0.0.1:8080", help="a node of the cluster to watch")
    parser.add_argument("--prometheus-port", type=int, default=PROMETHEUS_PORT)
    parser.add_argument("--grafana-port", type=int, default=GRAFANA_PORT)
    chosen = parser.parse_args()
    # Whoever ends this program wants the others gone too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout.reconfigure(line_buffering=True)
    DATA.mkdir(parents=True, exist_ok=True)
    try:
        with (
            _broker(chosen.http) as targets,
            _prometheus(targets, chosen.prometheus_port) as prometheus,
            _grafana(prometheus, chosen.grafana_port),
        ):
            print("Ctrl-C ends all that was started here.")
            while True:
                time.sleep(60)
    except KeyboardInterrupt:
        return 0


@contextmanager
def _broker(address: str) -> Iterator[list[str]]:
    """The HTTP addresses of all nodes; a node is started if none answers."""
    found = _nodes(address)
    if found:
        print(f"Broker      http://{found[0]} (was running), {len(found)} node(s)")
        yield found
        return
    command = [sys.executable, "-m", "goqueue", "serve", "--listen-http", address]
    with _running("goqueue", [*command, "--data-dir", str(DATA / "broker")]) as process:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (found := _nodes(address)):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"The broker did not start; see {DATA / 'goqueue.log'}.")
            time.sleep(LOOK_SECONDS)
        print(f"Broker      http://{address}/docs, data in {DATA / 'broker'}")
        yield found


def _nodes(address: str) -> list[str]:
    """The HTTP addresses of the nodes of a cluster; none if it does not answer."""
    try:
        with Client(address, _ONE_TRY) as client:
            found = node_http_addresses(client.cluster.nodes(), address, Access())
    except GoQueueError:
        return []
    return [bare(one) for one in found]


@contextmanager
def _prometheus(targets: Sequence[str], port: int) -> Iterator[str]:
    """Prometheus on these nodes, with the alert rules; its address, or nothing without it."""
    program = find("prometheus")
    if program is None:
        print("Prometheus  is not installed: apt-get install prometheus, or `make prometheus`.")
        yield ""
        return
    config = DATA / "prometheus.yml"
    config.write_text(yaml.safe_dump(configuration(targets), sort_keys=False), encoding="utf-8")
    address = f"127.0.0.1:{port}"
    command = [
        str(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={DATA / 'prometheus'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
        "--enable-feature=exemplar-storage",
    ]
    with _running("prometheus", command):
        print(f"Prometheus  http://{address}/targets, http://{address}/alerts")
        yield address


def configuration(targets: Sequence[str]) -> dict[str, object]:
    """The configuration of `deploy/prometheus`, for these nodes."""
    tree = yaml.safe_load((_DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    tree["rule_files"] = [str(_DEPLOY / "prometheus" / "rules.yml")]
    tree["scrape_configs"][0]["static_configs"] = [{"targets": list(targets)}]
    found: dict[str, object] = tree
    return found


@contextmanager
def _grafana(prometheus: str, port: int) -> Iterator[None]:
    """Grafana with the boards, for anybody on this machine."""
    found = find_grafana()
    boards = _DEPLOY / "grafana"
    if found is None or not prometheus:
        print("Grafana     is not installed, or has no Prometheus; Debian does not have it.")
        print(f"            The boards to import are in {boards.relative_to(ROOT) / 'dashboards'}.")
        yield
        return
    server, home = found
    command = [str(server), "server", "--homepath", str(home)]
    with _running("grafana", command, grafana_environment(prometheus, port)):
        print(f"Grafana     http://127.0.0.1:{port}/dashboards")
        yield


def grafana_environment(prometheus: str, port: int) -> dict[str, str]:
    boards = _DEPLOY / "grafana"
    return {
        "GF_PATHS_DATA": str(DATA / "grafana"),
        "GF_PATHS_PROVISIONING": str(boards / "provisioning"),
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GOQUEUE_PROMETHEUS_URL": f"http://{prometheus}",
        "GOQUEUE_DASHBOARDS": str(boards / "dashboards"),
    }


@contextmanager
def _running(
    name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with this one; what it prints is in a file."""
    log = DATA / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            # Ctrl-C is for this program, which ends the others one after the other.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is not None:
            print(f"{name} has ended by itself; see {log}.", file=sys.stderr)
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
