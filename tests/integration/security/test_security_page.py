"""docs/security.md: its commands secure a node, in their order."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from tests.integration.ports import quiet_port

from .pages import PRELUDE, ROOT, execute, plain_environment

PAGE = ROOT / "docs" / "security.md"
START_SECONDS_MAX = 30


def blocks(ports: dict[str, str]) -> list[str]:
    """The blocks of the page, with free ports."""
    text = PAGE.read_text(encoding="utf-8")
    for written, free in ports.items():
        text = text.replace(f":{written}", f":{free}")
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_commands_secure_a_node(tmp_path: Path) -> None:
    ports = {written: str(quiet_port()) for written in ("9093", "8443", "8444", "9324")}
    certificate, serve, manage, use = blocks(ports)
    execute(["bash", "-c", PRELUDE + certificate], tmp_path)
    ready = tmp_path / "ready"
    serve = serve.replace("goqueue serve", f"exec goqueue serve --ready-file {ready}")
    with subprocess.Popen(
        ["bash", "-c", PRELUDE + serve], cwd=tmp_path, env=plain_environment(tmp_path)
    ) as node:
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not ready.exists():
                assert node.poll() is None, "the node has ended"
                assert time.monotonic() < deadline, "the node has not started"
                time.sleep(0.05)
            managed = execute(["bash", "-c", PRELUDE + manage], tmp_path)
            assert "gqk_" in managed
            assert "ALLOW" in managed
            used = execute(["bash", "-c", PRELUDE + use], tmp_path)
            assert used.count("a harp") == 1
            assert "refused" in used
        finally:
            node.terminate()
