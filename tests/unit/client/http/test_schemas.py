"""Requests for the schema registry: each has its route, and refusals come back as errors."""

from __future__ import annotations

import json

import pytest

from goqueue.client.errors import BrokerRefused, BrokerUnready
from goqueue.client.http.failures import failure_of_answer
from goqueue.client.http.request import Request
from goqueue.client.http.requests.schemas import SchemaReference, SchemaRequests
from goqueue.model.errors import InvalidSchema, SchemaRefusal, SchemaRefused
from goqueue.wire.http.bodies.registry import NUMBERS
from goqueue.wire.http.registry_operations import REGISTRY_PREFIX, registry_dialect

SCHEMAS = SchemaRequests()
REQUESTS: dict[str, Request[object]] = {
    "register": SCHEMAS.register("a/b", "{}", references=[SchemaReference("n", "s", 1)]),
    "show_version": SCHEMAS.get("a", 1, deleted=True),
    "show_schema": SCHEMAS.get_by_id(7),
    "list_subjects": SCHEMAS.subjects(prefix="a"),
    "list_schemas": SCHEMAS.list_page(latest_only=True),
    "compare": SCHEMAS.check("a", "{}"),
    "compare_with_version": SCHEMAS.check("a", "{}", version=3),
    "show_config": SCHEMAS.config("a"),
    "set_config": SCHEMAS.configure(level="FULL"),
    "delete_config": SCHEMAS.unset_config("a"),
    "delete_subject": SCHEMAS.delete("a", permanent=True),
    "delete_version": SCHEMAS.delete_version("a", "latest"),
}  # type: ignore[dict-item]


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_has_its_route_and_its_body(name: str) -> None:
    request = REQUESTS[name]
    operation, _ = registry_dialect(REGISTRY_PREFIX).find(request.method, request.path)
    assert operation.name == name
    if request.body is not None:
        operation.decoder(request.body)


@pytest.mark.parametrize("reason", SchemaRefusal)
def test_a_numbered_refusal_keeps_its_reason(reason: SchemaRefusal) -> None:
    number = NUMBERS[reason]
    status = number if number < 1000 else number // 100
    body = json.dumps({"error_code": number, "message": "Because."}).encode()
    failure = failure_of_answer(status, {}, body)
    assert failure is not None
    assert isinstance(failure.error, SchemaRefused)
    assert failure.error.reason is reason
    assert str(failure.error) == "Because."
    assert not failure.is_passing


@pytest.mark.parametrize(
    ("status", "number", "kind"),
    [(422, 42201, InvalidSchema), (400, 400, BrokerRefused), (500, 50001, BrokerUnready)],
)
def test_other_refusals_of_the_registry(status: int, number: int, kind: type) -> None:
    body = json.dumps({"error_code": number, "message": "Because."}).encode()
    failure = failure_of_answer(status, {}, body)
    assert failure is not None
    assert type(failure.error) is kind


def test_answers_are_read() -> None:
    made = SCHEMAS.register("a", "text").read(b'{"id": 7, "version": 2, "schemaType": "JSON"}')
    assert (made.subject, made.version, made.id, made.kind, made.text) == (
        "a",
        2,
        7,
        "JSON",
        "text",
    )
    found = SCHEMAS.get_by_id(7).read(b'{"schema": "text", "guid": "g"}')
    assert (found.id, found.text, found.kind) == (7, "text", "AVRO")
    assert SCHEMAS.config().read(b'{"compatibilityLevel": "FULL"}').level == "FULL"
    assert SCHEMAS.configure().read(b'{"compatibility": "NONE"}').level == "NONE"
