"""A policy that allows what a test names."""

from __future__ import annotations

from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session

ALICE = Session("test", principal="User:alice")


def topic(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, name)


class Only:
    """Allows some actions on some resources, and nothing else."""

    def __init__(self, *allowed: tuple[Action, Resource]) -> None:
        self._allowed = set(allowed)

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return (action, resource) in self._allowed
