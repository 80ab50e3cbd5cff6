"""Operations on access itself: what a session may do."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.gate.operation import Area, everybody, query
from goqueue.model.access import Action, Resource
from goqueue.model.session import Session

__all__ = ["AccessArea"]


class AccessArea(Area):
    """What a session may do; everybody may know that of themselves."""

    @query(Action.DESCRIBE, everybody)
    def allowed(
        self, session: Session, *, resource: Resource, actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Those of the actions that the session may do to a resource."""
        if self._gate.policy is None:
            return actions
        return [one for one in actions if self._may(session, one, resource)]
