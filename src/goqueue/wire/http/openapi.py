"""Generates the OpenAPI 3.1 document from the table of operations and their structs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, get_type_hints

import msgspec

from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import STATUSES, HttpError, Problem
from goqueue.wire.carrier.routing import Operation
from goqueue.wire.http import fields
from goqueue.wire.http.bodies.acls import RoleName
from goqueue.wire.http.bodies.backups import TopicIdText
from goqueue.wire.http.bodies.reports import Name as ReportName
from goqueue.wire.http.bodies.tenants import TenantName
from goqueue.wire.http.bodies.users import UserName

API_VERSION = "v1"
REF = "#/components/schemas/{name}"

PATH_KINDS: dict[str, Any] = {
    "topic": fields.TopicName,
    "topic_id": TopicIdText,
    "group": fields.GroupName,
    "partition": fields.PartitionNumber,
    "offset": fields.Offset,
    "schedule_id": fields.ScheduleId,
    "message_id": fields.MessageId,
    "redrive_id": fields.RedriveId,
    "transaction_id": fields.TransactionId,
    "query": fields.QueryId,
    "report": ReportName,
    "epoch": fields.Epoch,
    "node": fields.NodeId,
    "user": UserName,
    "role": RoleName,
    "tenant": TenantName,
    "key_id": fields.KeyId,
}
_EXAMPLES: dict[str, object] = {
    "report": "daily",
    "topic": "orders",
    "topic_id": "0123456789abcdef0123456789abcdef",
    "group": "billing",
    "partition": 0,
    "offset": 0,
    "node": 1,
    "schedule_id": "AAAAAAAAAAA",
    "message_id": "orders:0:0",
    "redrive_id": "0123456789abcdef",
    "transaction_id": "AQAAAAAAAAAAAAAAAAAAAAAAAA",
    "query": "totals",
    "epoch": 0,
    "user": "alice",
    "role": "operators",
    "tenant": "acme",
    "key_id": "abcdefghijklmnop",
}
_AREAS = {
    "topics": "Topics, their partitions and their settings.",
    "messages": "Publishing and reading. Reading does not consume messages.",
    "journeys": "What happened to messages: when, where, to whom, and how they stand.",
    "groups": "Groups of both kinds.",
    "stream groups": "Members divide the partitions of topics and commit offsets.",
    "queue groups": "Messages are received, and delivered again unless they are acknowledged.",
    "dead letters": "Messages that could not be processed, and their redrive.",
    "schedules": "Messages with a delivery time in the future.",
    "transactions": "Messages, offsets and acknowledgements that take effect atomically.",
    "queries": "Streaming queries: prepared transactions, committed as epochs exactly once.",
    "users": "Users, their passwords and their keys.",
    "quotas": "How much users, client ids, addresses and tenants may use.",
    "acls": "Access control lists and roles: who may do what.",
    "tenants": "Name spaces with users of their own.",
    "audit": "The audit log: who did what to what, from where, allowed or denied.",
    "backups": "What a backup of the cluster needs. It returns everything, credentials included.",
    "overviews": "The recent past, and what a caller may do.",
    "cluster": "The nodes of the cluster, and the placement of partitions.",
    "node": "The node itself.",
}
_SECURITY_SCHEMES = {
    "password": {"type": "http", "scheme": "basic", "description": "A user and its password."},
    "token": {"type": "http", "scheme": "bearer", "description": "An API key or a token."},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_DESCRIPTION = """\
All operations of GoQueue as JSON over HTTP.

Unknown fields are refused. Errors are problem details (RFC 9457) with a stable `code` and a
sentence that says what to do. Times are milliseconds since 1970; keys, values and headers are
text, or base64 if the encoding field beside them says so. The value of a message to publish may
also be JSON as it is.
"""


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole document, as plain values."""
    kinds = _kinds(operations)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for one in components.values():
        _say_alternatives(one)
    by_kind = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = paths.setdefault(operation.path, {})
        path[operation.method.lower()] = _operation(operation, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GoQueue",
            "version": version("goqueue"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _AREAS.items()],
        "paths": paths,
        # The first, empty one: listeners without `sasl_` need no credentials.
        "security": [{}, *({name: []} for name in _SECURITY_SCHEMES)],
        "components": {
            "schemas": {name: components[name] for name in sorted(components)},
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _say_alternatives(component: dict[str, Any]) -> None:
    """A published message has one of two fields, which the types of its fields cannot say."""
    if "key_json" in component.get("properties", {}):
        component["oneOf"] = [{"required": ["value"]}, {"required": ["json"]}]
        component["not"] = {"required": ["key", "key_json"]}


def _kinds(operations: Sequence[Operation]) -> list[Any]:
    kinds: list[Any] = [Problem]
    for one in operations:
        kinds += [one.request] if one.has_body else []
        kinds += [one.answer] if _is_json(one.answer) else []
        kinds += one.other_answers.values()
    return list({id(kind): kind for kind in kinds}.values())


def _is_json(answer: Any) -> bool:
    return answer not in (None, str, bytes)


def _operation(operation: Operation, by_kind: dict[int, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.area],
        "parameters": [_path_parameter(name) for name in operation.parameters],
        "responses": _responses(operation, by_kind),
    }
    if operation.has_body:
        media: dict[str, Any] = {"schema": by_kind[id(operation.request)]}
        if operation.example is not None:
            media["example"] = operation.example
        described["requestBody"] = {
            "required": _has_required(operation.request),
            "content": {"application/json": media},
        }
    else:
        described["parameters"] += _query_parameters(operation.request)
    if operation.is_stream:
        described["parameters"].append(_LAST_EVENT_ID)
    return described


_LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id of the last event that the client received; sent by browsers.",
    "schema": {"type": "string", "maxLength": 32_000},
}


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": msgspec.json.schema(PATH_KINDS[name]),
        "example": _EXAMPLES[name],
    }


def _query_parameters(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    parameters = []
    for one in msgspec.structs.fields(kind):
        schema = _without_null(msgspec.json.schema(hints[one.name]))
        if one.default not in (msgspec.NODEFAULT, None):
            schema["default"] = one.default
        parameter = {
            "name": one.encode_name,
            "in": "query",
            "required": one.required,
            "schema": schema,
        }
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        parameters.append(parameter)
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null, because a query omits a field instead."""
    choices = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    if len(choices) != 1:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**choices[0], **rest}


def _has_required(kind: type[msgspec.Struct]) -> bool:
    return any(one.required for one in msgspec.structs.fields(kind))


def _responses(operation: Operation, by_kind: dict[int, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {str(operation.status): _success(operation, by_kind)}
    for status, kind in operation.other_answers.items():
        responses[str(status)] = {
            "description": "See the body.",
            "content": {"application/json": {"schema": by_kind[id(kind)]}},
        }
    codes: dict[int, list[type[GoQueueError]]] = {}
    for error in operation.all_errors:
        codes.setdefault(_status(error), []).append(error)
    for status, refusals in sorted(codes.items()):
        names = ", ".join(f"`{one.code}`" for one in refusals)
        responses.setdefault(
            str(status),
            {
                "description": f"Refused: {names}.",
                "content": {"application/problem+json": {"schema": by_kind[id(Problem)]}},
            },
        )
    return responses


def _success(operation: Operation, by_kind: dict[int, Any]) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": "Done."}
    content: dict[str, Any]
    if operation.is_stream:
        content = {"text/event-stream": {}}  # whose events the description of the operation names
    elif operation.answer is bytes:
        kinds = operation.media_types or ("text/html",)
        content = {kind: {"schema": {"type": "string"}} for kind in kinds}
    else:
        content = {"application/json": {"schema": by_kind[id(operation.answer)]}}
    return {"description": "Done.", "content": content}


def _status(error: type[GoQueueError]) -> int:
    return error.status if issubclass(error, HttpError) else STATUSES[error]
