"""Writes the part of the schemas of Kubernetes that the chart uses, for tests without a network.

    python -m tools.packages.kubernetes_schemas

The schemas are those of the package kubernetes-validate, which `make check-deploy` puts into
.cache; they are 20 MB. What the kinds of the chart refer to is kept, without descriptions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.packages.charts import KUBERNETES, RENDERED, REPOSITORY

CACHE = REPOSITORY / ".cache" / "kubernetes-validate" / "kubernetes_validate"
STRICT = CACHE / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
TARGET = RENDERED.parent / "kubernetes.schema.json"
# By kind, the definitions of what the chart renders.
KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "Pod": "io.k8s.api.core.v1.Pod",
    "PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "Secret": "io.k8s.api.core.v1.Secret",
    "Service": "io.k8s.api.core.v1.Service",
    "ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
}


def needed(folder: Path = STRICT) -> dict[str, Any]:
    """One schema: the definitions that are reachable from the kinds."""
    every = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    kept: dict[str, Any] = {}
    todo = sorted(KINDS.values())
    while todo:
        name = todo.pop()
        if name not in kept:
            kept[name] = _plain(every[name])
            todo += sorted(_references(kept[name]))
    return {"$comment": f"Kubernetes {KUBERNETES}", "definitions": dict(sorted(kept.items()))}


def text() -> str:
    """The file that tests read."""
    return json.dumps(needed(), separators=(",", ":")) + "\n"


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for one in schema.values():
            yield from _references(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _references(one)


def _plain(schema: Any) -> Any:
    """The schema without what only people read, with references into the one file."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        if name == "description" and isinstance(value, str):
            continue
        if name.startswith("x-kubernetes") and name != "x-kubernetes-int-or-string":
            continue
        if name == "$ref":
            kept[name] = "#/definitions/" + value.rpartition("/")[2]
        else:
            kept[name] = _plain(value)
    return kept


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
