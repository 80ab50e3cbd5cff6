"""HTTP requests that are the first use of an internal topic, many of which come at once.

A fresh node makes each internal topic when it is first needed, and loads the coordinators of its
partitions. A request that arrives meanwhile must wait for that; it must not be refused.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

COUNT = 12  # of each at once

_AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})


class FirstUse(NamedTuple):
    method: str
    path: str  # with the number of the caller
    body: Any
    statuses: frozenset[int]  # those that are right


def _good(method: str, path: str, body: Any) -> FirstUse:
    return FirstUse(method, path, body, frozenset({200, 201, 202, 204}))


def _missing(method: str, path: str, body: Any = None) -> FirstUse:
    return FirstUse(method, path, body, frozenset({404}))


# By what they use first. The topic `orders` exists; nothing else does.
FIRST_USES: dict[str, FirstUse] = {
    "groups": _good("POST", "/v1/groups/g-{}/join", {"topics": ["orders"]}),
    "transactions": _good("POST", "/v1/transactions", {}),
    "named transactions": _good("POST", "/v1/transactions", {"transactional_id": "t-{}"}),
    "queries": _good("POST", "/v1/queries/q-{}/open", {}),
    "delivery": _good("POST", "/v1/groups/d-{}/receive", {"topic": "orders", "wait_ms": 0}),
    "schedules": _good(
        "POST", "/v1/topics/orders/publish", {"value": "later", "delay_ms": 3_600_000}
    ),
    "schemas": _good("POST", "/registry/subjects/s-{}/versions", {"schema": _AVRO}),
    # Nobody sets these up: what does not exist is answered as such, and not with "retry".
    "an unknown query": _missing(
        "POST", "/v1/queries/none-{}/epochs/1/commit", {"run": 1, "transactions": []}
    ),
    "an unknown query, shown": _missing("GET", "/v1/queries/none-{}"),
    "an unknown group": _missing("GET", "/v1/groups/nobody-{}"),
    "an unknown member": _missing(
        "POST", "/v1/groups/nobody-{}/heartbeat", {"member_id": "m", "member_epoch": 3}
    ),
}


def numbered(body: Any, number: int) -> Any:
    """The body with the number of the caller put in."""
    if isinstance(body, dict):
        return {key: numbered(value, number) for key, value in body.items()}
    return body.replace("{}", str(number)) if isinstance(body, str) else body
