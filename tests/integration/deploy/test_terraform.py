"""deploy/terraform: formatted, and its configuration of machines applied, which needs no account.

The module that makes machines of AWS needs the provider of AWS, which is not fetched here: only its
syntax is checked.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from goqueue.config import SETTINGS, load

DEPLOY = Path(__file__).parents[3] / "deploy"
TERRAFORM = shutil.which("terraform") or shutil.which("tofu")
RUN_SECONDS_MAX = 100
ADDRESSES = ["10.0.1.5", "10.0.2.5", "10.0.3.5"]
SECRETS = {
    "GOQUEUE_CLUSTER_SECRET": "a-secret-of-forty-eight-characters-0123456789ab",
    "GOQUEUE_INITIAL_ADMIN": "admin:a-password-of-the-administrator",
}

needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="neither terraform nor tofu is here")


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    assert TERRAFORM is not None
    done = subprocess.run(
        [TERRAFORM, f"-chdir={folder}", *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
        env={**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def configured(
    folder: Path, values: dict[str, Any], *, code: int = 0
) -> tuple[dict[str, Any], str]:
    """Apply the configuration with these values; its outputs, and what was printed."""
    shutil.copytree(DEPLOY / "terraform" / "configuration", folder / "terraform" / "configuration")
    shutil.copytree(DEPLOY / "systemd", folder / "systemd")
    module = folder / "terraform" / "configuration"
    (module / "terraform.tfvars.json").write_text(json.dumps(values), encoding="utf-8")
    run(module, "init", "-input=false", "-no-color")
    printed = run(module, "apply", "-auto-approve", "-input=false", "-no-color", code=code)
    found = json.loads(run(module, "output", "-json")) if code == 0 else {}
    return {name: one["value"] for name, one in found.items()}, printed


VALUES = {
    "addresses": ADDRESSES,
    "racks": ["a", "b", "c"],
    "device": "/dev/nvme1n1",
    "secrets": SECRETS,
    "settings": {"topics": {"partitions": 6}, "storage": {"fsync": "interval"}},
}


@needs_terraform
def test_the_files_are_formatted_and_can_be_parsed() -> None:
    run(DEPLOY / "terraform", "fmt", "-check", "-recursive", "-diff")


@needs_terraform
def test_every_machine_gets_settings_that_exist_the_unit_and_the_secrets(tmp_path: Path) -> None:
    outputs, _ = configured(tmp_path, VALUES)
    unit = (DEPLOY / "systemd" / "goqueue.service").read_text(encoding="utf-8")
    for index, (text, script) in enumerate(
        zip(outputs["settings"], outputs["user_data"], strict=True)
    ):
        file = tmp_path / f"{index}.yaml"
        file.write_text(text, encoding="utf-8")
        settings = load(file=file, environ=SECRETS)
        assert settings.node.id == index + 1
        assert settings.cluster.peers == ",".join(
            f"{number}@{address}:7000" for number, address in enumerate(ADDRESSES, 1)
        )
        assert settings.cluster.rack == "abc"[index]
        assert settings.listeners.internal.host == ADDRESSES[index]
        assert settings.topics.partitions == 6
        assert settings.storage.fsync == "interval"
        subprocess.run(["bash", "-n", "-c", script], check=True, timeout=RUN_SECONDS_MAX)
        embedded = [
            base64.b64decode(one).decode() for one in re.findall(r"<<< '([\w+/=]+)'", script)
        ]
        secrets = "".join(f"{name}={value}\n" for name, value in sorted(SECRETS.items()))
        assert embedded == [text, secrets, unit]


@needs_terraform
@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"addresses": ADDRESSES[:2]}, "1, 3 or 5 first nodes"),
        ({"security": "tls"}, "Write plaintext, ssl"),
    ],
)
def test_values_that_cannot_work_are_refused(
    wrong: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    _, printed = configured(tmp_path, VALUES | wrong, code=1)
    assert complaint in printed


def test_the_example_has_settings_that_exist() -> None:
    text = (DEPLOY / "terraform" / "example.tfvars").read_text(encoding="utf-8")
    block = text[text.index("settings") :]
    sections = re.findall(r"(\w+) = \{ (.*?) \}", block)
    assert sections
    for section, names in sections:
        for name in re.findall(r"(\w+) =", names):
            assert f"{section}.{name}" in SETTINGS


def test_the_script_explains_itself_and_refuses_to_start_without_values() -> None:
    script = DEPLOY / "tf.sh"
    help_of = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert help_of.returncode == 2
    assert "up|status|url|bench|down" in help_of.stderr
    up = subprocess.run(["bash", str(script), "up"], capture_output=True, text=True, check=False)
    assert up.returncode == 2
    assert "example.tfvars" in up.stderr
