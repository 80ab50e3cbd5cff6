"""Avro schemas, by the Avro specification 1.12: parsing, schema resolution and validation.

A schema is parsed into a graph of types (`types`), compared with another (`compatibility`), printed
in a canonical form (`printer`) and compiled into a validator of payloads (`validation`). Payloads
are checked without decoding them into values. Every recursion is bounded, because the schemas come
from clients.
"""

from goqueue.schemas.formats.avro.schema import AvroSchema, parse

__all__ = ["AvroSchema", "parse"]
