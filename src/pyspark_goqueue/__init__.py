"""Makes `format("goqueue")` known: Spark looks for a `DefaultSource` in modules named so."""

from goqueue.spark.source import GoQueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
