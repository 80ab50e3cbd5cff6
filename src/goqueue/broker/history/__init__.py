"""The recent past of a node, and what its topics and groups look like now.

A node keeps the rates of the last hours in memory, so that people see what happened without a
monitoring system. It is bounded, lost at a restart, and no replacement for one. Each node has what
it did itself: the gate adds up the nodes.
"""
