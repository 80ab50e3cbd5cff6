"""The code of docs/journeys.md runs as it stands, from the top to the bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .conftest import StartBroker

PAGE = Path(__file__).parents[2] / "docs" / "journeys.md"
RUN_SECONDS_MAX = 60


def test_the_code_of_the_page_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    code = "\n".join(blocks).replace("http://127.0.0.1:8080", broker.http)
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
    assert "billing acked" in done.stdout
