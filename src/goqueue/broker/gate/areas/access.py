"""Operations on access itself: what a session is allowed to do."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.gate.operation import Area, everybody, query
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session

__all__ = ["AccessArea"]


class AccessArea(Area):
    """What a session is allowed to do; every session may query its own access."""

    @query(Action.DESCRIBE, everybody)
    def allowed(
        self, session: Session, *, resource: Resource, actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Return those of the actions that the session may perform on a resource."""
        if self._authoriser.is_open(session):
            return actions
        return [one for one in actions if self._may(session, one, resource)]

    @query(Action.DESCRIBE, everybody)
    def allowed_on_any(
        self, session: Session, *, kind: ResourceKind, actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Return those of the actions that the session may perform on some resource of a kind."""
        return [one for one in actions if self._authoriser.allows_any(session, one, kind)]
