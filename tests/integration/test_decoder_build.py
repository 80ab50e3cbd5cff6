"""The compiled decoder: built where that can be done, left out where not, and sound in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "goqueue" / "model" / "_decode.c"
FUZZ_CASES = 20_000

_FUZZ = """
import importlib.util, random, sys
from goqueue.model import decode_reference
from tests.unit.model.decoder_cases import hostile_payload, outcomes

spec = importlib.util.spec_from_file_location("goqueue.model._decode", sys.argv[1])
decoder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(decoder)
for seed in range(int(sys.argv[2])):
    payload, count = hostile_payload(random.Random(seed))
    # Bytes of their own on the heap, so that a look outside them is one outside an allocation.
    payload = bytes(bytearray(payload))
    assert outcomes(decoder, payload, count) == outcomes(decode_reference, payload, count), seed
print("sound")
"""


def build(where: Path, compiler: str | None = None) -> list[Path]:
    """Build the extension outside the tree, as an install would; what came of it."""
    environment = os.environ | ({"CC": compiler} if compiler else {})
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    command += ["--build-lib", str(where / "lib"), "--build-temp", str(where / "temp")]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    return list(where.glob("lib/goqueue/model/_decode*"))


def test_an_install_without_a_compiler_goes_on_without_the_decoder(tmp_path: Path) -> None:
    assert build(tmp_path, compiler="/nonexistent/cc") == []


def test_an_install_with_a_compiler_has_it(tmp_path: Path) -> None:
    _need_compiler()
    assert len(build(tmp_path)) == 1


def test_hostile_records_do_not_make_it_look_outside_its_memory(tmp_path: Path) -> None:
    compiler = _need_compiler()
    libraries = [_library(compiler, name) for name in ("libasan.so", "libubsan.so")]
    if None in libraries:
        pytest.skip("the compiler has no sanitizers")
    module = tmp_path / "_decode.so"
    subprocess.run(
        [
            *(compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
            *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
            *("-I", sysconfig.get_path("include"), "-o", str(module), str(SOURCE)),
        ],
        check=True,
    )
    environment = os.environ | {
        "LD_PRELOAD": " ".join(str(one) for one in libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until the end
        "PYTHONMALLOC": "malloc",  # every object is an allocation that is watched
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", _FUZZ, str(module), str(FUZZ_CASES)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert (ran.returncode, ran.stdout) == (0, "sound\n"), ran.stderr[-3000:]


def _need_compiler() -> str:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(compiler) is None or not header.exists():
        pytest.skip("there is no compiler for extensions")
    return compiler


def _library(compiler: str, name: str) -> Path | None:
    asked = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = Path(asked.stdout.strip())
    return path if path.is_absolute() else None
