"""The board of topics: what is written to them, read from them, and stored."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    PER_SECOND,
    Board,
    Query,
    Section,
    Variable,
    graph,
    highest,
    rate,
    stacked,
    total,
)

_CHOSEN = 'topic=~"$topic"'


def _rate(metric: str, *more: str) -> Query:
    labels = ("topic", *more)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(rate(metric, ", ".join(labels), _CHOSEN), legend)


def _total(metric: str) -> Query:
    return Query(total(metric, "topic", _CHOSEN), "{{topic}}")


WRITTEN = Section(
    "Written",
    [
        stacked("Messages", PER_SECOND, _rate("goqueue_producer_messages_total")),
        stacked("Bytes", BYTES_PER_SECOND, _rate("goqueue_producer_bytes_total")),
        graph(
            "Messages in a batch",
            COUNT,
            Query(
                f"{rate('goqueue_producer_messages_total', 'topic', _CHOSEN)} "
                f"/ {rate('goqueue_producer_batches_total', 'topic', _CHOSEN)}",
                "{{topic}}",
            ),
            description="Larger batches cost less; producers that linger make them.",
        ),
        graph(
            "Batches sent again",
            PER_SECOND,
            _rate("goqueue_producer_duplicates_total"),
            description="Idempotent producers repeated them, and they were not stored again.",
        ),
        graph(
            "Messages deduplicated",
            PER_SECOND,
            _rate("goqueue_queue_deduplicated_total"),
            description="Messages to named queues whose deduplication id had been sent before.",
        ),
        graph("Schema checks", PER_SECOND, _rate("goqueue_schema_checks_total", "outcome")),
    ],
)

READ = Section(
    "Read by consumers of logs",
    [
        stacked("Messages", PER_SECOND, _rate("goqueue_consumer_messages_total")),
        stacked("Bytes", BYTES_PER_SECOND, _rate("goqueue_consumer_bytes_total")),
        graph("Fetches with messages", PER_SECOND, _rate("goqueue_consumer_fetches_total")),
    ],
)

STORED = Section(
    "Stored",
    [
        stacked("Size", BYTES, _total("goqueue_storage_log_bytes")),
        graph("Segments", COUNT, _total("goqueue_storage_segments")),
        graph(
            "Subjects of the schema registry",
            COUNT,
            Query(highest("goqueue_schema_subjects"), "subjects"),
        ),
        graph("Deleted by retention", PER_SECOND, _rate("goqueue_storage_retired_messages_total")),
        graph("Compactions", PER_SECOND, _rate("goqueue_storage_compactions_total")),
        graph(
            "Behind the leader",
            COUNT,
            _total("goqueue_cluster_replication_lag_messages"),
            description="Messages that the slowest replica of each partition has not yet copied.",
        ),
    ],
)

BOARD = Board(
    name="topics",
    title="GoQueue / Topics",
    description="What is written to topics, read from them, and stored.",
    variables=[Variable(name="topic", label="Topic", series=["goqueue_storage_log_bytes"])],
    sections=[WRITTEN, READ, STORED],
)
