"""The compiled modules: built where possible, left out elsewhere, sound in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "goqueue"
MODULES = (
    "model/_decode",
    "model/_encode",
    "model/_runs",
    "model/scanning/_scan",
    "runtime/_turns",
    "wire/kafka/_requests",
)
# Of each seed; `--seeds 10` tries ten times as many. Columns take longer to make than bytes.
FUZZ_CASES = dict(zip(MODULES, (8_000, 1_600, 8_000, 2_000, 1_000, 4_000), strict=True))
FUZZ_SECONDS_MAX = 280  # some seconds of work, of which a busy machine gives little at a time

# What both do with a module that stands at the path of the first argument.
_LOAD = """
import importlib.util, random, sys

def load(name):
    spec = importlib.util.spec_from_file_location(name, sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
_FUZZ = {
    "model/_decode": """
from goqueue.model import decode_reference
from tests.unit.model.decoder_cases import hostile_payload, outcomes

decoder = load("goqueue.model._decode")
for seed in range(*map(int, sys.argv[2:])):
    payload, count = hostile_payload(random.Random(seed))
    # Bytes of their own on the heap, so that a look outside them is one outside an allocation.
    payload = bytes(bytearray(payload))
    assert outcomes(decoder, payload, count) == outcomes(decode_reference, payload, count), seed
print("sound")
""",
    "model/_encode": """
from goqueue.model import encode_reference
from tests.unit.model.encoder_cases import hostile_columns, outcomes

encoder = load("goqueue.model._encode")
for seed in range(*map(int, sys.argv[2:])):
    columns, places = hostile_columns(random.Random(seed))
    assert outcomes(encoder, columns, places) == outcomes(encode_reference, columns, places), seed
print("sound")
""",
    "model/_runs": """
from goqueue.model import run_reference
from tests.unit.model.run_cases import hostile_run, outcomes

runs = load("goqueue.model._runs")
for seed in range(*map(int, sys.argv[2:])):
    data, spans = hostile_run(random.Random(seed))
    data = bytes(bytearray(data))
    assert outcomes(runs, data, spans) == outcomes(run_reference, data, spans), seed
print("sound")
""",
    "model/scanning/_scan": """
from goqueue.model.scanning import reference
from tests.unit.model.scan_cases import hostile_log, outcomes

scan = load("goqueue.model.scanning._scan")
for seed in range(*map(int, sys.argv[2:])):
    data = bytes(bytearray(hostile_log(random.Random(seed))))
    assert outcomes(scan, data) == outcomes(reference, data), seed
print("sound")
""",
    "runtime/_turns": """
from goqueue.runtime import turn_reference
from tests.integration.turn_cases import outcomes

turns = load("goqueue.runtime._turns")
for seed in range(*map(int, sys.argv[2:])):
    assert outcomes(turns, seed) == outcomes(turn_reference, seed), seed
print("sound")
""",
    "wire/kafka/_requests": """
from goqueue.wire.kafka import request_reference
from tests.unit.wire.kafka.request_cases import CLIENT_ID, hostile_frames

requests = load("goqueue.wire.kafka._requests")
for seed in range(*map(int, sys.argv[2:])):
    data = memoryview(bytearray(hostile_frames(random.Random(seed))))
    read = [one.read_run(data, 0, CLIENT_ID, 1000, 5) for one in (requests, request_reference)]
    assert read[0] == read[1], seed
print("sound")
""",
}


def build(where: Path, compiler: str | None = None) -> list[Path]:
    """Build the extensions outside the tree, as an install would; what came of it."""
    environment = os.environ | ({"CC": compiler} if compiler else {})
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    command += ["--build-lib", str(where / "lib"), "--build-temp", str(where / "temp")]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    return sorted(path for path in where.glob("lib/**/_*") if path.suffix == ".so")


def test_an_install_without_a_compiler_goes_on_without_them(tmp_path: Path) -> None:
    assert build(tmp_path, compiler="/nonexistent/cc") == []


def test_an_install_with_a_compiler_has_them(tmp_path: Path) -> None:
    _need_compiler()
    names = [one.name.partition(".")[0] for one in build(tmp_path)]
    assert names == [module.rpartition("/")[2] for module in MODULES]


@pytest.mark.seeds(1)
@pytest.mark.timeout(FUZZ_SECONDS_MAX + 20)
@pytest.mark.parametrize("name", _FUZZ)
def test_hostile_records_do_not_make_them_look_outside_their_memory(
    tmp_path: Path, name: str, seed: int
) -> None:
    compiler = _need_compiler()
    libraries = [_library(compiler, name) for name in ("libasan.so", "libubsan.so")]
    if None in libraries:
        pytest.skip("the compiler has no sanitizers")
    module = tmp_path / "module.so"
    subprocess.run(
        [
            *(compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
            *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
            *("-I", sysconfig.get_path("include"), "-o", str(module), str(PACKAGE / f"{name}.c")),
        ],
        check=True,
    )
    environment = os.environ | {
        "LD_PRELOAD": " ".join(str(one) for one in libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until the end
        "PYTHONMALLOC": "malloc",  # every object is an allocation that is watched
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
    }
    cases = FUZZ_CASES[name]
    words = [str(module), str(seed * cases), str((seed + 1) * cases)]
    ran = subprocess.run(
        [sys.executable, "-c", _LOAD + _FUZZ[name], *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=FUZZ_SECONDS_MAX,
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
