"""Quotas: how much clients may use of the cluster, and what they have used.

- `meters.py`: the limits of one client, which paths of messages charge per batch.
- `quotas.py`: the quotas in effect on this node: meters, and admission of connections.
- `seats.py`: the place of a connection among those of its user.
- `counting.py`: what tenants have on this node: bytes, groups, delayed and leased messages.
- `sharing.py`: the shares of this node in the quotas of the cluster.

It decides what waits or is refused; front ends signal that in the way of their protocol. It holds
no messages and delays none.
"""
