"""The replicas on this node: leading, following, integrity, and writes to partition leaders.

It offers `Leaders`, which finds the leader of a partition, here or on another node. It elects no
leaders: the controller decides leaders and in-sync replicas.
"""
