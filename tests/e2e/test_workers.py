"""Workers of Spark that run another Python than the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import py4j
import pyspark
import pytest
from pyspark import cloudpickle

from goqueue.model.errors import InvalidRequest
from goqueue.spark.options import read_options
from goqueue.spark.schema import table_schema
from goqueue.spark.session import enable
from goqueue.spark.source import TableReader

ROOT = Path(__file__).parents[2]
_READ = "import sys; from pyspark import cloudpickle; cloudpickle.loads(sys.stdin.buffer.read())"


def reader() -> TableReader:
    options = read_options({"subscribe": "orders"}, is_streaming=False)
    return TableReader(options, table_schema(has_headers=False, view="records"))


def test_a_worker_without_the_package_is_told_which_setting_is_wrong(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for package in (pyspark, py4j):
        source = Path(str(package.__file__)).parent
        (packages / source.name).symlink_to(source)
    # Without site packages it is a Python that has Spark and nothing else.
    found = subprocess.run(
        [sys.executable, "-S", "-c", _READ],
        input=cloudpickle.dumps(reader()),
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        check=False,
    )
    assert found.returncode != 0
    assert b"PYSPARK_PYTHON" in found.stderr
    assert b"has no module 'goqueue'" in found.stderr
    assert found.stderr.rstrip().rpartition(b"\n")[2].startswith(b"RuntimeError")


def test_what_a_worker_gets_is_what_was_sent() -> None:
    again = cloudpickle.loads(cloudpickle.dumps(reader()))
    assert type(again) is TableReader
    assert again.__dict__ == reader().__dict__


@pytest.mark.parametrize("flags", ["-I -S", ""], ids=["without", "with"])
def test_a_session_whose_workers_lack_the_package_is_refused(tmp_path: Path, flags: str) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {flags} "$@"\n')
    python.chmod(0o755)
    listeners: list[object] = []
    spark: Any = SessionOf(python, listeners)
    if flags:
        with pytest.raises(InvalidRequest, match=f"PYSPARK_PYTHON={sys.executable}"):
            enable(spark)
    else:
        assert enable(spark) is spark
    assert bool(listeners) == (not flags)


_WARNED = "statically registered"
_ENABLED = """
import sys
import goqueue.spark
from tests.e2e.conftest import SPARK_SETTINGS

settings = {**SPARK_SETTINGS, "spark.log.level": "WARN", "spark.sql.warehouse.dir": sys.argv[1]}
spark = goqueue.spark.session("local[1]", name="enabled", settings=settings)
goqueue.spark.enable(goqueue.spark.enable(spark).newSession())
rows = spark.readStream.format("goqueue").option("subscribe", "orders").load()
sys.stderr.write("THEN\\n")
from goqueue.spark.source import GoQueueDataSource
spark.dataSource.register(GoQueueDataSource)
spark.stop()
"""


@pytest.mark.slow
def test_enabling_a_session_replaces_no_data_source(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ENABLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    enabled, registered = done.stderr.split("THEN\n")
    assert _WARNED not in enabled
    assert _WARNED in registered, "Spark words the warning in another way"


class SessionOf:
    """The parts of a session that are looked at before it is used."""

    def __init__(self, python: Path, listeners: list[object]) -> None:
        self._sc = SimpleNamespace(master="local[2]", pythonExec=str(python))
        self.streams = SimpleNamespace(addListener=listeners.append)
