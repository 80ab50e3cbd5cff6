"""What the chart renders is valid by the schemas of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tools.packages.charts import CUSTOM, RENDERED
from tools.packages.kubernetes_schemas import KINDS, TARGET

Object = dict[str, Any]


def objects() -> Iterator[tuple[str, Object]]:
    for file in sorted(RENDERED.glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            yield f"{file.stem}: {one['kind']} {one['metadata']['name']}", one


EVERY = dict(objects())


@cache
def validator(kind: str) -> jsonschema_rs.Draft202012Validator:
    schema = json.loads(TARGET.read_text(encoding="utf-8"))
    return jsonschema_rs.Draft202012Validator({**schema, "$ref": f"#/definitions/{KINDS[kind]}"})


def faults(one: Object) -> list[str]:
    found = validator(one["kind"]).iter_errors(one)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]


@pytest.mark.parametrize("name", EVERY)
def test_an_object_is_as_kubernetes_takes_it(name: str) -> None:
    one = EVERY[name]
    if one["kind"] in CUSTOM:
        return  # Held against the definition of its operator by `make check-deploy`.
    assert faults(one) == []


@pytest.mark.parametrize("kind", sorted({one["kind"] for one in EVERY.values()} & set(KINDS)))
def test_a_name_that_kubernetes_does_not_know_is_found(kind: str) -> None:
    one = next(one for one in EVERY.values() if one["kind"] == kind)
    [fault] = faults({**one, "specs": {}})
    assert "specs" in fault


def test_a_wrong_type_deep_inside_is_found() -> None:
    one = json.loads(json.dumps(EVERY["plain: StatefulSet goqueue"]))
    one["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "kafka"
    [fault] = faults(one)
    assert fault.startswith("spec.template.spec.containers.0.ports.0.containerPort: ")


def test_every_kind_is_checked() -> None:
    assert {one["kind"] for one in EVERY.values()} <= set(KINDS) | set(CUSTOM)
    assert Path(TARGET).stat().st_size < 300_000
