"""How many users, keys, rules and roles each tenant has, counted as entries come and go.

It also has the keys of each user, so that nobody has to look at those of all users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from goqueue.cluster.identity_facts import AclFact, KeyFact, RoleFact, UserFact
from goqueue.model.quotas import KEYS, ROLES, RULES, USERS
from goqueue.model.tenants import tenant_of, tenant_of_resource

_Counted = tuple[str, str]  # a limit and a tenant


class IdentityCounts:
    """The number of entries by kind and tenant."""

    __slots__ = ("_counted", "_counts", "_keys_of", "_memberships", "_roles")

    def __init__(self) -> None:
        self._counts: dict[_Counted, int] = {}
        self._counted: dict[bytes, _Counted] = {}  # by the key of the entry
        self._keys_of: dict[str, dict[bytes, KeyFact]] = {}  # by user
        self._roles: dict[bytes, RoleFact] = {}
        self._memberships: Counter[_Counted] = Counter()  # by member and tenant of the role

    def get(self, limit: str, tenant: str) -> int:
        return self._counts.get((limit, tenant), 0)

    def put(self, key: bytes, limit: str, tenant: str) -> None:
        """Count an entry, which may replace one of the same key."""
        self.forget(key)
        counted = self._counted[key] = (limit, tenant)
        self._counts[counted] = self._counts.get(counted, 0) + 1

    def forget(self, key: bytes) -> None:
        """Count an entry no longer, if it is counted."""
        role = self._roles.pop(key, None)
        if role is not None:
            for member in role.members:
                self._leave(member, tenant_of(role.name))
        counted = self._counted.pop(key, None)
        if counted is None:
            return
        self._counts[counted] -= 1
        if not self._counts[counted]:
            del self._counts[counted]

    # Entries

    def put_user(self, fact: UserFact) -> None:
        """Count a user; a compacted log may have its keys before it."""
        self.put(fact.key, USERS, fact.tenant)
        for key in self._keys_of.get(fact.name, ()):
            self.put(key, KEYS, fact.tenant)

    def put_key(self, fact: KeyFact, tenant: str) -> None:
        """Count a key for the tenant of its user."""
        self.put(fact.key, KEYS, tenant)
        self._keys_of.setdefault(fact.value.user, {})[fact.key] = fact

    def forget_key(self, fact: KeyFact) -> None:
        self.forget(fact.key)
        known = self._keys_of.get(fact.value.user, {})
        known.pop(fact.key, None)
        if not known:
            self._keys_of.pop(fact.value.user, None)

    def keys_of(self, user: str) -> Collection[KeyFact]:
        """Return the keys of a user, in no order."""
        return self._keys_of.get(user, {}).values()

    def put_rule(self, fact: AclFact) -> None:
        self.put(fact.key, RULES, tenant_of_rule(fact))

    def put_role(self, fact: RoleFact) -> None:
        tenant = tenant_of(fact.name)
        self.put(fact.key, ROLES, tenant)
        self._roles[fact.key] = fact
        self._memberships.update((one, tenant) for one in fact.members)

    def roles_of(self, member: str, tenant: str) -> int:
        """Return how many roles of a tenant a principal has."""
        return self._memberships[member, tenant]

    def _leave(self, member: str, tenant: str) -> None:
        self._memberships[member, tenant] -= 1
        if not self._memberships[member, tenant]:
            del self._memberships[member, tenant]


def tenant_of_rule(fact: AclFact) -> str:
    """Return the tenant to whose resources a rule applies."""
    return tenant_of_resource(fact.value.name)
