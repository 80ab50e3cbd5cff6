"""The consumer group protocol (KIP-848): the coordinator assigns, members reconcile by heartbeat.

`membership` has the calls of members, `classic_members` those of classic members in such a group,
`reconciler` the epochs, the target assignment and the reconciliation, `member` one member, and
`migration` the upgrade from and the downgrade to the classic protocol. A partition never has two
owners: a member gets it only after the previous owner has released it.
"""

from goqueue.groups.consumer.membership import ConsumerMembership

__all__ = ["ConsumerMembership"]
