"""The metadata quorum: Raft, the active controller, and this node's cluster membership.

A single node has the same metadata log in a local file (`metadata`). This package only drives the
state machines of `goqueue.cluster` and decides nothing itself. It opens no partition.
"""
