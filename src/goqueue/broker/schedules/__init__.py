"""Schedules: messages that wait in `__scheduled` and appear in their topics when they are due.

It stores, releases, cancels, reschedules and lists messages, on a single node and in a cluster. A
message is released exactly once and never early. In which order the immediate and the delayed
records of a producer's batch are stored is decided in `publishing`.
"""
