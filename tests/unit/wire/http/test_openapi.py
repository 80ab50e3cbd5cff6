"""The OpenAPI document, the page that shows it, and the collection made from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from goqueue.wire.carrier.routing import Operation, Routes
from goqueue.wire.http.openapi import document
from goqueue.wire.http.operations import OPERATIONS
from tests.unit.wire.http.client import Client
from tools.postman_collection import collection

ROOT = Path(__file__).parents[4]
DOCUMENT = document(OPERATIONS)


def schema(ref: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **ref} | {
        "components": DOCUMENT["components"]
    }


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [one.name for one in OPERATIONS]
    assert len(names) == len(set(names))


def test_every_route_leads_to_its_operation() -> None:
    routes = Routes(OPERATIONS)
    for operation in OPERATIONS:
        path = re.sub(r"{(\w+)}", r"my-\1", operation.path)
        found, parameters = routes.find(operation.method, path)
        assert found is operation
        assert parameters == {name: f"my-{name}" for name in operation.parameters}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_an_operation_is_described_whole(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    assert described["summary"].endswith(".")
    assert described["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    documented = set(described["responses"])
    assert str(operation.status) in documented
    assert "400" in documented
    assert "500" in documented
    for answer in described["responses"].values():
        for kind, media in answer.get("content", {}).items():
            if kind != "text/event-stream":  # OpenAPI 3.1 has no schema of events
                jsonschema_rs.validator_for(schema(media["schema"]))


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.example], ids=lambda one: one.name
)
def test_an_example_is_valid(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    media = described["requestBody"]["content"]["application/json"]
    jsonschema_rs.validator_for(schema(media["schema"])).validate(operation.example)
    operation.decoder(json.dumps(operation.example).encode())


def test_a_body_that_needs_fields_has_an_example() -> None:
    missing = [
        one.name
        for one in OPERATIONS
        if one.has_body
        and one.example is None
        and any(field.required for field in msgspec.structs.fields(one.request))
    ]
    assert missing == []


def test_the_document_and_its_page_are_served(client: Client) -> None:
    assert client.get("/openapi.json") == json.loads(json.dumps(DOCUMENT))
    page = client.send("GET", "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    text = page.body.decode()
    outside = re.findall(r"""(?:src|href)=["'](?!/|data:|#)[^"']+""", text)
    assert outside == [], "the page must work without the network"


def test_the_collection_is_current() -> None:
    written = (ROOT / "docs" / "goqueue.postman_collection.json").read_text(encoding="utf-8")
    assert written == collection(), "run `make postman`"


def test_the_collection_has_every_operation() -> None:
    folders = json.loads(collection())["item"]
    names = [one["name"] for folder in folders for one in folder["item"]]
    assert sorted(names) == sorted(one.name for one in OPERATIONS)
