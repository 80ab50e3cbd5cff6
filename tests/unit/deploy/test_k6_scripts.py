"""The scripts for k6: JavaScript that loads, and has what k6 calls.

Node runs them with modules in the place of those of k6, which only note what they are asked for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "deploy" / "k6"
NAMES = ["http", "grpc", "sqs"]
NODE = shutil.which("node")
MODULES = {
    "index": "export const check = () => true; export const sleep = () => {};",
    "http": "export default { request: () => ({}), post: () => ({}) };",
    "crypto": "export default { md5: () => '', sha256: () => '', hmac: () => '' };",
    "encoding": "export default { b64encode: String, b64decode: String };",
    "execution": "export default { vu: { idInTest: 1, iterationInScenario: 1 } };",
    "metrics": """
        export const added = {};
        export class Counter {
          constructor(name) { this.name = name; added[name] = 0; }
          add(value) { added[this.name] += value; }
        }
        export class Trend { add() {} }
    """,
    "net/grpc": "export default { StatusOK: 0, Client: class { load() {} connect() {} } };",
}

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def run(folder: Path, code: str) -> Any:
    """What the code prints as JSON, beside the scripts and the modules that stand for k6."""
    assert NODE is not None
    package = folder / "node_modules" / "k6"
    for name, text in MODULES.items():
        file = package / f"{name}.js"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    exports = {".": "./index.js", "./*": "./*.js"}
    (package / "package.json").write_text(json.dumps({"type": "module", "exports": exports}))
    (folder / "package.json").write_text('{"type": "module"}')
    for script in SCRIPTS.glob("*.js"):
        shutil.copy(script, folder)
    main = folder / "main.js"
    main.write_text(f"globalThis.__ENV = {{}};\n{code}", encoding="utf-8")
    done = subprocess.run([NODE, str(main)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_loads_and_has_what_its_scenarios_run(name: str, tmp_path: Path) -> None:
    found = run(
        tmp_path,
        f"""
        const script = await import("./{name}.js");
        const functions = Object.keys(script).filter((one) => typeof script[one] === "function");
        console.log(JSON.stringify({{ functions, options: script.options }}));
        """,
    )
    called = {one["exec"] for one in found["options"]["scenarios"].values()}
    assert called | {"setup", "teardown", "handleSummary"} <= set(found["functions"])


def test_a_message_that_was_not_acknowledged_fails_the_run(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
        const load = await import("./load.js");
        const { added } = await import("k6/metrics");
        const missing = [];
        load.notePublished();
        load.notePublished();
        missing.push(added.messages_missing);
        load.noteAcknowledged(2);
        missing.push(added.messages_missing);
        console.log(JSON.stringify({ missing, thresholds: load.options().thresholds }));
        """,
    )
    assert found["missing"] == [2, 0]
    assert found["thresholds"]["messages_missing"] == ["count==0"]


@pytest.mark.parametrize("name", NAMES)
def test_scripts_count_what_they_publish_and_acknowledge(name: str) -> None:
    text = (SCRIPTS / f"{name}.js").read_text(encoding="utf-8")
    assert text.count("load.notePublished(") == 1
    assert text.count("load.noteAcknowledged(") == 1
