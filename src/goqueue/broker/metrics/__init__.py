"""The metrics of a node: what it has done, counted as it happens, and its state, read by scrapes.

Offers an observer that counts messages, collectors of gauges, and scrapes in slices. Counters say
what this node did and never decrease; gauges are exported only by the leader of the partition or
the owner of the group. So sums and maxima over nodes are right.
"""
