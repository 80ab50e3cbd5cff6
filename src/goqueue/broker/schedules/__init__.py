"""Schedules: messages that wait in `__scheduled` and appear in their topics when they are due.

It stores, releases, cancels, reschedules and lists messages, on a single node and in a cluster. A
message is released exactly once and never early. How a producer's batch is split into immediate and
delayed records is decided in `publishing`.
"""
