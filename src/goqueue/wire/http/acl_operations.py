"""The routes of access control lists and roles; part of the table in `operations`."""

from __future__ import annotations

from functools import partial

from goqueue.model import errors
from goqueue.wire.carrier.routing import STORING, Operation
from goqueue.wire.http.bodies import acls as bodies
from goqueue.wire.http.handlers import acls

_operation = partial(Operation, area="acls")

_DECIDED = (errors.NotController, errors.RequestTimedOut, errors.LimitReached, *STORING)
_ROLE = (errors.UnknownRole, errors.InvalidRole, *_DECIDED)

_RULES = (
    _operation(
        "listAcls",
        "GET",
        "/v1/acls",
        acls.list_all,
        "List rules of access control, by resource.",
        request=bodies.ListAcls,
        answer=bodies.Acls,
        errors=(errors.InvalidRequest,),
    ),
    _operation(
        "createAcls",
        "POST",
        "/v1/acls",
        acls.create,
        "Create rules of access control: all of them, or none.",
        request=bodies.CreateAcls,
        answer=bodies.Acls,
        status=201,
        errors=(errors.InvalidAcl, *_DECIDED),
        example={
            "acls": [
                {"kind": "TOPIC", "name": "orders", "principal": "User:alice", "action": "READ"}
            ]
        },
    ),
    _operation(
        "deleteAcls",
        "DELETE",
        "/v1/acls",
        acls.delete,
        "Delete the selected rules.",
        request=bodies.DeleteAcls,
        answer=bodies.DeletedAcls,
        errors=_DECIDED,
    ),
    _operation(
        "testAccess",
        "GET",
        "/v1/acls/test",
        acls.test,
        "Show whether rules allow an action, and which rule decides.",
        request=bodies.TestAccess,
        answer=bodies.TestedAccess,
    ),
)

_ROLES = (
    _operation(
        "listRoles",
        "GET",
        "/v1/roles",
        acls.list_roles,
        "List roles, by name.",
        request=bodies.ListRoles,
        answer=bodies.Roles,
    ),
    _operation(
        "createRole",
        "POST",
        "/v1/roles",
        acls.create_role,
        "Create a role, or add members to an existing one.",
        request=bodies.CreateRole,
        answer=bodies.Role,
        status=201,
        errors=(errors.InvalidRole, *_DECIDED),
        example={"name": "operators", "members": ["User:alice"]},
    ),
    _operation(
        "showRole",
        "GET",
        "/v1/roles/{role}",
        acls.show_role,
        "Show a role.",
        answer=bodies.Role,
        errors=(errors.UnknownRole,),
    ),
    _operation(
        "deleteRole",
        "DELETE",
        "/v1/roles/{role}",
        acls.delete_role,
        "Delete a role and its rules.",
        status=204,
        errors=(errors.UnknownRole, *_DECIDED),
    ),
    _operation(
        "grantRole",
        "POST",
        "/v1/roles/{role}/grant",
        acls.grant,
        "Give a role to users.",
        request=bodies.ChangeMembers,
        answer=bodies.Role,
        errors=_ROLE,
        example={"members": ["User:alice"]},
    ),
    _operation(
        "revokeRole",
        "POST",
        "/v1/roles/{role}/revoke",
        acls.revoke,
        "Take a role from users.",
        request=bodies.ChangeMembers,
        answer=bodies.Role,
        errors=_ROLE,
        example={"members": ["User:alice"]},
    ),
)

ACLS = (*_RULES, *_ROLES)
