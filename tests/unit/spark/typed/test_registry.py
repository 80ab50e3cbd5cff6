"""What is asked of a registry, and what is made of its answers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from goqueue.client.http.transport import Transport
from goqueue.spark.typed import registry
from goqueue.spark.typed.registry import ReferenceText, Registry, RegistryUnusable, UnknownSchema

UNKNOWN = {"error_code": 40403, "message": "Schema not found"}


class Server:
    """Answers by path; what is not here is not known."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        where = unquote(request.url.raw_path.decode())
        self.asked.append(where)
        if where not in self.answers:
            return httpx.Response(404, json=UNKNOWN)
        return httpx.Response(200, json=self.answers[where])


def serve(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> Server:
    server = Server(answers)

    def connect(url: str, settings: Any) -> Transport:
        return Transport(url, settings, network=httpx.MockTransport(server))

    monkeypatch.setattr(registry, "Transport", connect)
    registry._by_id.cache_clear()
    return server


def version(number: int, text: Any, **more: Any) -> dict[str, Any]:
    return {"subject": "s", "version": number, "id": 7, "schema": json.dumps(text), **more}


def test_a_schema_comes_with_all_it_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    one = [{"name": "A", "subject": "a", "version": 1}]
    both = [{"name": "B", "subject": "b", "version": 2}, *one]
    serve(
        monkeypatch,
        {
            "/base/subjects/orders-value/versions/latest": version(4, "B", references=both),
            "/base/subjects/a/versions/1?deleted=true": version(1, "long"),
            "/base/subjects/b/versions/2?deleted=true": version(2, "A", references=one),
        },
    )
    found = Registry("http://registry.test/base").version("orders-value", None)
    assert (found.kind, found.id, found.version, found.text) == ("AVRO", 7, 4, '"B"')
    # Each after those that it needs itself.
    assert found.references == (ReferenceText("A", '"long"'), ReferenceText("B", '"A"'))


def test_protobuf_comes_as_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = {"schemaType": "PROTOBUF"}
    one = [{"name": "a.proto", "subject": "a", "version": 1}]
    server = serve(
        monkeypatch,
        {
            "/schemas/ids/9": {"schema": "syntax", "references": one, **proto},
            "/schemas/ids/9?format=serialized": {"schema": "CgE=", **proto},
            "/subjects/a/versions/1?deleted=true": version(1, "x", **proto),
            "/subjects/a/versions/1?deleted=true&format=serialized": version(1, "y", **proto),
        },
    )
    found = Registry("http://registry.test").by_id(9)
    assert (found.id, found.text, found.references) == (
        9,
        "CgE=",
        (ReferenceText("a.proto", '"y"'),),
    )
    asked = len(server.asked)
    assert Registry("http://registry.test").by_id(9) == found
    assert len(server.asked) == asked


def test_what_is_not_known_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(monkeypatch, {})
    with pytest.raises(UnknownSchema, match="Schema not found"):
        Registry("http://registry.test").by_id(3)
    server.answers["/schemas/ids/3"] = {"schema": '"int"'}
    assert Registry("http://registry.test").by_id(3).text == '"int"'


def test_references_in_a_circle_end(monkeypatch: pytest.MonkeyPatch) -> None:
    itself = [{"name": "A", "subject": "a", "version": 1}]
    serve(
        monkeypatch,
        {
            "/subjects/a/versions/1": version(1, "A", references=itself),
            "/subjects/a/versions/1?deleted=true": version(1, "A", references=itself),
        },
    )
    assert len(Registry("http://registry.test").version("a", 1).references) == 1


def test_an_address_that_is_no_registry_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        return httpx.Response(404, text="nothing here")

    monkeypatch.setattr(
        registry,
        "Transport",
        lambda url, settings: Transport(url, settings, network=httpx.MockTransport(refuse)),
    )
    with pytest.raises(RegistryUnusable, match=r"not answer as a schema registry.*nothing here"):
        Registry("http://registry.test").version("orders-value", None)
