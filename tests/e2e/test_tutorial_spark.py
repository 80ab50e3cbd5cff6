"""The tutorial of Spark runs as it stands, from the top to the bottom."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.process import Broker
from tests.pages import ROOT, Reader

PAGE = ROOT / "docs" / "tutorials" / "09-spark.md"


@pytest.mark.slow
def test_the_page_prints_what_it_shows(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    meant = {
        "127.0.0.1:9092": broker.bootstrap,
        "127.0.0.1:8080": broker.http.removeprefix("http://"),
        "spark-checkpoint": str(tmp_path / "spark-checkpoint"),
    }
    reader = Reader(tmp_path, meant)
    try:
        reader.follow(PAGE)
        assert reader.names["spark"] is spark
    finally:
        reader.close()
