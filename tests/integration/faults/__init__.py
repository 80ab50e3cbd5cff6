"""A cluster of real nodes on machines whose networks, disks and clocks are ours to break.

Each node has a network namespace of its own, joined by a bridge to the others and to the clients,
so that nodes can be cut off from each other while clients still reach them.
"""
