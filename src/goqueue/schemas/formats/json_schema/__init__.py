"""JSON Schema, drafts 4 to 2020-12: parsing, Confluent's compatibility rules and validation.

The library jsonschema-rs validates payloads. This package does what it does not: it resolves `$ref`
without the network (`references`), bounds the work that a schema can cause (`costs`) and decides
which changes keep older data readable (`compatibility`, with `keywords` and `merging`).
"""

from goqueue.schemas.formats.json_schema.schema import JsonSchema, parse

__all__ = ["JsonSchema", "parse"]
