"""The Helm chart as it was rendered: settings that exist, addresses that lead to the pod, no root.

`make check-deploy` renders the chart and validates it against the schemas of Kubernetes; these
tests read what it wrote, and fail if the chart has changed since.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from goqueue.cli.main import app
from goqueue.config import Settings, load
from tests.unit.deploy.names import unknown
from tools.packages.charts import CHART, DIGEST, HELM, RENDERED, digest, render, values_files

NAMES = [file.stem for file in values_files()]
ADMIN = "admin:a-password-for-tests"
SECRETS = {
    "GOQUEUE_CLUSTER_SECRET": "a-secret-of-forty-eight-characters-0123456789ab",
    "GOQUEUE_INITIAL_ADMIN": ADMIN,
    "GOQUEUE_SQS_ACCESS_KEYS": "",
}
HOST = "goqueue-{}.goqueue-nodes.queues.svc.cluster.local"

Object = dict[str, Any]


def rendered(name: str) -> dict[tuple[str, str], Object]:
    text = (RENDERED / f"{name}.yaml").read_text(encoding="utf-8")
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def pod_of(objects: dict[tuple[str, str], Object]) -> Object:
    pod: Object = objects["StatefulSet", "goqueue"]["spec"]["template"]["spec"]
    return pod


def settings_of_pods(name: str, folder: Path) -> list[Settings]:
    """What each pod reads: its file and its environment, with secrets made up."""
    objects = rendered(name)
    container, *_ = pod_of(objects)["containers"]
    variables = {
        one["name"]: one.get("value", SECRETS.get(one["name"])) for one in container["env"]
    }
    assert not unknown(variables)
    environ = {name: text for name, text in variables.items() if text}
    found = []
    for file, text in sorted(objects["ConfigMap", "goqueue"]["data"].items()):
        (folder / file).write_text(text, encoding="utf-8")
        found.append(load(file=folder / file, environ=environ))
    return found


def test_the_rendered_objects_are_those_of_this_chart() -> None:
    assert DIGEST.read_text(encoding="utf-8").strip() == digest(), (
        "the chart has changed: make check-deploy ARGS=--write"
    )
    assert {file.stem for file in RENDERED.glob("*.yaml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_pod_has_settings_that_exist_and_fit_together(name: str, tmp_path: Path) -> None:
    replicas = rendered(name)["StatefulSet", "goqueue"]["spec"]["replicas"]
    pods = settings_of_pods(name, tmp_path)
    assert [one.node.id for one in pods] == list(range(1, replicas + 1))
    assert len({one.cluster.peers for one in pods}) == 1, "peer lists differ"


@pytest.mark.parametrize("name", NAMES)
def test_pods_advertise_their_own_names_and_find_each_other(name: str, tmp_path: Path) -> None:
    pods = settings_of_pods(name, tmp_path)
    for index, one in enumerate(pods):
        first = one.listeners.kafka[0]
        assert str(one.listeners.advertised(first)) == f"{HOST.format(index)}:{first.port}"
        if len(pods) > 1:
            inside = one.listeners.internal_advertised
            assert inside is not None
            assert inside.host == HOST.format(index)
            peers = [f"{number + 1}@{HOST.format(number)}:7000" for number in range(3)]
            assert one.cluster.peers == ",".join(peers)


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("secure", [f"kafka-{index}.example.com:9094" for index in range(5)]),
        (
            "nodeport",
            ["worker-a.example.com:31090", "worker-b.example.com:31091", "192.0.2.7:39094"],
        ),
    ],
)
def test_clients_outside_are_sent_to_an_address_of_each_pod(
    name: str, addresses: list[str], tmp_path: Path
) -> None:
    pods = settings_of_pods(name, tmp_path)
    found = []
    for one in pods:
        (outside,) = (listener for listener in one.listeners.kafka if listener.name == "external")
        found.append(str(one.listeners.advertised(outside)))
    assert found == addresses
    objects = rendered(name)
    for index in range(len(pods)):
        selector = objects["Service", f"goqueue-external-{index}"]["spec"]["selector"]
        assert selector["statefulset.kubernetes.io/pod-name"] == f"goqueue-{index}"


@pytest.mark.parametrize("name", NAMES)
def test_ports_of_services_are_listeners_of_the_pods(name: str, tmp_path: Path) -> None:
    objects = rendered(name)
    settings = settings_of_pods(name, tmp_path)[0]
    listening = {one.port for many in settings.listeners.of_clients().values() for one in many}
    listening.add(settings.listeners.internal.port)
    container, *_ = pod_of(objects)["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert set(ports.values()) <= listening
    for (kind, _), one in objects.items():
        if kind == "Service":
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= set(ports)


@pytest.mark.parametrize("name", NAMES)
def test_containers_have_no_rights_and_a_read_only_root(name: str) -> None:
    objects = rendered(name)
    pods = [pod_of(objects), objects["Pod", "goqueue-test"]["spec"]]
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", NAMES)
def test_only_nodes_reach_the_port_of_nodes(name: str) -> None:
    policy = rendered(name)["NetworkPolicy", "goqueue"]["spec"]
    for rule in policy["ingress"]:
        ports = {one["port"] for one in rule.get("ports", [])}
        if not ports or "internal" in ports:
            (source,) = rule["from"]
            assert source["podSelector"]["matchLabels"] == policy["podSelector"]["matchLabels"]


@pytest.mark.parametrize("name", NAMES)
def test_what_pods_mount_is_there_and_waits_are_long_enough(name: str) -> None:
    objects = rendered(name)
    pod = pod_of(objects)
    made = {one["name"] for one in pod["volumes"]} | {"data"}
    container, *_ = pod["containers"]
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert {one["name"] for one in mounts.values()} == made
    assert mounts["/etc/goqueue/goqueue.yaml"]["subPathExpr"] == "$(POD_NAME).yaml"
    assert pod["terminationGracePeriodSeconds"] >= 30
    headless = objects["Service", "goqueue-nodes"]["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert objects["StatefulSet", "goqueue"]["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("name", NAMES)
def test_the_test_pod_uses_options_and_variables_that_exist(name: str) -> None:
    (container,) = rendered(name)["Pod", "goqueue-test"]["spec"]["containers"]
    variables = {one["name"]: "" for one in container["env"]}
    assert not unknown(variables)
    (script,) = container["args"]
    for line in script.splitlines():
        words = shlex.split(line.partition("|")[0])
        if words[:1] == ["goqueue"]:
            help_of = CliRunner().invoke(app, [*_command(words[1:]), "--help"])
            assert help_of.exit_code == 0, help_of.output
            for word in words:
                if word.startswith("-"):
                    assert word in help_of.output


def _command(words: list[str]) -> list[str]:
    """The words before the first argument or option, which are those of the command."""
    return [word for word in words[:2] if word.isalpha()]


def test_prometheus_sees_a_job_that_rules_and_boards_know() -> None:
    objects = rendered("plain")
    label = objects["ServiceMonitor", "goqueue"]["spec"]["jobLabel"]
    assert objects["Service", "goqueue"]["metadata"]["labels"][label].startswith("goqueue")
    boards = [name for kind, name in objects if kind == "ConfigMap" and "-board-" in name]
    assert len(boards) == len(list((CHART / "files" / "dashboards").glob("*.json")))
    assert (CHART / "files" / "rules.yml").read_text(encoding="utf-8").count("alert:") > 10


def test_values_are_merged_into_objects() -> None:
    objects = rendered("secure")
    assert pod_of(objects)["runtimeClassName"] == "gvisor"
    budget = objects["PodDisruptionBudget", "goqueue"]["spec"]
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["maxUnavailable"] == 1
    assert objects["ConfigMap", "notes"]["data"] == {"owner": "platform"}


def test_patches_and_merges_reach_every_object(tmp_path: Path) -> None:
    """The values of `nodeport` have some for each kind of object and of operation."""
    objects = rendered("nodeport")
    stateful = objects["StatefulSet", "goqueue"]["spec"]
    assert stateful["minReadySeconds"] == 20
    node, sidecar = stateful["template"]["spec"]["containers"]
    assert (node["name"], sidecar["name"]) == ("goqueue", "sidecar")
    assert "FIRST" not in {one["name"] for one in node["env"]}
    assert objects["ConfigMap", "goqueue"]["metadata"]["labels"]["example.com/team"] == "orders"
    ports = [
        one["port"] for one in objects["NetworkPolicy", "goqueue"]["spec"]["ingress"][1]["ports"]
    ]
    assert ports == ["kafka", "http", "grpc"]
    account = objects["ServiceAccount", "goqueue"]["metadata"]
    assert account["annotations"] == {"example.com/owner": "orders"}
    secret = objects["Secret", "goqueue-cluster-secret"]["metadata"]
    assert secret["labels"]["team"] == "orders"
    assert objects["Pod", "goqueue-test"]["spec"]["priorityClassName"] == "low"


def test_values_can_change_every_object_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(values["merge"]) == set(values["patch"])
    templates = [file.read_text(encoding="utf-8") for file in CHART.rglob("templates/**/*.yaml")]
    named = re.findall(r'"name" "(\w+)"\) }}', "\n".join(templates))
    assert sorted(named) == sorted(values["merge"])
    objects = sum(text.count("\nkind: ") for text in templates)
    assert objects == len(named), "an object that is not merged"


@pytest.mark.parametrize("name", NAMES)
def test_a_node_has_the_zone_of_its_pod_as_its_rack(name: str) -> None:
    (container, *_) = pod_of(rendered(name))["containers"]
    [rack] = [one for one in container["env"] if one["name"] == "GOQUEUE_CLUSTER_RACK"]
    label = "metadata.labels['topology.kubernetes.io/zone']"
    assert rack["valueFrom"] == {"fieldRef": {"fieldPath": label}}
    assert load(environ={"GOQUEUE_CLUSTER_RACK": ""}).cluster.rack == "", "without such a label"


@pytest.mark.skipif(not HELM.exists(), reason="make check-deploy builds Helm")
@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        ({"op": "move", "path": "/spec"}, "the operations are add, replace, remove and test"),
        ({"op": "remove", "path": "/spec/nothing"}, 'there is no "nothing"'),
        ({"op": "replace", "path": "/spec/template/spec/containers/7"}, "the list has 1 entries"),
        ({"op": "test", "path": "/spec/replicas", "value": 9}, "it is 3"),
        ({"op": "add", "path": "spec", "value": 1}, "has to begin with /"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused_with_its_path(
    operation: Object, complaint: str, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"patch": {"statefulSet": [operation]}}), encoding="utf-8")
    plain = CHART / "ci" / "plain.yaml"
    with pytest.raises(SystemExit, match=re.escape(complaint)) as refused:
        render(plain, "--values", str(values))
    assert f"patch.statefulSet: {operation['op']}" in str(refused.value) or complaint.startswith(
        "has"
    )


@pytest.mark.skipif(not HELM.exists(), reason="make check-deploy builds Helm")
def test_scaling_restarts_no_pod_and_a_changed_setting_restarts_all() -> None:
    def checksum(*arguments: str) -> str:
        objects = {one["kind"]: one for one in render(CHART / "ci" / "plain.yaml", *arguments)}
        template = objects["StatefulSet"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/settings"])

    assert checksum("--set", "replicas=5") == checksum()
    assert checksum("--set", "settings.topics.partitions=7") != checksum()
