"""The systemd unit and the settings file beside it."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from goqueue.config import load
from tests.unit.deploy.names import DEPLOY, unknown

UNIT = DEPLOY / "systemd" / "goqueue.service"
SETTINGS = DEPLOY / "systemd" / "goqueue.yaml"
GUIDE = DEPLOY.parent / "docs" / "deploy.md"
SECRET = "a-secret-of-forty-eight-characters-0123456789ab"


def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_the_settings_file_is_valid_and_keeps_data_where_the_unit_allows_it() -> None:
    settings = load(file=SETTINGS, environ={"GOQUEUE_CLUSTER_SECRET": SECRET})
    assert str(settings.node.data_dir) == f"/var/lib/{service()['StateDirectory']}"
    assert service()["ProtectSystem"] == "strict"


def test_the_unit_starts_what_the_guide_installs_with_the_file_that_it_copies() -> None:
    words = shlex.split(service()["ExecStart"])
    guide = GUIDE.read_text(encoding="utf-8")
    assert words[0].removesuffix("bin/goqueue").rstrip("/") in guide
    assert words[1:3] == ["serve", "--config"]
    assert words[3] in guide
    assert service()["EnvironmentFile"].lstrip("-") in guide
    variables = dict(word.split("=", 1) for word in service()["Environment"].split())
    assert not unknown(variables)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    # The program and the user are not on this machine; everything else is as it is installed.
    copied = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/opt/goqueue/bin/goqueue", "/bin/true")
    copied.write_text(text.replace("User=goqueue", "User=root"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copied)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, [])
