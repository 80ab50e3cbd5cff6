"""Whatever the OpenAPI document allows, and much that it does not, is asked of a real node.

No answer may be a server error, have a status or a form that the document does not name, or be
missing. Examples are drawn from a fixed seed, so a failure comes again.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from goqueue.wire.http.openapi import document
from goqueue.wire.http.operations import OPERATIONS

from .conftest import NODE, PEER

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    unsupported_method,
]
EXAMPLES_MAX = 20
PARTITIONS_MAX = 8
ENDING = ("deleteTopic", "deleteGroup", "leaveGroup")
# A stream does not end by itself, and a page of text is not described by a schema.
LEFT_OUT = ("streamMessages", "followJourneyEvents", "docs")

ASKED = [one for one in OPERATIONS if one.name not in LEFT_OUT]
SETTINGS = settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="session")
def schema() -> BaseSchema:
    return schemathesis.openapi.from_dict(document(ASKED))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with something in it, so that requests can get beyond "there is no such thing"."""
    home = tmp_path_factory.mktemp("schema")
    broker = NODE(home, {"groups.initial_rebalance_delay_ms": 0})
    broker.start()
    with httpx.Client(base_url=broker.http) as client:
        client.post("/v1/topics", json={"name": "orders", "partitions": 2}).raise_for_status()
        for number in range(20):
            body = {"value": str(number), "partition": number % 2}
            client.post("/v1/topics/orders/publish", json=body).raise_for_status()
        client.post("/v1/groups/billing/join", json={"topics": ["orders"], "member_id": "one"})
        client.post("/v1/groups/workers/receive", json={"topic": "orders", "max_messages": 3})
    yield broker.http
    broker.stop()


@pytest.fixture(scope="module")
def connections() -> Iterator[requests.Session]:
    """Kept open, and with no eye for the proxies of the machine."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


# Schemathesis would make the cases of all operations while tests are collected, in each process.
@pytest.mark.parametrize("name", [one.name for one in ASKED])
def test_every_answer_is_as_the_document_says(
    name: str, schema: BaseSchema, node: str, connections: requests.Session
) -> None:
    def ask(case: schemathesis.Case) -> None:
        lead_on(case)
        check(case, case.call(base_url=node, timeout=30, session=connections))

    found = schema.include(operation_id=name)
    tests = get_all_tests(schema=found, test_func=ask, settings=SETTINGS, given_kwargs={})
    (test,) = (one.ok()[1] for one in tests)
    test()


def check(case: schemathesis.Case, response: Response) -> None:
    checks = CHECKS
    if PEER == "cluster" and response.status_code == 503:
        # A cluster may ask for a retry while something changes hands, as the document says.
        assert "retry-after" in response.headers
        checks = [one for one in CHECKS if one is not not_a_server_error]
    case.validate_response(response, checks=checks)


def lead_on(case: schemathesis.Case) -> None:
    """Name what exists in most cases, or nearly every answer would be that there is no such thing.

    What would be slow is made small: long waits, and topics of thousands of partitions.
    """
    name = case.operation.definition.raw["operationId"]
    group = "workers" if "queue groups" in case.operation.tags else "billing"
    known = {"topic": "orders", "group": group, "member_id": "one", "member_epoch": 1}
    for part in (case.path_parameters, case.query, case.body):
        if not isinstance(part, dict):
            continue
        for field, value in known.items():
            if name in ENDING and part.get(field) == value:
                part[field] = "gone"  # the others still need it
            elif field in part and name not in ENDING and len(str(part[field])) % 4:
                part[field] = value
        if str(part.get("wait_ms")).isdecimal():
            part["wait_ms"] = min(int(part["wait_ms"]), 5)
        if isinstance(part.get("partitions"), int):
            part["partitions"] = min(part["partitions"], PARTITIONS_MAX)
        if name == "readMessages" and len(str(part.get("cursor", ""))) > 5:
            part["cursor"] = "0:3,1:0"
