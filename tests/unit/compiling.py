"""Whether extensions can be built here, so that a missing one is a mistake."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path


def can_compile() -> bool:
    compiler = (sysconfig.get_config_var("CC") or "").split()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return bool(compiler) and shutil.which(compiler[0]) is not None and header.exists()
