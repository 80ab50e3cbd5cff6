"""The consumer group protocol (KIP-848): the coordinator assigns, members reconcile by heartbeat.

`membership` has the calls of members, `rebalance` the epochs, targets and reconciliation, `member`
one member, `mixed` classic members in such a group, and `migration` the upgrade from and the
downgrade to the classic protocol. No member ever owns a partition that another has not released.
"""

from goqueue.groups.consumer.mixed import MixedMembership

__all__ = ["MixedMembership"]
