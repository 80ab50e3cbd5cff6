"""Compiles the C load generators, once per source, into a cache folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
HEADERS = ("timing.h", "frames.h")
COMPILE_SECONDS_MAX = 120


class ToolMissing(Exception):
    """A program cannot be built here; the text says what to install."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The C programs, or why they cannot be had."""

    cache: Path

    def raw_bench(self) -> Path:
        """The generator of prebuilt frames."""
        return self._build("raw_bench", libraries=())

    def sink(self) -> Path:
        """The server that discards."""
        return self._build("sink", libraries=())

    def rdkafka_bench(self) -> Path:
        """The librdkafka client."""
        return self._build("rdkafka_bench", libraries=("-lrdkafka", "-lpthread"))

    def _build(self, name: str, libraries: tuple[str, ...]) -> Path:
        source = SOURCES / f"{name}.c"
        digest = hashlib.sha256()
        for path in (source, *(SOURCES / header for header in HEADERS)):
            digest.update(path.read_bytes())
        program = self.cache / f"{name}-{digest.hexdigest()[:12]}"
        if program.exists():
            return program
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise ToolMissing("no C compiler here: install gcc")
        self.cache.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(".partial")
        result = subprocess.run(
            [compiler, "-O2", "-Wall", "-o", str(partial), str(source), *libraries],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS_MAX,
        )
        if result.returncode != 0:
            if "rdkafka" in result.stderr and name == "rdkafka_bench":
                raise ToolMissing("librdkafka's headers are missing: install librdkafka-dev")
            raise ToolMissing(f"{name}.c does not compile here: {result.stderr.strip()[:400]}")
        partial.rename(program)
        return program
