"""The metadata quorum: Raft, the active controller, and this node's membership of its cluster.

A single node has the same metadata log in a file of its own (`metadata`). The room decides nothing
itself: `goqueue.cluster` holds the state machines, and this room runs them. It opens no partition.
"""
