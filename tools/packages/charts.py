"""Renders the Helm chart for all value files in its `ci` folder, and validates what comes out.

    python -m tools.packages.charts [--write]

Objects of Kubernetes are held against the schemas of the package kubernetes-validate, those of the
Prometheus operator and of cert-manager against their own definitions. With `--write` the objects
are written to tests/unit/deploy/rendered, where tests of settings and of security read them without
Helm; otherwise those files are compared. `make check-deploy` fetches what this needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "goqueue"
RENDERED = REPOSITORY / "tests" / "unit" / "deploy" / "rendered"
DIGEST = RENDERED / "chart.sha256"
GO = REPOSITORY / ".cache" / "go"
HELM = GO / "bin" / "helm"
KUBERNETES = "1.33"
RELEASE, NAMESPACE = "goqueue", "queues"
# Definitions of custom resources, in the modules of the projects that have them.
_OPERATOR = (
    "prometheus-operator/prometheus-operator@*/example/prometheus-operator-crd"
    "/monitoring.coreos.com"
)
CUSTOM = {
    "ServiceMonitor": f"{_OPERATOR}_servicemonitors.yaml",
    "PrometheusRule": f"{_OPERATOR}_prometheusrules.yaml",
    "Certificate": "cert-manager/cert-manager@*/deploy/crds/cert-manager.io_certificates.yaml",
}

Object = dict[str, Any]


def digest() -> str:
    """Of all that the kept objects follow from; they are without rules and boards."""
    found = hashlib.sha256()
    for file in sorted(CHART.rglob("*")):
        if file.is_file() and "files" not in file.relative_to(CHART).parts:
            found.update(str(file.relative_to(CHART)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def values_files() -> list[Path]:
    return sorted((CHART / "ci").glob("*.yaml"))


def render(values: Path, *arguments: str) -> list[Object]:
    """The objects of the chart with these values."""
    command = [str(HELM), "template", RELEASE, str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", f"{KUBERNETES}.0", "--values", str(values), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{values.name}: {done.stderr}")
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def complaints(one: Object) -> Iterator[str]:
    """What the API server would refuse."""
    name = f"{one['kind']} {one['metadata']['name']}"
    if one["kind"] in CUSTOM:
        validator = jsonschema.Draft7Validator(_custom_schema(CUSTOM[one["kind"]], one))
        for error in validator.iter_errors(one):
            yield f"{name}: {error.json_path}: {error.message}"
        return
    import kubernetes_validate

    try:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{name}: {'.'.join(map(str, error.path))}: {error.message}"


def _custom_schema(file: str, one: Object) -> Object:
    *_, path = sorted(GO.glob(f"pkg/mod/github.com/{file}"))
    version = one["apiVersion"].partition("/")[2]
    for known in yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]:
        if known["name"] == version:
            schema: Object = _strict(known["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            return schema
    raise SystemExit(f"{file} has no version {version}")


def _strict(schema: Any) -> Any:
    """The same schema, but names that it does not know are errors."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(value) for name, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("type", None)
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if is_object and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


def without_generated(one: Object) -> Object:
    """The object as it is kept: no random secret, and no copy of rules and boards."""
    kept: Object = json.loads(json.dumps(one))
    if kept["kind"] == "Secret":
        kept["data"] = dict.fromkeys(kept["data"], "Z2VuZXJhdGVk")
    if kept["kind"] == "PrometheusRule":
        kept["spec"]["groups"] = []
    if kept["kind"] == "ConfigMap" and "-board-" in kept["metadata"]["name"]:
        kept["data"] = dict.fromkeys(kept["data"], "{}")
    return kept


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Render and validate the Helm chart.")
    parser.add_argument("--write", action="store_true", help="write what tests read")
    is_writing = parser.parse_args(arguments).write
    from tools.packages import kubernetes_schemas

    problems: list[str] = []
    if kubernetes_schemas.text() != kubernetes_schemas.TARGET.read_text(encoding="utf-8"):
        problems.append("the schemas are old: python -m tools.packages.kubernetes_schemas")
    RENDERED.mkdir(exist_ok=True)
    for values in values_files():
        objects = render(values)
        found = [text for one in objects for text in complaints(one)]
        problems += [f"{values.name}: {text}" for text in found]
        print(f"{values.name}: {len(objects)} objects, {len(found)} problems")
        text = yaml.safe_dump_all(map(without_generated, objects), sort_keys=True)
        kept = RENDERED / values.name
        if is_writing:
            kept.write_text(text, encoding="utf-8")
        elif not kept.exists() or kept.read_text(encoding="utf-8") != text:
            problems.append(
                f"{kept.relative_to(REPOSITORY)} is old: make check-deploy ARGS=--write"
            )
    if is_writing:
        DIGEST.write_text(digest() + "\n", encoding="utf-8")
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
