"""What keeps a node from starting is said with a remedy, and never as a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import StartBroker

RUN_SECONDS_MAX = 60
FREE = "127.0.0.1:0"
# Root may write anywhere, unless that is taken from it.
OBEYING = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] * (os.getuid() == 0)


class Refused(NamedTuple):
    code: int
    text: str


Serve = Callable[..., Refused]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Start a node that cannot start; what it says."""

    def run(data_dir: Path | str, *words: str, **listen: str) -> Refused:
        command = [
            *OBEYING,
            sys.executable,
            "-m",
            "goqueue",
            "serve",
            "--data-dir",
            str(data_dir),
            *words,
        ]
        for name in ("kafka", "http", "registry", "sqs"):
            command += [f"--listen-{name}", listen.get(name, FREE)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
            cwd=tmp_path,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode != 0
        return Refused(done.returncode, done.stderr)

    return run


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_file_is_no_data_directory(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = serve("file")
    assert refused.code == 2
    assert "node.data_dir: file is a file, not a directory" in refused.text
    assert "--data-dir" in refused.text
    assert "--data-dir" in serve("file/below").text


def test_a_directory_that_cannot_be_made_is_named(serve: Serve) -> None:
    refused = serve("/proc/no-such-place/data")
    assert "node.data_dir: /proc/no-such-place/data" in refused.text
    assert "--data-dir" in refused.text


@pytest.mark.parametrize("closed", ["data", "data/meta"])
def test_a_directory_that_cannot_be_written_is_named(
    serve: Serve, tmp_path: Path, closed: str
) -> None:
    folder = tmp_path / closed
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    refused = serve(tmp_path / "data")
    folder.chmod(0o700)
    assert f"node.data_dir: {tmp_path / 'data'} cannot be used" in refused.text
    assert "Permission denied" in refused.text
    assert "chown" in refused.text


def test_a_directory_in_use_is_named(serve: Serve, start_broker: StartBroker) -> None:
    node = start_broker()
    refused = serve(node.data_dir)
    assert refused.code == 2
    assert "is in use by another node" in refused.text


def test_a_port_in_use_is_named_with_the_flag(serve: Serve, busy_port: int) -> None:
    for name in ("kafka", "http", "registry", "sqs"):
        refused = serve("data", **{name: f"127.0.0.1:{busy_port}"})
        assert refused.code == 2
        assert f"127.0.0.1:{busy_port} is in use by another process" in refused.text
        assert f"--listen-{name}" in refused.text


def test_an_address_of_another_machine_is_named(serve: Serve) -> None:
    refused = serve("data", "--allow-unauthenticated", kafka="192.0.2.1:9092")
    assert "192.0.2.1 is not an address of this machine" in refused.text
    assert "--advertise-kafka" in refused.text


def test_a_ready_file_that_cannot_be_written_is_named_before_the_start(serve: Serve) -> None:
    refused = serve("data", "--ready-file", "/no-such-folder/ready")
    assert refused.code == 2
    assert "--ready-file /no-such-folder/ready" in refused.text


def test_a_word_that_a_setting_does_not_take_is_answered_with_those_it_takes(
    serve: Serve,
) -> None:
    assert "every, interval, none" in serve("data", "--fsync", "often").text
    assert "delete, compact" in serve("data", "--set", "topics.cleanup_policy=drop").text


@pytest.mark.parametrize("name", ["node", "forming"])
def test_an_identity_that_cannot_be_read_is_named(serve: Serve, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data" / "meta"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"damaged")
    refused = serve("data")
    assert f"meta/{name} is damaged. " in refused.text
    assert "restore the file" in refused.text
    assert (folder / name).read_bytes() == b"damaged", "nothing was written"
