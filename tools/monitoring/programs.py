"""Where the programs of Prometheus and Grafana are, if this machine has them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# `make prometheus` unpacks the package here instead of installing it, which would start a server.
UNPACKED = ROOT / ".cache" / "prometheus" / "usr" / "bin"
GRAFANA_HOMES = (Path("/usr/share/grafana"), Path("/opt/grafana"))


def find(program: str) -> Path | None:
    """The file of a program: on the path, or as unpacked."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}{os.pathsep}{UNPACKED}")
    return Path(found) if found else None


def find_grafana() -> tuple[Path, Path] | None:
    """The server of Grafana and its home, which has its pages."""
    home = next((one for one in GRAFANA_HOMES if (one / "public").is_dir()), None)
    server = find("grafana") or (home and home / "bin" / "grafana")
    return (server, home) if home and server and server.exists() else None
