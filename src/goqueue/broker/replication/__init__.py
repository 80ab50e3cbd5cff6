"""The replicas this node keeps: leading, following, integrity, and writing to whoever leads.

It offers `Leaders`, which finds the leader of a partition, here or on another node. It elects
nobody: leaders and in-sync replicas are decided by the controller.
"""
