"""Generates the Kafka codecs from Kafka's own message definitions.

    python -m tools.kafka_codegen --jar kafka-clients-X.Y.Z.jar

The definitions are the JSON files that every `kafka-clients` jar carries in `common/message`.
`definitions` reads them, `overrides` widens them for old clients, `layout` says what a struct looks
like in one version, and `emit` writes Python. The output is a function of the jar, the list of
APIs and the version of `ruff` that formats it; it is never edited by hand.
"""
