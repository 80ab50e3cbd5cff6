"""Metrics in the format of OpenTelemetry (OTLP protobuf): written for export, read from clients.

Both know the few fields that they need, by their numbers in `metrics.proto`, which never change.
The official classes would cost 14 MB of memory and are the oracle of the tests.
"""
