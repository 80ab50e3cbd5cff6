"""The routes of the schema registry, served by its own listener and under `/registry`."""

from __future__ import annotations

from goqueue.wire.carrier.routing import Handler, Operation
from goqueue.wire.http.bodies import registry as bodies
from goqueue.wire.http.handlers.registry import settings, subjects
from goqueue.wire.http.registry_dialect import RegistryDialect

REGISTRY_PREFIX = "/registry"

_VERSIONS = "/subjects/{subject}/versions"
_VERSION = "/subjects/{subject}/versions/{version}"
_COMPATIBILITY = "/compatibility/subjects/{subject}/versions"


def _read(path: str, handler: Handler, summary: str) -> Operation:
    return Operation(_name(handler), "GET", path, handler, summary, area="registry")


def _delete(path: str, handler: Handler, summary: str) -> Operation:
    return Operation(_name(handler), "DELETE", path, handler, summary, area="registry")


def _send(
    method: str, path: str, handler: Handler, summary: str, body: type[bodies.OpenBody]
) -> Operation:
    return Operation(_name(handler), method, path, handler, summary, area="registry", request=body)


def _name(handler: Handler) -> str:
    return str(getattr(handler, "__name__", handler))


_SUBJECTS = (
    _read("/subjects", subjects.list_subjects, "List subjects."),
    _send(
        "POST",
        "/subjects/{subject}",
        subjects.lookup,
        "Find the version of a schema.",
        bodies.SchemaBody,
    ),
    _delete("/subjects/{subject}", subjects.delete_subject, "Delete all versions."),
    _read("/subjects/{subject}/metadata", subjects.latest_with_metadata, "Find by metadata."),
    _read(_VERSIONS, subjects.list_versions, "List versions."),
    _send("POST", _VERSIONS, subjects.register, "Register a schema.", bodies.SchemaBody),
    _read(_VERSION, subjects.show_version, "Show a version."),
    _delete(_VERSION, subjects.delete_version, "Delete a version."),
    _read(f"{_VERSION}/schema", subjects.show_version_text, "Show only its text."),
    _read(f"{_VERSION}/referencedby", subjects.referenced_by, "List ids that refer to it."),
)
_SCHEMAS = (
    _read("/schemas", subjects.list_schemas, "List versions of all subjects."),
    _read("/schemas/types", subjects.list_kinds, "List the types of schemas."),
    _read("/schemas/ids/{id}", subjects.show_schema, "Show the schema of an id."),
    _read("/schemas/ids/{id}/schema", subjects.show_schema_text, "Show only its text."),
    _read("/schemas/ids/{id}/subjects", subjects.schema_subjects, "List its subjects."),
    _read(
        "/schemas/ids/{id}/versions", subjects.schema_versions, "List its subjects and versions."
    ),
    _read("/schemas/guids/{guid}", subjects.show_guid, "Show the schema of a guid."),
    _read("/schemas/guids/{guid}/ids", subjects.guid_ids, "List the ids of a guid."),
)
_CHECKS = (
    _send("POST", _COMPATIBILITY, subjects.compare, "Check compatibility as registration would.",
          bodies.SchemaBody),
    _send("POST", f"{_COMPATIBILITY}/{{version}}", subjects.compare_with_version,
          "Check compatibility with one version.", bodies.SchemaBody),
)  # fmt: skip
_SETTINGS = tuple(
    operation
    for path in ("", "/{subject}")
    for operation in (
        _read(f"/config{path}", settings.show_config, "Show settings."),
        _send(
            "PUT",
            f"/config{path}",
            settings.set_config,
            "Change settings.",
            bodies.ConfigBody,
        ),
        _delete(f"/config{path}", settings.delete_config, "Remove settings."),
        _read(f"/mode{path}", settings.show_mode, "Show the mode."),
        _send("PUT", f"/mode{path}", settings.set_mode, "Change the mode.", bodies.ModeBody),
        _delete(f"/mode{path}", settings.delete_mode, "Remove the mode."),
    )
)
_SERVER = (
    _read("/", settings.show_root, "Confirm that the registry is available."),
    _read("/contexts", settings.list_contexts, "List contexts."),
    _read("/v1/metadata/id", settings.show_cluster, "Show the cluster."),
    _read("/v1/metadata/version", settings.show_server_version, "Show the version."),
)

REGISTRY = (*_SUBJECTS, *_SCHEMAS, *_CHECKS, *_SETTINGS, *_SERVER)


def registry_dialect(prefix: str = "") -> RegistryDialect:
    return RegistryDialect(REGISTRY, prefix)
