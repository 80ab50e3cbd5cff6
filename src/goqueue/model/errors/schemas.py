"""Schemas, the registry, and records that do not conform to their schema."""

from __future__ import annotations

from enum import StrEnum

from goqueue.model.errors.base import GoQueueError, RecordFaults


class InvalidSchema(GoQueueError):
    """A text that is not a schema of its kind, or exceeds the limits of the registry."""

    code = "invalid_schema"


class SchemaRefusal(StrEnum):
    """Why the registry refuses; its clients identify each reason by a number."""

    UNKNOWN_SUBJECT = "unknown_subject"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_SCHEMA = "unknown_schema"
    SUBJECT_DELETED = "subject_deleted"
    SUBJECT_NOT_DELETED = "subject_not_deleted"
    VERSION_DELETED = "version_deleted"
    VERSION_NOT_DELETED = "version_not_deleted"
    NO_CONFIG = "no_config"
    NO_MODE = "no_mode"
    INCOMPATIBLE = "incompatible"
    INVALID_VERSION = "invalid_version"
    INVALID_LEVEL = "invalid_level"
    INVALID_MODE = "invalid_mode"
    NOT_PERMITTED = "not_permitted"
    REFERENCED = "referenced"
    INVALID_SUBJECT = "invalid_subject"
    TOO_LARGE = "too_large"


class SchemaRefused(GoQueueError):
    """A request to the registry for something that does not exist or that its rules forbid."""

    code = "schema_refused"

    def __init__(self, reason: SchemaRefusal, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class SchemaMismatch(RecordFaults, GoQueueError):
    """Records that do not conform to the schema that their topic requires, by position."""

    code = "schema_mismatch"

    def __init__(self, faults: dict[int, str]) -> None:
        index, text = next(iter(faults.items()))
        more = "" if len(faults) == 1 else f" ({len(faults) - 1} more records are refused too)"
        super().__init__(f"Record {index}: {text}{more}" if index or more else text, faults)
