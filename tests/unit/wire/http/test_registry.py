"""The schema registry's API: paths, flags, media types, and the numbers of its refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import SchemaRefusal
from goqueue.model.session import NOBODY
from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.front_end import Limits
from goqueue.wire.http.bodies.registry import NUMBERS
from goqueue.wire.http.front_end import FrontEnd
from goqueue.wire.http.operations import OPERATIONS
from goqueue.wire.http.registry_operations import REGISTRY, REGISTRY_PREFIX, registry_dialect
from tests.simulation.world import World
from tests.unit.schemas.desk import record
from tests.unit.wire.http.client import Answer, Client, request

V1 = "application/vnd.schemaregistry.v1+json"
PLAIN = record(name="User", a="string")
WIDER = record(name="User", a="string", b="int?")
BREAKING = record(name="User", a="string", b="int")
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "u", "type": "User"}]}'


class Registry(Client):
    """A client of the registry's own listener, or of the same under /registry."""

    def __init__(self, world: World, *, is_mounted: bool = False, limits: Limits | None = None):
        super().__init__(world, limits)
        self.prefix = REGISTRY_PREFIX if is_mounted else ""
        if is_mounted:
            front = FrontEnd(world.broker.gate, self.front.limits, OPERATIONS)
            mounts = {"registry": registry_dialect(REGISTRY_PREFIX)}
            self.application = Application(front, mounts=mounts)
        else:
            front = FrontEnd(world.broker.gate, self.front.limits, ())
            self.application = Application(front, registry_dialect())

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Answer:
        sent = {"Confluent-Accept-Unknown-Properties": "true"} if headers is None else headers
        return self.send(method, self.prefix + path, body, headers=sent, **query)

    def told(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        answer = self.ask(method, path, body, **query)
        assert answer.status == 200, answer
        return answer.json

    def message(self, method: str, path: str, body: Any = None, **query: object) -> str:
        """The text of a refusal."""
        answer = self.ask(method, path, body, **query)
        assert answer.status >= 400
        return str(answer.json["message"])

    def number(self, method: str, path: str, body: Any = None, **query: object) -> int:
        """The number of a refusal, whose form is checked."""
        answer = self.ask(method, path, body, **query)
        told = answer.json
        assert set(told) == {"error_code", "message"}
        assert told["message"]
        assert answer.headers["content-type"] == V1
        assert str(told["error_code"])[:3] == str(answer.status)
        return int(told["error_code"])

    def register(self, subject: str, text: str, **more: object) -> int:
        body = {"schema": text, **more}
        made = self.told("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return int(made["id"])


@pytest.fixture(params=[False, True], ids=["listener", "mounted"])
def registry(world: World, request: pytest.FixtureRequest) -> Registry:
    return Registry(world, is_mounted=request.param)


def test_every_refusal_has_a_number() -> None:
    assert NUMBERS.keys() == set(SchemaRefusal)
    assert len(set(NUMBERS.values())) == len(NUMBERS)


def test_every_route_is_there_once() -> None:
    places = [(one.method, one.path) for one in REGISTRY]
    assert len(places) == len(set(places))


def test_a_schema_is_registered_and_found_everywhere(registry: Registry) -> None:
    made = registry.told("POST", "/subjects/users-value/versions", {"schema": PLAIN})
    assert made == {
        "id": 1,
        "version": 1,
        "guid": made["guid"],
        "schemaType": "AVRO",
    }
    whole = {"subject": "users-value", **made, "schema": PLAIN}
    assert registry.told("GET", "/subjects/users-value/versions/1") == whole
    assert registry.told("GET", "/subjects/users-value/versions/latest") == whole
    assert registry.told("GET", "/subjects/users-value/versions/-1") == whole
    assert registry.told("POST", "/subjects/users-value", {"schema": PLAIN}) == whole
    assert registry.told("GET", "/schemas") == [whole]
    assert registry.told("GET", "/subjects") == ["users-value"]
    assert registry.told("GET", "/subjects/users-value/versions") == [1]
    assert registry.told("GET", "/schemas/ids/1")["schema"] == PLAIN
    assert registry.told("GET", "/schemas/ids/1", fetchMaxId="true")["maxId"] == 1
    assert registry.told("GET", "/schemas/ids/1/subjects") == ["users-value"]
    assert registry.told("GET", "/schemas/ids/1/versions") == [
        {"subject": "users-value", "version": 1}
    ]
    assert registry.told("GET", f"/schemas/guids/{made['guid']}")["schema"] == PLAIN
    assert registry.told("GET", f"/schemas/guids/{made['guid']}/ids") == [{"context": ".", "id": 1}]
    assert registry.told("GET", "/subjects/users-value/versions/1/schema") == json.loads(PLAIN)
    assert registry.ask("GET", "/schemas/ids/1/schema").body.decode() == PLAIN


def test_answers_are_in_the_type_that_was_asked_for(registry: Registry) -> None:
    def kind(accept: str) -> str:
        path = registry.prefix + "/subjects"
        return registry.send("GET", path, headers={"accept": accept}).headers["content-type"]

    assert kind(f"{V1}, application/vnd.schemaregistry+json, application/json") == V1
    assert kind("application/json") == "application/json"
    assert kind("application/vnd.schemaregistry+json; q=0.9") == (
        "application/vnd.schemaregistry+json"
    )
    assert kind("*/*") == V1


@pytest.mark.parametrize(
    "content_type", [V1, "application/vnd.schemaregistry+json", "application/json; charset=utf-8"]
)
def test_bodies_come_in_several_types(registry: Registry, content_type: str) -> None:
    path = f"{registry.prefix}/subjects/users/versions"
    answer = registry.send("POST", path, {"schema": PLAIN}, headers={"content-type": content_type})
    assert answer.json["id"] == 1


def test_bad_bodies_are_refused_in_the_registrys_own_form(registry: Registry) -> None:
    path = "/subjects/users/versions"
    assert registry.number("POST", path, b"{") == 400
    assert registry.number("POST", path, {"schema": 7}) == 400
    assert registry.number("POST", path, {"schema": PLAIN, "references": [{"name": "a"}]}) == 400
    assert registry.number("POST", path) == 422
    refused = registry.send(
        "POST", registry.prefix + path, b"<a/>", headers={"content-type": "text/xml"}
    )
    assert (refused.status, refused.json["error_code"]) == (415, 415)
    assert registry.number("GET", "/nowhere") == 404
    assert registry.number("PATCH", "/subjects", {}) == 405


def test_a_body_that_is_too_large_is_refused_in_the_registrys_own_form(world: World) -> None:
    registry = Registry(world, limits=Limits(body_bytes_max=100))
    assert registry.number("POST", "/subjects/a/versions", {"schema": "x" * 200}) == 413


def test_refusals_have_the_texts_that_clients_know(registry: Registry) -> None:
    assert registry.message("GET", "/subjects/users/versions") == "Subject 'users' not found."
    assert registry.message("GET", "/schemas/ids/7") == "Schema 7 not found"
    assert registry.message("GET", "/schemas/ids/one") == "HTTP 404 Not Found"
    assert registry.message("GET", "/nothing") == "HTTP 404 Not Found"
    assert registry.message("PATCH", "/subjects") == "HTTP 405 Method Not Allowed"
    registry.register("users", PLAIN)
    assert registry.message("GET", "/subjects/users/versions/9") == "Version 9 not found."
    assert registry.message("POST", "/subjects/users", {"schema": WIDER}) == "Schema not found"
    assert registry.message("GET", "/subjects/users/versions/first") == (
        "The specified version 'first' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    assert registry.message("PUT", "/config", {"compatibility": "SOMETIMES"}) == (
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive"
    )
    assert registry.message("PUT", "/mode", {"mode": "SOMETIMES"}).startswith("Invalid mode.")
    assert registry.message("POST", "/subjects/new/versions", {"schema": ""}) == "Empty schema"
    assert registry.message("DELETE", "/subjects/users", permanent="true") == (
        "Subject 'users' was not deleted first before being permanently deleted"
    )
    registry.told("DELETE", "/subjects/users")
    assert registry.message("DELETE", "/subjects/users") == (
        "Subject 'users' was soft deleted.Set permanent=true to delete permanently"
    )


def test_a_client_that_says_nothing_gets_no_fields_that_it_may_not_know(
    registry: Registry,
) -> None:
    body = {"schema": PLAIN}
    made = registry.ask("POST", "/subjects/users/versions", body, headers={})
    assert made.json == {"id": 1}
    assert registry.ask("GET", "/subjects/users/versions/1", headers={}).json == {
        "subject": "users",
        "version": 1,
        "id": 1,
        "schema": PLAIN,
    }
    assert registry.ask("GET", "/schemas/ids/1", headers={}).json == {"schema": PLAIN}
    registry.register("events", "{}", schemaType="JSON")
    shown = registry.ask("GET", "/subjects/events/versions/1", headers={}).json
    assert shown["schemaType"] == "JSON"


@pytest.mark.parametrize("accepted", ["text/html", "text/html, image/png"])
def test_a_client_that_takes_no_json_is_refused(registry: Registry, accepted: str) -> None:
    answer = registry.ask("GET", "/subjects", headers={"Accept": accepted})
    assert answer.status == 406
    assert answer.json == {"error_code": 406, "message": "HTTP 406 Not Acceptable"}
    for good in ("*/*", "application/*;q=0.1", "text/html, application/json;q=0.5"):
        assert registry.ask("GET", "/subjects", headers={"Accept": good}).status == 200


def test_a_primitive_with_a_name_is_found_by_its_plain_form(registry: Registry) -> None:
    made = registry.register("words", '{"type": "string", "name": "word", "doc": "x"}')
    assert registry.told("POST", "/subjects/words", {"schema": '"string"'})["id"] == made
    assert registry.register("words", '{"type": "string"}') == made
    assert registry.register("words", '{"type": "string", "logicalType": "uuid"}') != made


def test_an_alias_stands_for_its_subject(registry: Registry) -> None:
    registry.register("users", PLAIN)
    assert registry.told("PUT", "/config/people", {"alias": "users"}) == {"alias": "users"}
    assert registry.told("GET", "/config/people")["alias"] == "users"
    assert registry.told("GET", "/subjects/people/versions/latest")["subject"] == "users"
    assert registry.told("POST", "/subjects/people", {"schema": PLAIN})["id"] == 1
    registry.register("people", WIDER)
    assert registry.told("GET", "/subjects/users/versions") == [1, 2]
    assert registry.told("GET", "/schemas/ids/1", subject="people")["subject"] == "users"
    assert "alias" not in registry.told("PUT", "/config/people", {"alias": None})
    assert registry.number("GET", "/subjects/people/versions") == 40401


def test_default_and_override_metadata_and_rules_are_added_to_new_versions(
    registry: Registry,
) -> None:
    def rule(name: str, expression: str) -> dict[str, str]:
        return {"name": name, "kind": "CONDITION", "type": "CEL", "expr": expression}

    settings = {
        "defaultMetadata": {"properties": {"owner": "nobody", "level": "1"}},
        "overrideMetadata": {"properties": {"level": "2"}},
        "defaultRuleSet": {"domainRules": [rule("a", "default"), rule("b", "default")]},
        "overrideRuleSet": {"domainRules": [rule("c", "override")]},
    }
    assert registry.told("PUT", "/config/users", settings) == settings
    registry.register(
        "users",
        PLAIN,
        metadata={"properties": {"owner": "me"}},
        ruleSet={"domainRules": [rule("b", "own"), rule("c", "own")]},
    )
    shown = registry.told("GET", "/subjects/users/versions/1")
    assert shown["metadata"] == {"properties": {"owner": "me", "level": "2"}}
    assert shown["ruleSet"] == {
        "domainRules": [rule("a", "default"), rule("b", "own"), rule("c", "override")]
    }
    assert registry.register("users", PLAIN) == 1
    assert registry.number("PUT", "/config/users", {"defaultMetadata": {"x": "y" * 300_000}}) == (
        42209
    )


def test_refusals_have_the_numbers_that_clients_know(registry: Registry) -> None:
    schema = {"schema": PLAIN}
    assert registry.number("GET", "/subjects/users/versions") == 40401
    assert registry.number("GET", "/subjects/users/versions/1") == 40401
    assert registry.number("POST", "/subjects/users", schema) == 40401
    assert registry.number("DELETE", "/subjects/users") == 40401
    assert registry.number("DELETE", "/subjects/users/versions/1") == 40401
    assert registry.number("GET", "/config/users") == 40408
    assert registry.number("GET", "/mode/users") == 40409
    assert registry.number("DELETE", "/config/users") == 40401
    assert registry.number("GET", "/schemas/ids/1") == 40403
    assert registry.number("GET", "/schemas/ids/one") == 404
    assert registry.number("GET", f"/schemas/ids/{1 << 31}") == 404
    assert registry.number("GET", "/schemas/guids/x") == 40403
    registry.register("users", PLAIN)
    assert registry.number("GET", "/subjects/users/versions/9") == 40402
    assert registry.number("GET", "/subjects/users/versions/0") == 42202
    assert registry.number("GET", "/subjects/users/versions/first") == 42202
    assert registry.number("POST", "/subjects/users", {"schema": WIDER}) == 40403
    assert registry.number("POST", "/subjects/users/versions", {"schema": BREAKING}) == 40901
    assert registry.number("POST", "/subjects/users/versions", {"schema": "{"}) == 42201
    unknown = {"schema": "x", "schemaType": "XML"}
    assert registry.number("POST", "/subjects/users/versions", unknown) == 42201
    assert registry.number("PUT", "/config", {"compatibility": "SOMETIMES"}) == 42203
    assert registry.number("PUT", "/mode", {"mode": "FORWARD"}) == 42204
    assert registry.number("PUT", "/mode", {"mode": "IMPORT"}) == 42205
    assert registry.number("PUT", "/config/users", {"aliasForDeks": "people"}) == 42205
    assert registry.number("POST", "/subjects/__GLOBAL/versions", schema) == 42208
    large = {"schema": "x" * (2 << 20)}
    assert registry.number("POST", "/subjects/users/versions", large) == 42209
    assert registry.number("DELETE", "/subjects/users", permanent="true") == 40405
    assert registry.number("DELETE", "/subjects/users/versions/1", permanent="true") == 40407
    registry.told("DELETE", "/subjects/users/versions/1")
    assert registry.number("DELETE", "/subjects/users/versions/1") == 40406
    assert registry.number("DELETE", "/subjects/users") == 40404
    assert registry.number("GET", "/subjects", offset="many") == 400


def test_what_is_deleted_is_shown_to_those_who_ask(registry: Registry) -> None:
    registry.register("users", PLAIN)
    registry.register("users", WIDER)
    registry.register("people", PLAIN)
    assert registry.told("DELETE", "/subjects/users/versions/latest") == 2
    assert registry.told("GET", "/subjects/users/versions") == [1]
    assert registry.told("GET", "/subjects/users/versions", deleted="true") == [1, 2]
    assert registry.told("GET", "/subjects/users/versions", deletedOnly="true") == [2]
    assert registry.told("GET", "/subjects/users/versions", deletedAsNegative="true") == [1, -2]
    assert registry.told("GET", "/subjects/users/versions/2", deleted="True")["deleted"] is True
    assert registry.told("DELETE", "/subjects/users") == [1]
    assert registry.told("GET", "/subjects") == ["people"]
    assert registry.told("GET", "/subjects", deleted="true") == ["people", "users"]
    assert registry.told("GET", "/subjects", deletedOnly="true") == ["users"]
    assert registry.told("GET", "/schemas/ids/1/subjects") == ["people"]
    assert registry.told("GET", "/schemas/ids/1/subjects", deleted="true") == ["people", "users"]
    assert registry.told("POST", "/subjects/users", {"schema": PLAIN}, deleted="true")["id"] == 1
    assert registry.told("DELETE", "/subjects/users", permanent="true") == [1, 2]


def test_lists_come_in_pages(registry: Registry) -> None:
    for name in ("a1", "a2", "b1"):
        registry.register(name, PLAIN)
    registry.register("a1", WIDER)
    assert registry.told("GET", "/subjects", subjectPrefix="a") == ["a1", "a2"]
    assert registry.told("GET", "/subjects", offset=1, limit=1) == ["a2"]
    assert registry.told("GET", "/subjects", offset=1, limit=-1) == ["a2", "b1"]
    found = registry.told("GET", "/schemas", subjectPrefix="a", latestOnly="true")
    assert [(one["subject"], one["version"]) for one in found] == [("a1", 2), ("a2", 1)]
    assert len(registry.told("GET", "/schemas", limit=3)) == 3


def test_references_are_kept_and_protected(registry: Registry) -> None:
    registry.register("users", PLAIN)
    references = [{"name": "User", "subject": "users", "version": 1}]
    made = registry.register("orders", ORDER, references=references)
    assert registry.told("GET", "/schemas/ids/2")["references"] == references
    assert registry.told("GET", "/subjects/users/versions/1/referencedby") == [made]
    assert registry.number("DELETE", "/subjects/users") == 42206
    assert registry.number("DELETE", "/subjects/users/versions/1") == 42206
    bad = [{"name": "User", "subject": "nobody", "version": 1}]
    assert (
        registry.number("POST", "/subjects/b/versions", {"schema": ORDER, "references": bad})
        == 42201
    )


def test_compatibility_is_told_in_detail_to_those_who_ask(registry: Registry) -> None:
    registry.register("users", PLAIN)
    path = "/compatibility/subjects/users/versions"
    for place in (path, f"{path}/latest", f"{path}/1"):
        assert registry.told("POST", place, {"schema": WIDER}) == {"is_compatible": True}
        assert registry.told("POST", place, {"schema": BREAKING}) == {"is_compatible": False}
        told = registry.told("POST", place, {"schema": BREAKING}, verbose="true")
        assert told["is_compatible"] is False
        assert "b" in told["messages"][0]
    assert registry.told("POST", path, {"schema": WIDER}, verbose="true") == {
        "is_compatible": True,
        "messages": [],
    }
    assert registry.number("POST", f"{path}/7", {"schema": WIDER}) == 40402
    assert registry.number("POST", path, {"schema": "{"}) == 42201
    assert not registry.told("POST", path, {"schema": "{"}, verbose="true")["is_compatible"]
    fresh = "/compatibility/subjects/nobody/versions"
    assert registry.told("POST", f"{fresh}/latest", {"schema": WIDER})["is_compatible"]
    assert registry.told("POST", fresh, {"schema": WIDER})["is_compatible"]


def test_settings_are_shown_changed_and_taken_away(registry: Registry) -> None:
    assert registry.told("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert registry.told("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert registry.told("GET", "/config/users", defaultToGlobal="true") == {
        "compatibilityLevel": "FULL"
    }
    body = {"compatibility": "NONE", "normalize": True, "compatibilityGroup": "major"}
    assert registry.told("PUT", "/config/users", body) == body
    assert registry.told("PUT", "/config/users", {"normalize": None}) == {
        "compatibility": "NONE",
        "compatibilityGroup": "major",
    }
    assert registry.told("DELETE", "/config/users")["compatibilityLevel"] == "NONE"
    assert registry.number("GET", "/config/users") == 40408
    assert registry.told("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert registry.told("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_modes_are_shown_changed_and_taken_away(registry: Registry) -> None:
    assert registry.told("GET", "/mode") == {"mode": "READWRITE"}
    assert registry.told("PUT", "/mode/users", {"mode": "READONLY"}) == {"mode": "READONLY"}
    schema = {"schema": PLAIN}
    assert registry.number("POST", "/subjects/users/versions", schema) == 42205
    assert registry.told("GET", "/mode/people", defaultToGlobal="true") == {"mode": "READWRITE"}
    assert registry.told("DELETE", "/mode/users") == {"mode": "READONLY"}
    assert registry.told("PUT", "/mode", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert registry.register("users", PLAIN, id=100, version=3) == 100
    assert registry.told("GET", "/subjects/users/versions") == [3]


def test_contexts_by_name_and_by_address(registry: Registry) -> None:
    registry.register(":.sales:users", PLAIN)
    assert registry.told("GET", "/contexts") == [".", ".sales"]
    assert registry.told("GET", "/subjects") == [":.sales:users"]
    assert registry.told("GET", "/contexts/.sales/subjects") == [":.sales:users"]
    assert registry.told("GET", "/contexts/.sales/subjects/users/versions/1")["id"] == 1
    assert registry.told("GET", "/contexts/.sales/schemas/ids/1")["schema"] == PLAIN
    assert registry.number("GET", "/schemas/ids/1") == 40403
    assert registry.told("GET", "/schemas/ids/1", subject=":.sales:users")["schema"] == PLAIN
    made = registry.told("POST", "/contexts/.sales/subjects/people/versions", {"schema": WIDER})
    assert made["id"] == 2
    assert registry.told("PUT", "/contexts/.sales/config", {"compatibility": "NONE"})
    assert registry.told("GET", "/config/:.sales:")["compatibilityLevel"] == "NONE"
    assert registry.told("GET", "/config")["compatibilityLevel"] == "BACKWARD"


def test_metadata_finds_versions(registry: Registry) -> None:
    registry.register("users", PLAIN, metadata={"properties": {"owner": "a"}})
    registry.register("users", WIDER, metadata={"properties": {"owner": "b"}})
    found = registry.told("GET", "/subjects/users/metadata", key="owner", value="a")
    assert found["version"] == 1
    assert registry.number("GET", "/subjects/users/metadata", key="owner", value="c") == 40403


def test_a_name_with_a_slash_is_one_name(registry: Registry) -> None:
    registry.register("a/b c", PLAIN)
    assert registry.told("GET", "/subjects") == ["a/b c"]
    assert registry.told("GET", "/subjects/a%2Fb%20c/versions") == [1]


def test_a_normalized_schema_is_found_by_its_twin(registry: Registry) -> None:
    one = '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}'
    two = '{"properties": {"b": {"type": "string"}, "a": {"type": "string"}}, "type": "object"}'
    path = "/subjects/users/versions"
    first = {"schema": one, "schemaType": "JSON"}
    second = {"schema": two, "schemaType": "JSON"}
    assert registry.told("POST", path, first, normalize="True")["id"] == 1
    assert registry.told("POST", path, second, normalize="true")["id"] == 1
    assert registry.told("POST", "/subjects/users", second, normalize="true")["version"] == 1


def test_the_server_says_what_it_is(registry: Registry) -> None:
    assert registry.told("GET", "/") == {}
    assert registry.told("GET", "/v1/metadata/id")["scope"]["clusters"]["kafka-cluster"]
    assert registry.told("GET", "/v1/metadata/version")["version"].startswith("GoQueue ")
    assert registry.told("GET", "/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]


def test_a_foreign_page_may_not_change_anything(registry: Registry) -> None:
    path = f"{registry.prefix}/config"
    answer = registry.send(
        "PUT", path, {"compatibility": "NONE"}, headers={"origin": "https://elsewhere.example"}
    )
    assert (answer.status, answer.json["error_code"]) == (403, 403)


def test_the_rest_of_the_api_speaks_as_before(world: World) -> None:
    registry = Registry(world, is_mounted=True)
    assert registry.send("GET", "/v1/topics").json == {"topics": []}
    assert registry.send("GET", "/registr").json["code"] == "unknown_route"


def test_a_topic_may_ask_for_schemas(world: World, client: Client) -> None:
    registry = Registry(world)
    settings = {"schema_validation": "value"}
    client.post("/v1/topics", {"name": "users", "settings": settings})
    registry.register("users-value", PLAIN)
    good = {"value": "AAAAAAECYQ==", "value_encoding": "base64"}
    bad = {"value": "plain"}
    answer = client.refused("POST", "/v1/topics/users/publish", bad)
    assert (answer.status, answer.json["code"]) == (422, "schema_mismatch")
    assert "zero byte" in answer.json["detail"]
    assert client.post("/v1/topics/users/publish", good)["offset"] == 0
    told = client.post("/v1/topics/users/batch", {"messages": [good, bad, good]})
    assert told["failed"] == 1
    assert [one.get("problem", {}).get("code") for one in told["results"]] == [
        None,
        "schema_mismatch",
        None,
    ]
    cut = {"value": "AAAAAAE=", "value_encoding": "base64", "delay_ms": 60_000}
    answer = client.refused("POST", "/v1/topics/users/publish", cut)
    assert "$.a" in answer.json["detail"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below),
    max_leaves=6,
)
FIELDS = ("schema", "schemaType", "references", "metadata", "ruleSet", "id", "version", "mode")
BODIES = st.dictionaries(st.sampled_from((*FIELDS, "compatibility", "normalize")), JSON_VALUES)
WORDS = ("subjects", "schemas", "ids", "versions", "config", "mode", "compatibility", "a", "1")


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.lists(st.sampled_from((*WORDS, "latest", "contexts", ".c", "%FF", "guids")), max_size=6),
    BODIES,
    st.dictionaries(st.sampled_from(["deleted", "offset", "limit", "format"]), st.text(max_size=4)),
)
@settings(max_examples=300, deadline=None)
def test_no_request_is_answered_with_a_fault_of_ours(
    method: str, words: list[str], body: dict[str, Any], query: dict[str, str]
) -> None:
    registry = SHARED
    path = "/" + "/".join(words)
    answer = registry.ask(method, path, body if method in ("POST", "PUT") else None, **query)
    assert answer.status < 500, (method, path, body, query, answer)


SHARED = Registry(World())


def test_connections_count_for_their_user(registry: Registry) -> None:
    changed = registry.world.broker.gate.quotas.alter(
        NOBODY, names={"user": ""}, limits={"connections": 2}
    )
    registry.world.wait(changed)
    wires = [registry.wire() for _ in range(3)]
    for wire in (*wires, *wires[:2]):
        if not wire.is_closed:
            wire.feed(request("GET", f"{registry.prefix}/subjects"))
    assert [[one.status for one in wire.answers] for wire in wires] == [[200] * 2, [200] * 2, [403]]
