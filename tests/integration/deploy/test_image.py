"""The entry point of the image: not root, a read-only root file system, the default ports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.integration.deploy.container import Container, why_not
from tests.integration.packages.building import REPOSITORY, build, copy_of_tree
from tests.integration.packages.environments import Environment
from tools.packages.charts import RENDERED
from tools.packages.dockerfile import stages

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.timeout(300),
]

STAGES = stages((REPOSITORY / "deploy" / "Dockerfile").read_text(encoding="utf-8"))
IMAGE, SPARK = STAGES[""], STAGES["spark"]
SECRET = "/var/lib/goqueue-secret/cluster-secret"

# Polls the health check as the engine does, until it succeeds or a minute has passed.
_UNTIL_HEALTHY = """
tries=0
until python3 /image/healthcheck.py 2>/tmp/why; do
    kill -0 "$NODE" || { cat /tmp/why; wait "$NODE"; exit 90; }
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { cat /tmp/why; exit 91; }
    sleep 0.1
done
"""
_STOP = """
kill -TERM "$NODE"
wait "$NODE" && echo "ended with 0"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("image")
    tree = copy_of_tree(folder / "tree")
    wheel = build("build_wheel", tree, folder / "dist", GOQUEUE_PURE="1")
    return Environment(folder / "venv", wheel, ["server", "grpc"])


@pytest.fixture
def container(tmp_path: Path, installed: Environment) -> Container:
    return Container(tmp_path, IMAGE, installed, REPOSITORY / "deploy")


def test_a_container_serves_its_default_ports_and_ends_in_order(container: Container) -> None:
    done = container.run(
        _UNTIL_HEALTHY
        + """
id -u
touch /etc/written 2>/dev/null && echo "root can be written"
touch /written 2>/dev/null && echo "root can be written"
goqueue -b localhost:9092 produce orders -m harp
goqueue -b localhost:9092 consume orders --format raw
python3 -c 'import socket
for port in (9092, 8080, 8081, 9000): socket.create_connection(("127.0.0.1", port)).close()
print("all ports")'
"""
        + _STOP,
        {"GOQUEUE_ALLOW_UNAUTHENTICATED": "true"},
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10001" in lines  # who the commands run as
    assert "root can be written" not in lines
    assert "harp" in done.stdout
    assert done.stdout.endswith("all ports\nended with 0\n")


def test_a_container_without_credentials_and_without_consent_refuses_to_start(
    container: Container,
) -> None:
    done = container.run('wait "$NODE"', {})
    assert done.returncode == 2
    assert "other machines could connect" in done.stderr
    assert "--allow-unauthenticated" in done.stderr


def test_a_pod_of_the_chart_starts_with_the_settings_that_it_is_given(
    tmp_path: Path, installed: Environment
) -> None:
    text = (RENDERED / "single.yaml").read_text(encoding="utf-8")
    objects = {one["kind"]: one for one in yaml.safe_load_all(text)}
    files = tmp_path / "files"
    files.mkdir()
    shutil.copy(REPOSITORY / "deploy" / "healthcheck.py", files)
    (files / "goqueue.yaml").write_text(objects["ConfigMap"]["data"]["goqueue-0.yaml"])
    done = Container(tmp_path, IMAGE, installed, files).run(
        _UNTIL_HEALTHY
        + """
python3 -c '
import json, urllib.request
def call(host, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request("http://127.0.0.1:8080" + path, data, {"Host": host})
    request.add_header("Content-Type", "application/json")
    return json.load(urllib.request.urlopen(request))
call("goqueue.queues.svc.cluster.local", "/v1/topics/orders/publish", {"value": "harp"})
print(json.dumps(call("goqueue", "/v1/admin/nodes")))
'
"""
        + _STOP,
        {},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "goqueue-0.goqueue-nodes.queues.svc.cluster.local" in done.stdout
    assert done.stdout.endswith("ended with 0\n")


def test_the_health_check_fails_where_no_node_answers(container: Container) -> None:
    done = container.run(
        "python3 /image/healthcheck.py && exit 5\nwait || true",
        {"GOQUEUE_ALLOW_UNAUTHENTICATED": "true", "HEALTH_URL": "http://127.0.0.1:1/readyz"}
        | {"GOQUEUE_NODE_ID": "none"},
    )
    assert "Connection refused" in done.stderr
    assert done.returncode != 5


def test_the_container_of_the_secret_makes_it_once_and_a_node_takes_it(
    tmp_path: Path, installed: Environment
) -> None:
    compose = yaml.safe_load((REPOSITORY / "deploy/compose.yaml").read_text(encoding="utf-8"))
    service = compose["services"]["secret"]
    assert service["volumes"] == ["secret:/var/lib/goqueue-secret"]
    volumes = {tmp_path / "secret": "/var/lib/goqueue-secret"}

    def made(name: str) -> str:
        (tmp_path / name).mkdir()
        container = Container(tmp_path / name, IMAGE, installed, REPOSITORY / "deploy")
        script = f'wait "$NODE"\nstat -c "%a %u" {SECRET}\ncat {SECRET}'
        done = container.run(script, {}, entrypoint=service["entrypoint"], volumes=volumes)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first = made("first")
    assert "600 10001" in first
    secret = (tmp_path / "secret" / "cluster-secret").read_text()
    assert len(secret.strip()) >= 32
    made("again")
    assert (tmp_path / "secret" / "cluster-secret").read_text() == secret, "it is made once"
    environment = compose["x-environment"]
    assert environment["GOQUEUE_CLUSTER_SECRET_FILE"] == SECRET
    (tmp_path / "node").mkdir()
    container = Container(tmp_path / "node", IMAGE, installed, REPOSITORY / "deploy")
    variables = {
        "GOQUEUE_NODE_ID": "1",
        "GOQUEUE_PEERS": "1@localhost:7000",
        "GOQUEUE_LISTEN_INTERNAL": "127.0.0.1:7000",
        "GOQUEUE_CLUSTER_SECRET_FILE": SECRET,
        "GOQUEUE_ALLOW_UNAUTHENTICATED": "true",
    }
    done = container.run(_UNTIL_HEALTHY + _STOP, variables, volumes=volumes)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stage_of_spark_runs_pipelines(tmp_path: Path, installed: Environment) -> None:
    """Its packages are those of the tests: the environment of the other stages has no Spark."""
    assert SPARK.last("USER").text == IMAGE.last("USER").text
    entrypoint = SPARK.last("ENTRYPOINT").as_list()
    container = Container(tmp_path, SPARK, installed, REPOSITORY / "deploy")
    volumes = {tmp_path / "archive": "/archive"}
    words = [*entrypoint, "--help"]
    done = container.run('wait "$NODE"', {}, entrypoint=words, volumes=volumes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "archive" in done.stdout
    words = [*entrypoint, "archive", "orders", "--to", "/archive"]
    done = container.run('wait "$NODE" || true', {}, entrypoint=words, volumes=volumes)
    assert "goqueue[spark]" in done.stdout + done.stderr, "it says what the stage installs"
