"""Records as typed columns, by the schemas of a registry.

Avro, JSON Schema and Protobuf values, framed by the serializers of Confluent's registry, become
Arrow columns. A column has one schema, that of the reader, whatever schemas its records were
written with. This package reads no topics and has no access to Spark's plans: it converts batches
of bytes to typed batches.
"""
