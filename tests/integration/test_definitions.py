"""Definitions go from one cluster to another as a file, and there is nothing to do twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from goqueue.client.http import Client, NewAcl, SchemaReference

from .conftest import StartBroker
from .process import Broker

RUN_SECONDS_MAX = 60


def run(node: Broker, *words: object) -> Any:
    address = node.http.removeprefix("http://")
    command = [sys.executable, "-m", "goqueue", "definitions", *map(str, words)]
    done = subprocess.run(
        [*command, "--http", address, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.startswith(("[", "{")) else done.stdout


def test_definitions_of_one_cluster_make_another(start_broker: StartBroker, tmp_path: Path) -> None:
    first, second, file = start_broker(), start_broker(), tmp_path / "definitions.yaml"
    with Client(first.http.removeprefix("http://")) as client:
        client.tenants.create("acme", description="a customer")
        client.users.create("alice", "a long password")
        client.users.create("bob", "another long password")
        client.users.disable("bob")
        client.roles.create("readers", ["User:alice"])
        rule = NewAcl(kind="TOPIC", name="orders", principal="Role:readers", action="READ")
        client.acls.create([rule])
        client.quotas.set({"user": "alice"}, {"producer_byte_rate": 1_000_000})
        client.topics.create("orders", partitions=3, settings={"retention_ms": 86_400_000})
        client.groups.put_queue("billing", {"deliveries_max": 7})
        client.schemas.register("orders-value", '{"type": "string"}', kind="JSON")
        client.schemas.configure("orders-value", level="FULL")
    run(first, "export", file)
    text = file.read_text(encoding="utf-8")
    assert "password" not in text
    assert run(first, "import", file) == [], "everything is as it says"

    planned = run(second, "import", file, "--dry-run")
    assert {one["kind"] for one in planned} == {
        *("tenant", "user", "role", "acl", "quota", "topic", "queue group", "schema"),
    }
    assert run(second, "import", file, "--dry-run") == planned, "a dry run does nothing"
    assert run(second, "import", file) == planned
    assert run(second, "import", file) == []
    assert yaml.safe_load(run(second, "export")) == yaml.safe_load(text)

    changed = yaml.safe_load(text)
    changed["topics"]["orders"] |= {"partitions": 4, "settings": {"retention_ms": 1_000_000}}
    file.write_text(yaml.safe_dump(changed), encoding="utf-8")
    assert [one["change"] for one in run(second, "import", file)] == [
        "grow to 4 partitions",
        "set retention_ms",
    ]


def record(*fields: str, name: str = "Base") -> str:
    made = [{"name": one, "type": "int", "default": 0} for one in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def test_schemas_come_after_what_they_refer_to_whatever_their_numbers_were(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    first, second, file = start_broker(), start_broker(), tmp_path / "definitions.yaml"
    with Client(first.http.removeprefix("http://")) as client:
        schemas = client.schemas
        schemas.register("zebra", record())
        schemas.register("zebra", record("x"))
        schemas.delete_version("zebra", 1)  # so the first number elsewhere is the second here
        reference = SchemaReference("Base", "zebra", 2)
        field = {"name": "base", "type": "Base"}
        text = json.dumps({"type": "record", "name": "Uses", "fields": [field]})
        schemas.register("apple", text, references=[reference])
        schemas.configure("strict", level="NONE")
        for kind in ("string", "int"):  # compatible by no level
            schemas.register("strict", json.dumps({"type": kind}))
        schemas.configure("strict", level="FULL")
    run(first, "export", file)
    assert run(first, "import", file) == []
    run(second, "import", file)
    assert run(second, "import", file) == []
    with Client(second.http.removeprefix("http://")) as client:
        [used] = client.schemas.get("apple").references
        assert (used.subject, used.version) == ("zebra", 1)
        assert client.schemas.get("zebra", 1).text == record("x")
        assert client.schemas.get("strict", 2).text == json.dumps({"type": "int"})
        assert client.schemas.config("strict").level == "FULL"


def test_schemas_that_refer_to_each_other_in_a_circle_are_refused(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, file = start_broker(), tmp_path / "definitions.yaml"
    version = {"kind": "AVRO", "text": record()}
    subjects = {
        name: {
            "versions": [{**version, "references": [{"name": "X", "subject": other, "version": 1}]}]
        }
        for name, other in (("one", "two"), ("two", "one"))
    }
    file.write_text(yaml.safe_dump({"version": 1, "schemas": subjects}), encoding="utf-8")
    address = node.http.removeprefix("http://")
    command = [sys.executable, "-m", "goqueue", "definitions", "import", file, "--http", address]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    assert done.returncode != 0
    assert "refers to itself" in done.stderr
    assert "Traceback" not in done.stderr
