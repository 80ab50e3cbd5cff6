"""How Java is started for sessions of Spark that do not last."""

from __future__ import annotations

import sys
from pathlib import Path

CLASSES = Path(sys.prefix) / "spark-classes.jsa"  # by tools/spark_classes.py


def java_options() -> str:
    """Most of the work of a short session would be to read classes and to compile them well."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    if CLASSES.exists():
        options += f' "-XX:SharedArchiveFile={CLASSES}" -Xlog:disable'
    return options
