"""Writes docs/goqueue.postman_collection.json from the OpenAPI document of the HTTP API."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from goqueue.wire.http.openapi import document
from goqueue.wire.http.operations import OPERATIONS

SCHEMA = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
BASE_URL = "http://127.0.0.1:8080"


def collection() -> str:
    """The collection as text: one folder per area, one request per operation."""
    described = document(OPERATIONS)
    folders: dict[str, list[dict[str, Any]]] = {tag["name"]: [] for tag in described["tags"]}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            folders[operation["tags"][0]].append(_request(path, method.upper(), operation))
    made = {
        "info": {
            "_postman_id": str(uuid5(NAMESPACE_URL, "goqueue/http/v1")),
            "name": "GoQueue",
            "description": described["info"]["description"],
            "schema": SCHEMA,
        },
        "item": [{"name": name, "item": items} for name, items in folders.items() if items],
        "variable": [{"key": "base", "value": BASE_URL}],
    }
    return json.dumps(made, indent=2) + "\n"


def _request(path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    parameters = operation["parameters"]
    request: dict[str, Any] = {
        "method": method,
        "description": operation["summary"],
        "header": [],
        "url": _url(path, parameters),
    }
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"].get("example", {})
        request["header"].append({"key": "Content-Type", "value": "application/json"})
        request["body"] = {"mode": "raw", "raw": json.dumps(example, indent=2)}
    return {"name": operation["operationId"], "request": request}


def _url(path: str, parameters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    named = re.sub(r"{(\w+)}", r":\1", path)
    url: dict[str, Any] = {
        "raw": "{{base}}" + named,
        "host": ["{{base}}"],
        "path": named.strip("/").split("/"),
    }
    variables = [one for one in parameters if one["in"] == "path"]
    queries = [one for one in parameters if one["in"] == "query"]
    if variables:
        url["variable"] = [{"key": one["name"], "value": str(one["example"])} for one in variables]
    if queries:
        url["query"] = [_query(one) for one in queries]
    return url


def _query(parameter: Mapping[str, Any]) -> dict[str, Any]:
    default = parameter["schema"].get("default", "")
    return {
        "key": parameter["name"],
        "value": json.dumps(default) if isinstance(default, bool) else str(default),
        "description": parameter.get("description", ""),
        "disabled": not parameter["required"],
    }


if __name__ == "__main__":
    sys.stdout.write(collection())
