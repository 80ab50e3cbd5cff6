"""The commands of docs/backup.md run as they stand, from the top to the bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from goqueue.client.http import Client

from .conftest import StartBroker

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"
RUN_SECONDS_MAX = 120


def test_the_commands_of_the_page_run(start_broker: StartBroker, tmp_path: Path) -> None:
    node = start_broker()
    with Client(node.http.removeprefix("http://")) as client:
        client.topics.create("orders", partitions=1)
        client.publish("orders", "a harp")
        blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        assert len(blocks) == 5
        home = tmp_path / "home"
        commands = "".join(blocks).replace("127.0.0.1:8080", node.http.removeprefix("http://"))
        commands = commands.replace("/backups", f"{tmp_path}/backups")
        commands = commands.replace("/definitions.yaml", f"{tmp_path}/definitions.yaml")
        commands = commands.replace("/restored", f"{home}/data")
        programs = Path(sys.executable).parent
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    node.kill()
    after = start_broker(node.settings, directory=home)
    with Client(after.http.removeprefix("http://")) as client:
        assert [one.text for one in client.read("orders")] == ["a harp"]
