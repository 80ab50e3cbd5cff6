"""The compose files: settings that exist, ports for this machine alone, and no root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from goqueue.model.errors import InvalidSettings
from tests.unit.deploy.names import DEPLOY, settings_of, unknown
from tools.packages.dockerfile import stages

FILES = sorted(DEPLOY.glob("compose*.yaml"))
IMAGE = stages((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
MONITORING = DEPLOY / "compose.monitoring.yaml"


def read(file: Path) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tree


def faults_of(project: dict[str, Any]) -> list[str]:
    """What the part of the Compose Specification that our files use does not allow."""
    schema = json.loads(Path(__file__).with_name("compose.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema_rs.Draft202012Validator(schema)
    return [str(error) for error in validator.iter_errors(project)]


def variables_of(service: dict[str, Any]) -> dict[str, str]:
    """Those of the image and of the service, with what `${NAME:-default}` is without a NAME."""
    found = dict(IMAGE[""].environment()) if service.get("image") == "goqueue" else {}
    for name, value in service.get("environment", {}).items():
        text = str(value)
        if text.startswith("${"):
            _, _, text = text.removesuffix("}").partition(":-")
        found[name] = text
    return found


def merged(*files: Path) -> dict[str, Any]:
    """What compose makes of several files, as far as ours go: sections are united."""
    tree: dict[str, Any] = {}
    for file in files:
        for section, entries in read(file).items():
            if isinstance(entries, dict):
                tree.setdefault(section, {}).update(entries)
    return tree


PROJECTS = [
    pytest.param(merged(DEPLOY / "compose.single.yaml"), id="single"),
    pytest.param(merged(DEPLOY / "compose.yaml"), id="cluster"),
    pytest.param(merged(DEPLOY / "compose.yaml", MONITORING), id="monitored"),
]


@pytest.mark.parametrize("project", PROJECTS)
def test_the_settings_of_every_service_exist_and_fit_together(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        variables = variables_of(service)
        assert not unknown(variables), name
        is_node = service.get("image") == "goqueue" and "entrypoint" not in service
        if is_node:
            settings_of(variables)


def test_a_name_that_does_not_exist_fails() -> None:
    service = merged(DEPLOY / "compose.yaml")["services"]["node-1"]
    variables = variables_of(service) | {"GOQUEUE_LISTEN_KAFKAS": "0.0.0.0:1"}
    assert unknown(variables) == {"GOQUEUE_LISTEN_KAFKAS"}
    with pytest.raises(InvalidSettings):
        settings_of(variables_of(service) | {"GOQUEUE_NODE_ID": "first"})


@pytest.mark.parametrize("project", PROJECTS)
def test_published_ports_are_those_of_this_machine_and_of_listeners(
    project: dict[str, Any],
) -> None:
    taken: set[str] = set()
    for service in project["services"].values():
        for text in service.get("ports", []):
            host, port, inside = text.split(":")
            assert host == "127.0.0.1"
            assert port not in taken, f"{port} is published twice"
            taken.add(port)
            if service.get("image") == "goqueue":
                listeners = settings_of(variables_of(service)).listeners.of_clients()
                assert int(inside) in {one.port for many in listeners.values() for one in many}


@pytest.mark.parametrize("project", PROJECTS)
def test_every_interface_of_a_node_is_published(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        if "ports" not in service or service.get("image") != "goqueue":
            continue
        listeners = settings_of(variables_of(service)).listeners.of_clients()
        published = {int(text.split(":")[2]) for text in service["ports"]}
        assert all(published & {one.port for one in many} for many in listeners.values()), name
        assert {"kafka", "http", "registry", "grpc", "sqs"} <= set(listeners), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_files_have_only_what_the_specification_has(file: Path) -> None:
    assert faults_of(read(file)) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"read-only": True}, "read-only"),
        ({"cap_drop": "ALL"}, "array"),
        ({"ports": ["127.0.0.1:9092->9092"]}, "does not match"),
        ({"restart": "sometimes"}, "sometimes"),
        ({"healthcheck": {"disable": "yes"}}, "boolean"),
        ({"depends_on": {"node-1": {"condition": "service_started_well"}}}, "not valid under"),
        ({"stop_grace_period": "half a minute"}, "does not match"),
        ({"ulimits": {"nofile": "many"}}, "many"),
    ],
)
def test_what_the_specification_does_not_have_is_found(
    change: dict[str, Any], complaint: str
) -> None:
    project = read(DEPLOY / "compose.single.yaml")
    project["services"]["goqueue"] |= change
    [fault] = faults_of(project)
    assert complaint in fault


@pytest.mark.parametrize("project", PROJECTS)
def test_services_cannot_write_outside_of_volumes_or_gain_rights(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        # Spark writes its own scratch files all over the place.
        assert service.get("read_only") is True or name == "spark", name
        assert service["image"] in ("goqueue", "goqueue-spark") or ":" in service["image"], name


@pytest.mark.parametrize("project", PROJECTS)
def test_what_a_service_refers_to_is_there(project: dict[str, Any]) -> None:
    services = project["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        for text in service.get("volumes", []):
            source = text.split(":")[0]
            if source == "./tls":
                continue  # made by the user, and only read with TLS=1
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in project["volumes"], source
        for config in service.get("configs", []):
            assert config["source"] in project["configs"], name
        build = service.get("build", {})
        assert build.get("target", "") in IMAGE, name


def test_prometheus_scrapes_every_node_and_reads_all_rules() -> None:
    project = merged(DEPLOY / "compose.yaml", MONITORING)
    inside = yaml.safe_load(project["configs"]["prometheus"]["content"])
    outside = read(DEPLOY / "prometheus" / "prometheus.yml")
    assert inside["rule_files"] == outside["rule_files"]
    (job,) = inside["scrape_configs"]
    assert job["job_name"] == outside["scrape_configs"][0]["job_name"]
    nodes = {name for name in project["services"] if name.startswith("node-")}
    (targets,) = (one["targets"] for one in job["static_configs"])
    assert set(targets) == {f"{name}:8080" for name in nodes}
    # Nodes refuse requests that are addressed to names they do not know.
    for name in nodes:
        settings = settings_of(variables_of(project["services"][name]))
        assert name in settings.listeners.http_hosts


def test_grafana_finds_its_provisioning_and_all_boards() -> None:
    grafana = merged(MONITORING)["services"]["grafana"]
    mounts = dict(text.split(":")[:2] for text in grafana["volumes"])
    used = {
        word.strip("${} ")
        for file in (DEPLOY / "grafana" / "provisioning").rglob("*.yml")
        for word in file.read_text(encoding="utf-8").split()
        if word.startswith("${")
    }
    assert used <= set(grafana["environment"])
    assert grafana["environment"]["GOQUEUE_DASHBOARDS"] == mounts["./grafana/dashboards"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert json.loads((DEPLOY / "grafana/dashboards" / home.name).read_text(encoding="utf-8"))


def test_bootstrap_addresses_are_listeners_that_advertise_themselves_there() -> None:
    project = merged(DEPLOY / "compose.yaml", MONITORING)
    for address in project["services"]["spark"]["environment"]["GOQUEUE_BOOTSTRAP"].split(","):
        node, _, port = address.partition(":")
        listeners = settings_of(variables_of(project["services"][node])).listeners
        (asked,) = (one for one in listeners.kafka if one.port == int(port))
        assert str(listeners.advertised(asked)) == address
