"""A container without an engine: namespaces, a read-only root, and the user of the image.

The files of the image are replaced by those of this machine, mounted read-only at their own paths,
and by an environment that the wheel was installed in. What the Dockerfile says about the container
is followed: user, environment, volume, health check and entry point.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.integration.packages.environments import Environment
from tools.packages.dockerfile import Stage

SECONDS_MAX = 100
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib64", "etc")


def why_not() -> str:
    """What keeps this machine from running a container; empty when nothing does."""
    if os.geteuid() != 0:
        return "only root may make mount namespaces without further ado"
    for tool in ("unshare", "setpriv", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"`{tool}` is not installed"
    probe = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"namespaces cannot be made here: {probe.stderr.strip()}" if probe.returncode else ""


class Container:
    """One container of the image: `run` starts the entry point and a script beside it."""

    def __init__(self, folder: Path, image: Stage, installed: Environment, files: Path) -> None:
        self._image = image
        self._installed = installed
        self._files = files
        self._root = folder / "root"
        self._data = folder / "data"
        self._entrypoint: list[str] = []
        self._volumes: dict[Path, str] = {}
        for made in self._root, self._data:
            made.mkdir()
        user, _, group = image.last("USER").text.partition(":")
        self._user = (int(user), int(group))
        os.chown(self._data, *self._user)
        self._data.chmod(0o700)

    def run(
        self,
        script: str,
        variables: Mapping[str, str],
        *,
        entrypoint: Sequence[str] = (),
        volumes: Mapping[Path, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """Run the entry point, and `script` as the same user; its `$NODE` is the node's process.

        `entrypoint` replaces that of the image, and `volumes` are mounted beside that of the image.
        """
        self._entrypoint = list(entrypoint) or self._image.last("ENTRYPOINT").as_list()
        self._volumes = dict(volumes)
        for source in volumes:
            source.mkdir(exist_ok=True)
            os.chown(source, *self._user)
        command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork"]
        command += ["--kill-child", "sh", "-eu", "-c", self._outer(script, variables)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )

    def _outer(self, script: str, variables: Mapping[str, str]) -> str:
        user, group = self._user
        environment = self._image.environment() | dict(variables)
        environment["GOQUEUE_CONFIG"] = "/image/goqueue.yaml"  # /etc is that of this machine
        environment["PATH"] = f"{self._installed.command.parent}:/usr/bin:/bin"
        assigned = [f"{name}={value}" for name, value in environment.items()]
        as_user = [
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        ]
        inner = f"{shlex.join(self._entrypoint)} & NODE=$!\n{script}"
        shell = ["sh", "-eu", "-c", inner]
        return "\n".join(
            [
                "ip link set lo up",
                *self._mounts(),
                shlex.join(["chroot", str(self._root), *as_user, "env", "-i", *assigned, *shell]),
            ]
        )

    def _mounts(self) -> list[str]:
        root = self._root
        packages = self._installed.command.parent.parent
        lines = ["mount --make-rprivate /", f"mount -t tmpfs -o mode=755 none {root}"]
        # The folders of the tests may lie below /tmp, so that one comes first.
        lines += [
            f"mkdir {root}/proc {root}/dev {root}/tmp",
            f"mount -t proc none {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount -t tmpfs -o mode=1777 none {root}/tmp",
        ]
        system = [Path("/") / name for name in _SYSTEM if (Path("/") / name).exists()]
        for path in dict.fromkeys([*system, Path(sys.base_prefix), Path(sys.prefix), packages]):
            if path.is_symlink():
                lines.append(f"ln -s {os.readlink(path)} {root}{path}")
                continue
            if any(parent in system for parent in path.parents):
                continue  # came with it
            lines += self._bind(path, str(path), options="ro")
        lines += [
            *self._bind(self._data, self._image.last("VOLUME").text),
            *(
                line
                for source, target in self._volumes.items()
                for line in self._bind(source, target)
            ),
            f"mkdir {root}/image && cp {self._files}/healthcheck.py {self._files}/goqueue.yaml "
            f"{root}/image && chmod 644 {root}/image/*",
            f"mount -o remount,ro {root}",
        ]
        return lines

    def _bind(self, source: Path, target: str, options: str = "") -> list[str]:
        place = f"{self._root}{target}"
        lines = [f"mkdir -p {place}", f"mount --bind {source} {place}"]
        if options:
            lines.append(f"mount -o remount,bind,{options} {place}")
        return lines
