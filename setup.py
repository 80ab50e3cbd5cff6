"""The compiled parts, equal bytes for equal sources, and the commit; the rest is in pyproject.toml.

The compiled parts are optional: where there is no compiler the install goes on without them, and
modules in plain Python do the same work, `decode_reference.py` for `_decode.c` and so on. With
GOQUEUE_PURE=1 they are left out, which makes the wheel for machines that no other wheel fits.

Builds between two releases have the same version, so each carries its commit: GOQUEUE_COMMIT, that
of the repository, or that of the source archive which it is built from.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

MODEL = "src/goqueue/model"
KAFKA = "src/goqueue/wire/kafka"
RUNTIME = "src/goqueue/runtime"

# Without debug information, which would contain the folder of the build.
COMPILE_ARGUMENTS = ["-O3", "-g0"]
IS_PURE = os.environ.get("GOQUEUE_PURE") == "1"

HERE = Path(__file__).parent
COMMIT_IN = "goqueue/model/support.py"
COMMIT_DIGITS = 12


def commit() -> str:
    """Return the commit of these sources, `.dirty` if they were changed; empty if it is unknown."""
    if given := os.environ.get("GOQUEUE_COMMIT"):
        return given[:COMMIT_DIGITS]
    if not (HERE / ".git").exists():  # a folder above us may be the repository of something else
        return ""
    command = ["git", "describe", "--always", "--dirty=.dirty", "--exclude=*"]
    command.append(f"--abbrev={COMMIT_DIGITS}")
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def write_commit(module: Path) -> None:
    """Write the commit into the copy of a module; one that is there already stays."""
    text = module.read_text(encoding="utf-8")
    module.unlink()  # a source archive may have a hard link to the file of the work tree
    module.write_text(re.sub(r'^COMMIT = ""$', f'COMMIT = "{commit()}"', text, flags=re.M), "utf-8")


class BuildWithCommit(build_py):
    """Copies the modules, one with the commit."""

    def run(self) -> None:
        built = Path(self.build_lib, COMMIT_IN)
        built.unlink(missing_ok=True)  # of an earlier build, it is newer than its source
        super().run()
        if not self.editable_mode:
            write_commit(built)


class RepeatableSdist(sdist):
    """Writes the same bytes again from the same files, if SOURCE_DATE_EPOCH is set.

    Wheels follow that variable by themselves; setuptools archives sources with the times and the
    owners of the files.
    """

    def make_release_tree(self, base_dir: Any, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir, "src", COMMIT_IN))

    def make_archive(self, base_name: Any, format: Any, *rest: Any, **options: Any) -> str:
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return str(super().make_archive(base_name, format, *rest, **options))
        return _archive(f"{base_name}.tar.gz", Path(options["base_dir"]), int(epoch))


def _archive(name: str, folder: Path, epoch: int) -> str:
    def neutral(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = epoch
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    with (
        open(name, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.add(folder, filter=neutral)  # adds the files of a folder in the order of names
    return name


extensions = [
    Extension(
        "goqueue.model._decode",
        [f"{MODEL}/_decode.c"],
        depends=[
            f"{MODEL}/_records.h",
            f"{MODEL}/_decode_reading.h",
            f"{MODEL}/_decode_checksums.h",
            f"{MODEL}/_crc.h",
            f"{MODEL}/_decode_columns.h",
            f"{MODEL}/_decode_json.h",
            f"{MODEL}/_search.h",
        ],
        extra_compile_args=COMPILE_ARGUMENTS,
        optional=True,
    ),
    Extension(
        "goqueue.model._encode",
        [f"{MODEL}/_encode.c"],
        depends=[f"{MODEL}/_encode_columns.h"],
        extra_compile_args=COMPILE_ARGUMENTS,
        optional=True,
    ),
    Extension(
        "goqueue.model._runs",
        [f"{MODEL}/_runs.c"],
        depends=[f"{MODEL}/_crc.h", f"{MODEL}/_records.h", f"{MODEL}/_search.h"],
        extra_compile_args=COMPILE_ARGUMENTS,
        optional=True,
    ),
    Extension(
        "goqueue.model.scanning._scan",
        [f"{MODEL}/scanning/_scan.c"],
        depends=[f"{MODEL}/_records.h", f"{MODEL}/_search.h"],
        extra_compile_args=COMPILE_ARGUMENTS,
        optional=True,
    ),
    Extension(
        "goqueue.wire.kafka._requests",
        [f"{KAFKA}/_requests.c"],
        extra_compile_args=COMPILE_ARGUMENTS,
        optional=True,
    ),
    Extension(
        "goqueue.runtime._turns",
        [f"{RUNTIME}/_turns.c"],
        extra_compile_args=COMPILE_ARGUMENTS,
        optional=True,
    ),
]

setup(
    ext_modules=[] if IS_PURE else extensions,
    cmdclass={"build_py": BuildWithCommit, "sdist": RepeatableSdist},
)
