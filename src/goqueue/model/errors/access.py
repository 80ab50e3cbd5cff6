"""Access control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors.base import GoQueueError

if TYPE_CHECKING:
    from goqueue.model.access import Action, Resource


class AccessDenied(GoQueueError):
    code = "access_denied"

    def __init__(self, principal: str, action: Action, resource: Resource) -> None:
        self.kind: str = resource.kind.value
        super().__init__(f"{principal} may not {action} {resource}; request that permission.")
