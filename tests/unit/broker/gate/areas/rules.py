"""A policy for tests: only what is listed is allowed, and every check is recorded."""

from __future__ import annotations

from goqueue.model.access import Access, Action, Resource, ResourceKind
from goqueue.model.session import Session

ALICE = Session("test", principal="User:alice")


def access(action: Action, kind: ResourceKind, name: str) -> Access:
    return Access(action, Resource(kind, name))


class Only:
    """Allows some accesses and nothing else; it notes those other than to describe."""

    def __init__(self, *allowed: Access) -> None:
        self.checked: list[Access] = []
        self._allowed = frozenset(allowed)

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        assert session is ALICE
        if action is not Action.DESCRIBE:
            # A denial also checks whether the resource may be seen.
            self.checked.append(Access(action, resource))
        return Access(action, resource) in self._allowed
