"""`goqueue schema`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from goqueue import Client

from .process import Broker

RUN_SECONDS_MAX = 60
Run = Callable[..., str]

PLAIN = '{"type": "record", "name": "User", "fields": [{"name": "a", "type": "int"}]}'
BREAKING = PLAIN.replace('"int"', '"string"')
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "user", "type": "User"}]}'


@pytest.fixture
def goqueue(broker: Broker, tmp_path: Path) -> Run:
    """Run a command to its end; what it printed, or with another code what it complained about."""
    environment = os.environ | {
        "GOQUEUE_HTTP": broker.http,
        "GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml"),
    }

    def run(*words: str, code: int = 0, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", "schema", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run


def test_a_schema_is_registered_and_shown(goqueue: Run, unique: str, tmp_path: Path) -> None:
    file = tmp_path / "user.avsc"
    file.write_text(PLAIN)
    told = goqueue("register", unique, str(file))
    assert told.startswith(f"The schema is version 1 of subject {unique}; its id is ")
    made = json.loads(goqueue("register", unique, "-", "-o", "json", stdin=PLAIN))
    assert (made["subject"], made["version"], made["type"]) == (unique, 1, "avro")
    assert goqueue("get", "--id", str(made["id"])).strip() == PLAIN
    shown = yaml.safe_load(goqueue("get", unique, "-v", "1", "-o", "yaml"))
    assert (shown["id"], shown["schema"], shown["references"]) == (made["id"], PLAIN, [])
    rows = json.loads(goqueue("list", "--prefix", unique, "-o", "json"))
    assert rows == [{"subject": unique, "version": 1, "id": made["id"], "type": "avro"}]
    assert unique in goqueue("list")


def test_a_schema_is_deleted_in_two_steps(goqueue: Run, broker: Broker, unique: str) -> None:
    with Client(broker.http) as client:
        client.schemas.register(unique, PLAIN)
        reference = f"User={unique}:1"
        goqueue("register", f"{unique}-order", "-", "--reference", reference, stdin=ORDER)
        assert "references exist" in goqueue("delete", unique, code=1)
        assert client.schemas.delete(f"{unique}-order") == [1]
        assert goqueue("delete", unique).strip() == f"Subject {unique}, deleted versions: 1."
        assert "not found" in goqueue("get", unique, code=1)
        assert goqueue("get", unique, "-v", "1", "--deleted").strip() == PLAIN
        assert client.schemas.delete(f"{unique}-order", permanent=True) == [1]
        told = json.loads(goqueue("delete", unique, "--permanent", "-o", "json"))
        assert told["versions"] == [1]
        assert list(client.schemas.list_all(prefix=unique, deleted=True)) == []


def test_check_and_config(goqueue: Run, unique: str) -> None:
    goqueue("register", unique, "-", stdin=PLAIN)
    assert goqueue("check", unique, "-", stdin=PLAIN).startswith("The schema is compatible")
    told = goqueue("check", unique, "-", code=1, stdin=BREAKING)
    assert "is not compatible with" in told
    assert "$.a" in told
    told = goqueue("config", unique, "--level", "none", "--normalize", "-o", "json")
    assert json.loads(told) == {"subject": unique, "level": "none", "normalize": True}
    goqueue("check", unique, "-", "--version", "1", stdin=BREAKING)
    goqueue("register", unique, "-", stdin=BREAKING)
    assert json.loads(goqueue("config", unique, "--unset", "-o", "json"))["level"] == "backward"


def test_other_languages_go_by_their_suffix(goqueue: Run, unique: str, tmp_path: Path) -> None:
    proto = tmp_path / "a.proto"
    proto.write_text('syntax = "proto3";\nmessage A { string a = 1; }\n')
    tree = tmp_path / "a.json"
    tree.write_text('{"type": "object"}')
    for file, kind in ((proto, "protobuf"), (tree, "json")):
        made = json.loads(goqueue("register", f"{unique}-{kind}", str(file), "-o", "json"))
        assert made["type"] == kind


def test_mistakes_are_answered_with_what_to_do(goqueue: Run, unique: str) -> None:
    assert "cannot be read" in goqueue("register", unique, "/nowhere.avsc", code=1)
    assert "NAME=SUBJECT:VERSION" in goqueue(
        "register", unique, "-", "--reference", "User", code=1, stdin=PLAIN
    )
    assert "Give either a subject or --id" in goqueue("get", code=1)
    assert "Invalid Avro schema" in goqueue("register", unique, "-", code=1, stdin="{}")
