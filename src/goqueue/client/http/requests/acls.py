"""Access control lists and roles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.wire.http.bodies import acls as bodies
from goqueue.wire.http.bodies.acls import Acl, Acls, NewAcl, Role, Roles, SelectAcls, TestedAccess

_EVERY = SelectAcls()
_read_acls = reading(Acls)
_read_deleted = reading(bodies.DeletedAcls)
_read_tested = reading(TestedAccess)
_read_role = reading(Role)
_read_roles = reading(Roles)


class AclRequests:
    def list_page(
        self, selection: SelectAcls = _EVERY, *, limit: int = 100, cursor: str = ""
    ) -> Request[Acls]:
        """Return the selected rules by resource; the cursor of the last page is empty."""
        query = query_of(
            bodies.ListAcls(**msgspec.structs.asdict(selection), limit=limit, cursor=cursor)
        )
        return Request("GET", path_of("acls"), _read_acls, query)

    def create(self, acls: Sequence[NewAcl]) -> Request[Acls]:
        """Create rules: all of them, or none if one is invalid. Existing ones are kept."""
        body = body_of(bodies.CreateAcls(acls=list(acls)))
        return Request("POST", path_of("acls"), _read_acls, body=body)

    def delete(
        self, selection: SelectAcls, *, all: bool = False, dry_run: bool = False
    ) -> Request[list[Acl]]:
        """Delete the selected rules, and return them; `all` allows to select every rule."""
        fields = msgspec.structs.asdict(selection)
        query = query_of(bodies.DeleteAcls(**fields, all=all, dry_run=dry_run))
        return Request("DELETE", path_of("acls"), lambda data: _read_deleted(data).acls, query)

    def test(
        self,
        principal: str,
        action: bodies.AclAction,
        kind: bodies.Kind,
        name: str,
        *,
        host: str = "*",
    ) -> Request[TestedAccess]:
        """Return whether rules allow an action, and which rule decides."""
        query = query_of(
            bodies.TestAccess(principal=principal, action=action, kind=kind, name=name, host=host)
        )
        return Request("GET", path_of("acls", "test"), _read_tested, query)


class RoleRequests:
    def list_page(self, *, limit: int = 100, cursor: str = "") -> Request[Roles]:
        """Return roles by name; the cursor of the last page is empty."""
        query = query_of(bodies.ListRoles(limit=limit, cursor=cursor))
        return Request("GET", path_of("roles"), _read_roles, query)

    def get(self, name: str) -> Request[Role]:
        """Return a role."""
        return Request("GET", path_of("roles", name), _read_role)

    def create(self, name: str, members: Sequence[str] = ()) -> Request[Role]:
        """Create a role with these members; if it exists, they are added."""
        body = body_of(bodies.CreateRole(name=name, members=list(members)))
        return Request("POST", path_of("roles"), _read_role, body=body)

    def grant(self, name: str, members: Sequence[str]) -> Request[Role]:
        """Give a role to users."""
        body = body_of(bodies.ChangeMembers(members=list(members)))
        return Request("POST", path_of("roles", name, "grant"), _read_role, body=body)

    def revoke(self, name: str, members: Sequence[str]) -> Request[Role]:
        """Take a role from users."""
        body = body_of(bodies.ChangeMembers(members=list(members)))
        return Request("POST", path_of("roles", name, "revoke"), _read_role, body=body)

    def delete(self, name: str) -> Request[None]:
        """Delete a role and its rules."""
        return Request("DELETE", path_of("roles", name), nothing, repeat=Repeat.AMBIGUOUS)
