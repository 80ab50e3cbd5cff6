"""Protobuf schemas (proto2, proto3, edition 2023): parsing, compatibility rules and validation.

A .proto text is parsed into a file descriptor (`tokens`, `parser`, `options`), linked with its
imports (`descriptors`, `well_known`), compared (`compatibility`), printed in a canonical form
(`printer`) and used to check payloads (`validation`). It compiles no code, and never fetches an
import: the registry passes in what a schema refers to.
"""

from goqueue.schemas.formats.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]
