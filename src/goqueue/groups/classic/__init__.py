"""The classic group protocol: members join, the leader assigns, all sync.

`membership` has the calls of members, `rebalance` the phases of a rebalance, `roster` the members
and the protocols they share, and `embedded_protocol` the subscriptions and assignments that
consumers exchange as opaque bytes. The group never computes an assignment here; that is the
leader's task.
"""

from goqueue.groups.classic.membership import ClassicMembership

__all__ = ["ClassicMembership"]
