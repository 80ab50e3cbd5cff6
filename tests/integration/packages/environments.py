"""Environments with the declared dependencies of a wheel and nothing else.

No package index is used: distributions are taken, file by file, from the environment of the tests,
which has the locked versions. So this checks that what the wheel declares is enough, and not that
an index has it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

INSTALL_SECONDS_MAX = 120


class Environment:
    """A virtual environment with the wheel, its dependencies and those of the extras."""

    def __init__(self, folder: Path, wheel: Path, extras: Iterable[str] = ()) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        self.command = folder / "bin" / "goqueue"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"
        for found in dependencies(wheel, extras):
            _link(found, self.packages)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        done = subprocess.run(
            [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run `goqueue` of this environment; only its own packages can be imported."""
        return self._run([str(self.command), *arguments], stdin)

    def run_python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.python), "-c", code], "")

    def _run(self, command: list[str], stdin: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
            cwd=self.packages.parent,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.packages.parent), "COLUMNS": "200"},
        )


def dependencies(wheel: Path, extras: Iterable[str]) -> list[Distribution]:
    """The installed distributions that the wheel with these extras requires, and what they do."""
    found: dict[str, Distribution] = {}
    todo = [_with_extras(_requirements_of(wheel), {"", *extras})]
    seen_extras = {"", *extras}
    while todo:
        for requirement in todo.pop():
            if canonicalize_name(requirement.name) == "goqueue":
                new = requirement.extras - seen_extras
                seen_extras |= new
                todo.append(_with_extras(_requirements_of(wheel), new))
                continue
            name = canonicalize_name(requirement.name)
            if name in found:
                continue
            one = found[name] = distribution(requirement.name)
            assert requirement.specifier.contains(one.version, prereleases=True), requirement
            nested = (Requirement(text) for text in one.requires or [])
            todo.append(_with_extras(nested, {"", *requirement.extras}))
    return list(found.values())


def _requirements_of(wheel: Path) -> Iterator[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(name).decode())
    for text in headers.get_all("Requires-Dist") or []:
        yield Requirement(text)


def _with_extras(requirements: Iterable[Requirement], extras: set[str]) -> list[Requirement]:
    return [
        one
        for one in requirements
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def _link(found: Distribution, packages: Path) -> None:
    for file in found.files or []:
        if ".." in file.parts:
            continue  # scripts
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(file))))
