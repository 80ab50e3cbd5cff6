"""Answers as JSON, when memory is short."""

from __future__ import annotations

import subprocess
import sys

import pytest

from goqueue.wire.carrier.calls import encode

SHORT_OF_MEMORY = """
import resource
from pathlib import Path
from goqueue.wire.carrier.calls import encode

answer = ["x" * 1000] * 50_000
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (10 << 20), used + (10 << 20)))
try:
    encode(answer)
except MemoryError:
    print("refused")
print(len(encode(["x"])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the bound on memory is Linux's")
def test_an_answer_without_memory_for_it_is_refused_and_the_process_goes_on() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "refused\n5\n"), ended.stderr[-500:]


@pytest.mark.parametrize("size", [0, 1, 1 << 16, 1 << 20])
def test_large_answers_are_the_same_bytes(size: int) -> None:
    encoded = encode("x" * size)
    assert encoded.__class__ is bytes  # Compiled code takes nothing else.
    assert encoded == b'"%s"' % (b"x" * size)
