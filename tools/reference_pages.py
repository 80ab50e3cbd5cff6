"""Generates docs/reference/ from the code: commands, HTTP and gRPC API, errors, headers, Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from goqueue.model import attributes, dead_letters
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import STATUSES
from goqueue.wire.grpc.statuses import code_of
from goqueue.wire.http.openapi import document
from goqueue.wire.http.operations import OPERATIONS
from goqueue.wire.kafka import errors as kafka_errors
from goqueue.wire.kafka.handlers import HANDLERS
from goqueue.wire.kafka.messages import API_BY_KEY
from goqueue.wire.sqs.errors import MEANINGS
from tools import grpc_page
from tools.command_tree import Command, Parameter, commands, shared_parameters

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
GENERATED = "Generated from the code by `make docs-reference`; edit the code instead.\n"


def cli() -> str:
    """All commands with their arguments and options."""
    every = list(commands())
    lines = [
        "# Command line\n",
        GENERATED,
        "Every command and option of `goqueue`. `goqueue COMMAND --help` prints the same. A "
        "command that talks to a cluster also takes the "
        "[options of the connection](#options-of-the-connection).\n",
        '`eval "$(goqueue completion bash)"` completes commands, topics, groups and contexts in '
        "bash; zsh and fish have their own scripts. In a clone, `make man` writes manual pages; "
        "`install -D -m 0644 -t ~/.local/share/man/man1 build/man/*.1` lets `man goqueue-topic` "
        "find them. The wheel does not have them, because pip installs no manual pages where "
        "`man` looks.\n",
        "| command | what it does |",
        "|---|---|",
        *(
            f"| [`{one.name}`](#{one.name.replace(' ', '-')}) | {_cell(one.summary)} |"
            for one in every
            if len(one.path) == 1
        ),
        "\n## Options of the connection\n",
        *_parameters(shared_parameters()),
    ]
    for command in every[1:]:
        lines += _command(command)
    return "\n".join(lines) + "\n"


def _command(command: Command) -> Iterator[str]:
    yield f"\n{'#' * (len(command.path) + 1)} {command.name}\n"
    yield command.help + "\n"
    if not command.is_group:
        yield f"`{command.usage}`\n"
        yield from _parameters(command.own)


def _parameters(parameters: Sequence[Parameter]) -> Iterator[str]:
    if not parameters:
        return
    yield "| argument or option | meaning |"
    yield "|---|---|"
    for one in parameters:
        notes = [one.help]
        if one.is_required and not one.is_argument:
            notes.append("Required.")
        if one.default:
            notes.append(f"Default `{_cell(one.default)}`.")
        yield f"| `{_cell(one.typed)}` | {_cell(' '.join(filter(None, notes)))} |"


def http_api() -> str:
    """Every request of the HTTP API with its parameters, body and refusals."""
    described = document(OPERATIONS)
    schemas = described["components"]["schemas"]
    lines = [
        "# Requests of the HTTP API\n",
        GENERATED,
        "Every request of the [HTTP API](../http.md), by area. A node describes the same as "
        "OpenAPI 3.1 at `/openapi.json`, with all fields of the responses.\n",
    ]
    for tag in described["tags"]:
        requests = [
            (method.upper(), path, operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
            if operation["tags"][0] == tag["name"]
        ]
        if requests:
            lines += [f"\n## {tag['name'].capitalize()}\n", tag["description"]]
        for method, path, operation in requests:
            lines += _request(method, path, operation, schemas)
    return "\n".join(lines) + "\n"


def _request(
    method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]
) -> Iterator[str]:
    yield f"\n### {method} {path}\n"
    yield operation["summary"]
    if operation.get("description"):
        yield f"\n{operation['description']}"
    rows = [
        (one["name"], one["in"], _type(one.get("schema", {})), one.get("description", ""))
        for one in operation["parameters"]
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "schema" in body:
        shape = _resolved(body["schema"], schemas)
        required = shape.get("required", [])
        rows += [
            (name, "body" + (", required" if name in required else ""), _type(field), _about(field))
            for name, field in shape.get("properties", {}).items()
        ]
    if rows:
        yield "\n| field | in | type | meaning |"
        yield "|---|---|---|---|"
        for name, where, kind, meaning in rows:
            yield f"| `{name}` | {where} | {_cell(kind)} | {_cell(meaning)} |"
    refusals = [
        f"{status} {', '.join(codes)}"
        for status, response in operation["responses"].items()
        if not status.startswith("2")
        and (codes := re.findall(r"`[a-z_]+`", response["description"]))
    ]
    if refusals:
        yield f"\nRefusals: {'; '.join(refusals)}."


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas[name] if name else schema


def _about(field: dict[str, Any]) -> str:
    default = field.get("default")
    text = str(field.get("description", ""))
    return text if default in (None, "", [], {}) else f"{text} Default `{default}`.".strip()


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "from"), ("maximum", "to"))
        if key in schema
    ]
    return " ".join([kind, *bounds])


def errors() -> str:
    """Every error, with what it becomes in each protocol."""
    known = {kind for kind in GoQueueError.kinds() if kind in STATUSES}
    kinds = sorted(known, key=lambda kind: kind.code)
    lines = [
        "# Errors\n",
        GENERATED,
        "Every error has a `code`, which does not change, and a text for people. Over HTTP the "
        "code is in the problem details, over gRPC it is the reason in `ErrorInfo`, the Python "
        "client raises the class, and Kafka and SQS "
        "clients get what their protocol has for it. *Retryable* means that the same request may "
        "succeed later. Without an entry, SQS clients get an error that fits the status.\n",
        "| code | class | retryable | HTTP | gRPC | Kafka | SQS |",
        "|---|---|---|---|---|---|---|",
    ]
    codes = kafka_errors.CODES
    for kind in kinds:
        kafka = f"`{codes[kind].name}` ({codes[kind].value})" if kind in codes else ""
        meaning = MEANINGS.get(kind)
        sqs = f"`{meaning.name}`" if meaning is not None else ""
        retryable = "yes" if kind.retryable else "no"
        # The status depends on the kind alone, so an error without its fields has it too.
        status = f"`{code_of(kind.__new__(kind)).name}`"
        cells = (
            *(f"`{kind.code}`", f"`{kind.__name__}`", retryable),
            *(STATUSES[kind], status, kafka, sqs),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def headers() -> str:
    """The headers of records that GoQueue reads or writes."""
    names = ", ".join(f"`{name}`" for name in attributes.PRIORITY_NAMES)
    asked = [
        (attributes.PRIORITY_HEADER, f"priority in queue groups: {names}; by default `normal`"),
        (attributes.DELAY_HEADER, "milliseconds until the message is delivered"),
        (attributes.DELIVER_AT_HEADER, "time of delivery: milliseconds since 1970, or RFC 3339"),
        (attributes.TTL_HEADER, "milliseconds after which queue groups no longer deliver it"),
    ]
    written = [
        (attributes.SCHEDULE_ID_HEADER, "id of the schedule that this message was"),
        (dead_letters.TOPIC_HEADER, "of a dead letter: the topic that it was in"),
        (dead_letters.PARTITION_HEADER, "its partition there"),
        (dead_letters.OFFSET_HEADER, "its offset there"),
        (dead_letters.GROUP_HEADER, "the group that gave it up"),
        (dead_letters.REASON_HEADER, "why: `deliveries_exhausted`, or the reason of a reject"),
        (dead_letters.ATTEMPTS_HEADER, "how often it was delivered"),
        (dead_letters.TIME_HEADER, "when it became a dead letter, in milliseconds since 1970"),
        *(
            (name, f"the same as `{ours}`, if the group has `error_headers`")
            for name, ours in _errors_headers()
        ),
        (
            dead_letters.REDRIVEN_HEADER,
            "the dead letter that it was: topic/partition/offset/redrive",
        ),
        (attributes.MESSAGE_ID_HEADER, "`MessageId` of SQS"),
        (attributes.DEDUPLICATION_HEADER, "`MessageDeduplicationId` of SQS"),
        (attributes.DEDUPLICATED_AT_HEADER, "when SQS received it, for the deduplication"),
    ]
    lines = ["# Headers of messages\n", GENERATED]
    lines += ["## What a producer may ask for\n", "| header | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in asked]
    lines += ["\n## What the broker writes\n", "| header | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in written]
    lines += [
        "\nWith the topic setting `goqueue_attributes_enable=false` the headers of the first table "
        "are stored and not interpreted. `traceparent` and `AWSTraceHeader` are read for "
        "[journeys](../journeys.md)."
    ]
    return "\n".join(lines) + "\n"


def _errors_headers() -> Iterator[tuple[str, str]]:
    """The headers that clients of share groups expect, and ours that say the same."""
    origin = dead_letters.Origin("1", 2, 3, "4", "5", 6, 7)
    ours = {value: name for name, value in dead_letters.write_origin(origin)}
    for name, value in dead_letters.write_errors(origin):
        yield name, ours[value]


def grpc_api() -> str:
    """Every service, message and enum of the gRPC API."""
    return grpc_page.page(GENERATED)


def kafka_api() -> str:
    """The requests of the Kafka protocol that a node answers, with their versions."""
    lines = [
        "# Versions of the Kafka protocol\n",
        GENERATED,
        "The requests that a node answers, as it announces them in ApiVersions. "
        "[kafka.md](../kafka.md) says what differs from Apache Kafka.\n",
        "| key | request | versions |",
        "|---|---|---|",
    ]
    served = sorted(key for key in HANDLERS if key in API_BY_KEY)
    for key in served:
        api = API_BY_KEY[key]
        last = api.version_stable_max
        versions = str(last) if last == api.version_min else f"{api.version_min} to {last}"
        lines.append(f"| {key} | {api.name} | {versions} |")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "http-api.md": http_api,
    "errors.md": errors,
    "headers.md": headers,
    "grpc-api.md": grpc_api,
    "kafka-api.md": kafka_api,
}


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def main(names: Iterable[str] = PAGES) -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        (FOLDER / name).write_text(PAGES[name](), encoding="utf-8")


if __name__ == "__main__":
    main()
