"""Facts about the machine, the versions and the commit that a figure belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import confluent_kafka

from bench.processes import REPOSITORY

PACKAGES = ("confluent-kafka", "uvloop", "crc32c")


def facts(work: Path) -> dict[str, Any]:
    """What a reader needs to judge or repeat the figures; nothing that names the machine."""
    return {
        "commit": _git("rev-parse", "HEAD") or "not a git checkout",
        "local_changes": bool(_git("status", "--porcelain")),
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": _filesystem(work),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "librdkafka_in_python": confluent_kafka.libversion()[0],
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def _git(*arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", *arguments], check=False, capture_output=True, text=True, cwd=REPOSITORY
        )
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _filesystem(work: Path) -> str:
    """The type of the file system that holds the data: the longest mount point above it wins."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        is_above = str(work.resolve()).startswith(mount.rstrip("/") + "/")
        if is_above and len(mount) >= len(best):
            best, kind = mount, found
    return kind
