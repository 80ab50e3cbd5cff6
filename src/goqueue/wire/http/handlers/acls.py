"""Access control lists and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.acls import (
    Acl,
    AclFilter,
    PatternFilter,
    PatternKind,
    Permission,
    Role,
)
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import acls as bodies

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def create(front: FrontEnd, call: Call, body: bodies.CreateAcls) -> bodies.Acls:
    rules = [
        Acl(
            ResourceKind(one.kind),
            PatternKind(one.pattern),
            one.name,
            one.principal,
            one.host,
            Action(one.action),
            Permission(one.permission),
        )
        for one in body.acls
    ]
    await front.gate.acls.create(call.session, rules=rules, is_whole=True)
    enforced = front.gate.acls.are_enforced(call.session)
    return bodies.Acls(acls=[_acl(one) for one in rules], cursor="", enforced=enforced)


async def list_all(front: FrontEnd, call: Call, query: bodies.ListAcls) -> bodies.Acls:
    page = await front.gate.acls.list(
        call.session, filter=_filter(query), after=query.cursor, limit=query.limit
    )
    enforced = front.gate.acls.are_enforced(call.session)
    return bodies.Acls(acls=[_acl(one) for one in page.rules], cursor=page.next, enforced=enforced)


async def delete(front: FrontEnd, call: Call, query: bodies.DeleteAcls) -> bodies.DeletedAcls:
    filter = _filter(query)
    if filter == AclFilter() and not query.all:
        raise InvalidField("Select the rules to delete; all=true deletes every rule.", field="all")
    deleted = await front.gate.acls.delete(call.session, filter=filter, dry_run=query.dry_run)
    return bodies.DeletedAcls(acls=[_acl(one) for one in deleted])


def test(front: FrontEnd, call: Call, query: bodies.TestAccess) -> bodies.TestedAccess:
    verdict = front.gate.acls.test(
        call.session,
        principal=query.principal,
        host=query.host,
        action=Action(query.action),
        resource=Resource(ResourceKind(query.kind), query.name),
    )
    return bodies.TestedAccess(
        allowed=verdict.is_allowed,
        reason=verdict.reason.value,
        acl=None if verdict.rule is None else _acl(verdict.rule),
        enforced=front.gate.acls.are_enforced(call.session),
    )


def _filter(query: bodies.SelectAcls) -> AclFilter:
    return AclFilter(
        kind=None if query.kind is None else ResourceKind(query.kind),
        pattern=PatternFilter(query.pattern),
        name=query.name,
        principal=query.principal,
        host=query.host,
        action=None if query.action is None else Action(query.action),
        permission=None if query.permission is None else Permission(query.permission),
    )


def _acl(rule: Acl) -> bodies.Acl:
    return bodies.Acl(
        kind=rule.kind.value,
        pattern=rule.pattern.value,
        name=rule.name,
        principal=rule.principal,
        host=rule.host,
        action=rule.action.value,
        permission=rule.permission.value,
    )


# Roles


async def create_role(front: FrontEnd, call: Call, body: bodies.CreateRole) -> bodies.Role:
    return _role(
        await front.gate.acls.create_role(call.session, role=body.name, members=body.members)
    )


def list_roles(front: FrontEnd, call: Call, query: bodies.ListRoles) -> bodies.Roles:
    page = front.gate.acls.roles(call.session, after=query.cursor, limit=query.limit)
    return bodies.Roles(roles=[_role(one) for one in page.roles], cursor=page.next)


def show_role(front: FrontEnd, call: Call, _: object) -> bodies.Role:
    return _role(front.gate.acls.role(call.session, role=call.text("role")))


async def grant(front: FrontEnd, call: Call, body: bodies.ChangeMembers) -> bodies.Role:
    return _role(
        await front.gate.acls.grant(call.session, role=call.text("role"), members=body.members)
    )


async def revoke(front: FrontEnd, call: Call, body: bodies.ChangeMembers) -> bodies.Role:
    return _role(
        await front.gate.acls.revoke(call.session, role=call.text("role"), members=body.members)
    )


async def delete_role(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.acls.delete_role(call.session, role=call.text("role"))


def _role(role: Role) -> bodies.Role:
    return bodies.Role(name=role.name, members=list(role.members))
