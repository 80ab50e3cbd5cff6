"""The board of one node: its process, its disk, its requests."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    SECONDS,
    SINCE,
    Board,
    Query,
    Section,
    Variable,
    graph,
    highest,
    largest,
    lowest,
    numbers,
    quantile,
    quantiles,
    rate,
    stacked,
    total,
)

_HERE = 'instance=~"$instance"'
_EXPIRY = "goqueue_certificate_expiry_timestamp_seconds"


def _total(metric: str, legend: str = "", by: str = "") -> Query:
    return Query(total(metric, by, _HERE), legend)


def _rate(metric: str, legend: str = "", by: str = "") -> Query:
    return Query(rate(metric, by, _HERE), legend)


PROCESS = Section(
    "Process",
    [
        *numbers(
            ("Serves clients", COUNT, total("goqueue_node_ready", where=_HERE)),
            # Grafana counts this unit in milliseconds.
            ("Started", SINCE, f"{highest('process_start_time_seconds', where=_HERE)} * 1000"),
            ("Led partitions", COUNT, total("goqueue_cluster_led_partitions", where=_HERE)),
            ("Connections", COUNT, total("goqueue_listener_connections", where=_HERE)),
            ("Threads", COUNT, total("process_threads", where=_HERE)),
            ("Series left out", COUNT, total("goqueue_metrics_series_left_out", where=_HERE)),
        ),
        graph("CPU", RATIO, _rate("process_cpu_seconds_total", "cores")),
        graph(
            "Memory",
            BYTES,
            _total("process_resident_memory_bytes", "resident"),
        ),
        graph(
            "File descriptors",
            COUNT,
            _total("process_open_fds", "open"),
            _total("process_max_fds", "limit"),
        ),
        quantiles("Delay of the event loop", "goqueue_loop_lag_seconds", _HERE),
        quantiles("Pauses of garbage collection", "goqueue_gc_pause_seconds", _HERE),
        graph(
            "Garbage collections", PER_SECOND, _rate("goqueue_gc_collections_total", "collections")
        ),
    ],
)

REQUESTS = Section(
    "Requests",
    [
        graph(
            "Requests",
            REQUESTS_PER_SECOND,
            Query(
                largest(10, rate("goqueue_request_duration_seconds_count", "listener, api", _HERE)),
                "{{listener}} {{api}}",
            ),
        ),
        graph(
            "Time to answer, 95 %",
            SECONDS,
            Query(
                largest(10, quantile(0.95, "goqueue_request_duration_seconds", "api", _HERE)),
                "{{api}}",
            ),
            description="Without the time for which requests wait for messages.",
        ),
        graph(
            "Errors",
            REQUESTS_PER_SECOND,
            Query(
                rate("goqueue_request_errors_total", "listener, api, code", _HERE),
                "{{listener}} {{api}} {{code}}",
            ),
        ),
        stacked(
            "Connections", COUNT, _total("goqueue_listener_connections", "{{listener}}", "listener")
        ),
        graph(
            "Connections opened and refused",
            PER_SECOND,
            _rate("goqueue_listener_connections_opened_total", "{{listener}} opened", "listener"),
            _rate(
                "goqueue_listener_connections_refused_total",
                "{{listener}} refused: {{reason}}",
                "listener, reason",
            ),
        ),
        graph(
            "Bytes",
            BYTES_PER_SECOND,
            _rate("goqueue_listener_received_bytes_total", "{{listener}} received", "listener"),
            _rate("goqueue_listener_sent_bytes_total", "{{listener}} sent", "listener"),
        ),
    ],
)

STORAGE = Section(
    "Storage",
    [
        quantiles("Group commit", "goqueue_storage_sync_duration_seconds", _HERE),
        graph(
            "Group commits",
            PER_SECOND,
            _rate("goqueue_storage_sync_duration_seconds_count", "commits"),
        ),
        graph(
            "Disk",
            BYTES,
            _total("goqueue_storage_free_bytes", "free"),
            _total("goqueue_storage_total_bytes", "size"),
        ),
        stacked(
            "Logs",
            BYTES,
            Query(largest(10, total("goqueue_storage_log_bytes", "topic", _HERE)), "{{topic}}"),
        ),
        graph("Segments", COUNT, _total("goqueue_storage_segments", "segments")),
        graph(
            "Problems",
            COUNT,
            _total("goqueue_storage_full", "disk is full"),
            _total("goqueue_storage_failed_partitions", "failed partitions"),
        ),
    ],
)

RECORDS = Section(
    "Audit log, certificates, metrics",
    [
        graph(
            "Audit log",
            PER_SECOND,
            _rate("goqueue_audit_events_total", "events"),
            _rate("goqueue_audit_lost_total", "lost"),
        ),
        graph(
            "Events of the audit log that wait",
            COUNT,
            _total("goqueue_audit_waiting_events", "events"),
        ),
        graph(
            "Certificates expire in",
            SECONDS,
            Query(
                f"{lowest(_EXPIRY, 'listener', _HERE)} - time()",
                "{{listener}}",
            ),
        ),
        graph(
            "Exports of metrics",
            PER_SECOND,
            _rate("goqueue_metrics_exports_total", "{{outcome}}", "outcome"),
            _rate("goqueue_metrics_export_rejected_points_total", "rejected data points"),
        ),
        graph(
            "Exports of metrics that wait",
            COUNT,
            _total("goqueue_metrics_export_waiting", "exports"),
        ),
        quantiles("Scrapes", "goqueue_metrics_scrape_duration_seconds", _HERE),
    ],
)

JOURNEYS = Section(
    "Journeys",
    [
        graph(
            "Events",
            PER_SECOND,
            _rate("goqueue_journey_events_total", "events"),
            _rate("goqueue_journey_recovered_total", "recovered after a crash"),
        ),
        graph("Events wait", SECONDS, _total("goqueue_journey_lag_seconds", "oldest event")),
        graph(
            "Written to the journal",
            BYTES_PER_SECOND,
            _rate("goqueue_journey_written_bytes_total", "bytes"),
        ),
        graph(
            "Exports of traces",
            PER_SECOND,
            _rate("goqueue_journey_exports_total", "{{outcome}}", "outcome"),
            description="Where journeys.otlp_endpoint is set.",
        ),
        graph(
            "Exported spans",
            PER_SECOND,
            _rate("goqueue_journey_exported_spans_total", "accepted"),
            _rate("goqueue_journey_export_rejected_spans_total", "rejected"),
        ),
        graph(
            "Exports of traces are behind",
            SECONDS,
            Query(
                highest("goqueue_group_lag_seconds", where='group="__otlp-traces"'),
                "oldest event",
            ),
            description="Of the whole cluster: the lag of the group that exports the journal.",
        ),
    ],
)

BOARD = Board(
    name="node",
    title="GoQueue / One node",
    description="The process, the disk and the requests of one node.",
    variables=[
        Variable(
            name="instance",
            label="Node",
            series=["goqueue_build_info"],
            is_multiple=False,
        )
    ],
    sections=[PROCESS, REQUESTS, STORAGE, JOURNEYS, RECORDS],
)
