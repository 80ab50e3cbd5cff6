"""Records as typed columns, by the schemas of a registry.

Avro, JSON Schema and Protobuf values, framed as the serializers of Confluent's registry frame them,
become columns of Arrow. A column has one schema, that of the reader, whatever its records were
written with. Nothing here reads topics or knows Spark's plans: batches of bytes come in, typed
batches go out.
"""
