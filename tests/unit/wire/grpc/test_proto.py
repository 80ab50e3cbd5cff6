"""The .proto files: their style, and the Python code that is generated from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.grpc_codegen import PROTO, TARGET, generate

BUF = Path(sys.executable).with_name("buf")


def test_the_committed_messages_are_what_protoc_makes_of_the_proto_files() -> None:
    committed = {one.name: one.read_text(encoding="utf-8") for one in TARGET.glob("*.py*")}
    assert committed == generate(), "run `make grpc-codecs`"


def test_the_proto_files_keep_the_rules_of_buf() -> None:
    found = subprocess.run([BUF, "lint", PROTO], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_proto_files_are_formatted() -> None:
    found = subprocess.run(
        [BUF, "format", "--diff", PROTO], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == ""


def broken_by(folder: Path) -> str:
    """What in the proto files of a folder breaks clients made from the released ones."""
    released = PROTO / "released.binpb"
    found = subprocess.run(
        [BUF, "breaking", folder, "--against", released],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not found.stderr, found.stderr
    return found.stdout


def test_clients_made_from_the_released_files_still_work() -> None:
    assert broken_by(PROTO) == "", "reserve numbers and names of what goes; see CONTRIBUTING.md"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("ack_service.proto", "string group = 1;", "string group = 15;"),
        ("ack_service.proto", "string group = 1;", "int64 group = 1;"),
        ("ack_service.proto", "string group = 1;", "string group_name = 1;"),
        ("ack_service.proto", "string group = 1;", ""),
        ("ack_service.proto", "  rpc Ack(AckRequest) returns (AckResponse);", ""),
        ("ack_service.proto", "rpc Ack(AckRequest)", "rpc Ack(NackRequest)"),
    ],
    ids=["number", "type", "name", "field", "method", "request"],
)
def test_a_change_that_breaks_clients_is_found(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    folder = tmp_path / "proto"
    shutil.copytree(PROTO, folder)
    changed = folder / "goqueue" / "v1" / file
    text = changed.read_text(encoding="utf-8")
    assert old in text
    changed.write_text(text.replace(old, new), encoding="utf-8")
    assert file in broken_by(folder)
