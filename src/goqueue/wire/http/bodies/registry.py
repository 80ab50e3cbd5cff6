"""Request bodies of schema registry clients, and the numeric error codes they expect.

The names are those of the Confluent Schema Registry API. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from goqueue.model.errors import SchemaRefusal
from goqueue.wire.carrier.bodies import Body
from goqueue.wire.http.fields import INT32_MAX

REFERENCES_MAX = 1000

# The first three digits are the HTTP status.
NUMBERS: dict[SchemaRefusal, int] = {
    SchemaRefusal.UNKNOWN_SUBJECT: 40401,
    SchemaRefusal.UNKNOWN_VERSION: 40402,
    SchemaRefusal.UNKNOWN_SCHEMA: 40403,
    SchemaRefusal.SUBJECT_DELETED: 40404,
    SchemaRefusal.SUBJECT_NOT_DELETED: 40405,
    SchemaRefusal.VERSION_DELETED: 40406,
    SchemaRefusal.VERSION_NOT_DELETED: 40407,
    SchemaRefusal.NO_CONFIG: 40408,
    SchemaRefusal.NO_MODE: 40409,
    SchemaRefusal.INCOMPATIBLE: 40901,
    SchemaRefusal.INVALID_VERSION: 42202,
    SchemaRefusal.INVALID_LEVEL: 42203,
    SchemaRefusal.INVALID_MODE: 42204,
    SchemaRefusal.NOT_PERMITTED: 42205,
    SchemaRefusal.REFERENCED: 42206,
    SchemaRefusal.INVALID_SUBJECT: 42208,
    SchemaRefusal.TOO_LARGE: 42209,
}
INVALID_SCHEMA = 42201
STORE_FAILED = 50001
TIMED_OUT = 50002
DENIED = 40301

Number = Annotated[int, Meta(ge=-1, le=INT32_MAX)]
Name = Annotated[str, Meta(max_length=1000)]


class OpenBody(Body, kw_only=True, forbid_unknown_fields=False):
    """A body that ignores unknown fields, which newer clients may send."""


class ReferenceBody(OpenBody, kw_only=True):
    """A schema that another one refers to; version -1 is the latest."""

    name: Name
    subject: Name
    version: Number


class SchemaBody(OpenBody, kw_only=True):
    """A schema to be registered, looked up or compared."""

    schema: str | None = None
    schemaType: str | None = None
    references: Annotated[list[ReferenceBody], Meta(max_length=REFERENCES_MAX)] | None = None
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None
    version: Number | None = None
    id: Number | None = None


class ConfigBody(OpenBody, kw_only=True):
    """Settings: missing ones are kept, those that are null are removed."""

    compatibility: str | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    compatibilityGroup: Name | UnsetType | None = UNSET
    alias: Name | UnsetType | None = UNSET
    defaultMetadata: dict[str, Any] | UnsetType | None = UNSET
    overrideMetadata: dict[str, Any] | UnsetType | None = UNSET
    defaultRuleSet: dict[str, Any] | UnsetType | None = UNSET
    overrideRuleSet: dict[str, Any] | UnsetType | None = UNSET
    # Features of other registries are refused rather than ignored.
    aliasForDeks: Any = None
    compatibilityPolicy: Any = None
    validateFields: Any = None
    validateNewSchemas: Any = None
    validateRules: Any = None


class ModeBody(OpenBody, kw_only=True):
    mode: str
