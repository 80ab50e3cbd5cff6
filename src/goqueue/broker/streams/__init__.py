"""Stream groups: coordinators, members and committed offsets, in `__consumer_offsets`.

`goqueue.groups` holds the state machines; this room loads, drives and persists them.
"""
