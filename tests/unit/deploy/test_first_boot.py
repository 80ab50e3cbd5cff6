"""The script of the first boot, run with commands that only note what they were asked to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "deploy/terraform/configuration/first-boot.sh.tftpl"
# What the machine has at first; the script installs the rest.
BARE = ("apt-get", "blkid", "chown", "grep", "id", "install", "mkdir", "mount", "mountpoint")
BARE += ("useradd", "systemctl", "base64", "python3", "pip")
NOTING = """#!/bin/bash
name=$(basename "$0")
echo "$name $*" >> "$NOTES"
case "$name $1" in
  "blkid "*) exit 2 ;;                      # an empty disk
  "mountpoint "* | "grep "* | "id "*) exit 1 ;;
  "apt-get install")
    for one in "$@"; do [ "$one" = xfsprogs ] && cp "$0" "${0%/*}/mkfs.xfs"; done ;;
esac
exit 0
"""


def test_a_machine_without_the_tools_of_xfs_gets_its_file_system(tmp_path: Path) -> None:
    tools, notes, device = tmp_path / "tools", tmp_path / "notes", tmp_path / "disk"
    tools.mkdir()
    for name in BARE:
        (tools / name).write_text(NOTING, encoding="utf-8")
        (tools / name).chmod(0o755)
    for name in ("basename", "bash", "cp"):
        real = next(one for one in ("/bin", "/usr/bin") if Path(one, name).exists())
        (tools / name).symlink_to(Path(real, name))
    text = SCRIPT.read_text(encoding="utf-8")
    text = text.replace("[ -b ", "[ -e ").replace("/opt/goqueue/bin/pip", str(tools / "pip"))
    for place in ("/etc/", "/var/lib/"):
        text = text.replace(place, f"{tmp_path}{place}")
        Path(f"{tmp_path}{place}").mkdir(parents=True)
    for folder in ("etc/goqueue", "etc/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    for name, value in {"device": str(device), "package": "goqueue"}.items():
        text = text.replace(f"${{{name}}}", value)
    device.touch()
    script = tmp_path / "first-boot.sh"
    script.write_text(text, encoding="utf-8")
    environment = {"PATH": str(tools), "NOTES": str(notes)}
    done = subprocess.run(
        [str(tools / "bash"), str(script)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    asked = notes.read_text(encoding="utf-8").splitlines()
    assert f"mkfs.xfs {device}" in asked
    assert asked[-1] == "systemctl enable --now goqueue"
    assert os.stat(tmp_path / "etc/goqueue/secrets.env").st_mode & 0o077 == 0
