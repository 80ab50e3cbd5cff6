"""The board of tenants: what each has and does, and who is limited or refused."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
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

_CHOSEN = 'tenant=~"$tenant"'


def _total(metric: str) -> Query:
    return Query(total(metric, "tenant", _CHOSEN), "{{tenant}}")


def _rate(metric: str, direction: str) -> Query:
    where = f'{_CHOSEN}, direction="{direction}"'
    return Query(rate(metric, "tenant", where), "{{tenant}}")


TRAFFIC = Section(
    "Traffic",
    [
        stacked("Messages in", PER_SECOND, _rate("goqueue_tenant_messages_total", "in"), width=12),
        stacked(
            "Messages out", PER_SECOND, _rate("goqueue_tenant_messages_total", "out"), width=12
        ),
        stacked("Bytes in", BYTES_PER_SECOND, _rate("goqueue_tenant_bytes_total", "in"), width=12),
        stacked(
            "Bytes out", BYTES_PER_SECOND, _rate("goqueue_tenant_bytes_total", "out"), width=12
        ),
    ],
)

USE = Section(
    "Use",
    [
        stacked("Storage", BYTES, _total("goqueue_tenant_storage_bytes")),
        stacked("Topics", COUNT, _total("goqueue_tenant_topics")),
        stacked("Partitions", COUNT, _total("goqueue_tenant_partitions")),
        stacked("Groups", COUNT, _total("goqueue_tenant_groups")),
        stacked("Messages in flight", COUNT, _total("goqueue_tenant_in_flight_messages")),
        stacked("Scheduled messages", COUNT, _total("goqueue_tenant_scheduled_messages")),
        graph(
            "Quotas in use",
            RATIO,
            # Each node uses a part of a limit that is the same on all of them.
            Query(
                f"{total('goqueue_quota_used', 'tenant, limit', _CHOSEN)}"
                f" / {highest('goqueue_quota_limit', 'tenant, limit', _CHOSEN)}",
                "{{tenant}} {{limit}}",
            ),
            width=24,
        ),
    ],
)

LIMITS = Section(
    "Limits, all tenants",
    [
        graph(
            "Requests that waited or were refused, by quota",
            PER_SECOND,
            Query(rate("goqueue_quota_throttled_total", "limit"), "{{limit}}"),
        ),
        graph(
            "Time that clients were told to wait, in each second",
            SECONDS,
            Query(rate("goqueue_quota_throttle_seconds_total", "limit"), "{{limit}}"),
        ),
        graph(
            "Denied actions",
            PER_SECOND,
            Query(rate("goqueue_security_denials_total", "listener"), "{{listener}}"),
        ),
        graph(
            "Authentication",
            PER_SECOND,
            Query(
                rate("goqueue_security_authentications_total", "listener, mechanism, outcome"),
                "{{listener}} {{mechanism}} {{outcome}}",
            ),
            width=24,
        ),
    ],
)

BOARD = Board(
    name="tenants",
    title="GoQueue / Tenants",
    description="What each tenant has and does, and who is limited or refused.",
    variables=[Variable(name="tenant", label="Tenant", series=["goqueue_tenant_topics"])],
    sections=[TRAFFIC, USE, LIMITS],
)
