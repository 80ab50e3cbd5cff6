"""Schedules: messages that wait in `__scheduled` and appear in their topics when they are due.

It offers storing, releasing, cancelling, moving and listing, for a single node and a cluster. A
message is released exactly once and never early. What a batch of a producer is split into is
decided in `publishing`.
"""
