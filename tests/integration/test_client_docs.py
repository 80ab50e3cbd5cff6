"""The code of docs/client.md runs as it stands, from the top to the bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .conftest import StartBroker

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
RUN_SECONDS_MAX = 60


def test_the_code_of_the_page_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(blocks).replace("127.0.0.1:8080", broker.http)
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(blocks) > 10
    assert "unknown_topic Topic 'no-such-topic' does not exist" in done.stdout
