"""Users and their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.users import KeyKind, KeyView, NewKeyView, UserView
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import users as bodies
from goqueue.wire.http.overviews.slices import slice_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


def whoami(front: FrontEnd, call: Call, _: object) -> bodies.Whoami:
    found = front.gate.users.whoami(call.session)
    return bodies.Whoami(
        principal=found.principal,
        authenticated=found.is_authenticated,
        tenant=found.tenant,
        mechanism=found.mechanism,
        key=found.key_id or None,
        expires_at=found.expires_ms or None,
        super_user=found.is_super,
    )


# Users


def list_all(front: FrontEnd, call: Call, query: bodies.ListUsers) -> bodies.Users:
    page = front.gate.users.list(
        call.session, prefix=query.prefix, after=query.cursor, limit=query.limit
    )
    return bodies.Users(users=[_user(one) for one in page.users], cursor=page.next_cursor)


def show(front: FrontEnd, call: Call, _: object) -> bodies.User:
    return _user(front.gate.users.show(call.session, user=call.text("user")))


async def create(front: FrontEnd, call: Call, body: bodies.CreateUser) -> bodies.User:
    made = await front.gate.users.create(
        call.session, user=body.name, password=body.password, tenant=body.tenant
    )
    return _user(made)


async def change(front: FrontEnd, call: Call, body: bodies.ChangeUser) -> bodies.User:
    changed = await front.gate.users.disable(
        call.session, user=call.text("user"), is_disabled=body.disabled
    )
    return _user(changed)


async def set_password(front: FrontEnd, call: Call, body: bodies.SetPassword) -> None:
    user = call.text("user")
    await front.gate.users.set_password(call.session, user=user, password=body.password)


async def delete(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.users.delete(call.session, user=call.text("user"))


# Keys


def list_keys(front: FrontEnd, call: Call, query: bodies.ListKeys) -> bodies.Keys:
    found = front.gate.users.keys(call.session, user=call.text("user"))
    page, place = slice_of(found, query.limit, query.cursor)
    return bodies.Keys(keys=[_key(one) for one in page], cursor=place.cursor, total=place.total)


def show_key(front: FrontEnd, call: Call, _: object) -> bodies.Key:
    return _key(front.gate.users.show_key(call.session, key_id=call.text("key_id")))


async def create_key(front: FrontEnd, call: Call, body: bodies.CreateKey) -> bodies.NewKey:
    made = await front.gate.users.create_key(
        call.session,
        user=call.text("user"),
        kind=KeyKind(body.kind),
        expires_ms=_expiry(front, body) or 0,
        description=body.description,
    )
    return _new_key(made)


async def rotate_key(front: FrontEnd, call: Call, body: bodies.RotateKey) -> bodies.NewKey:
    made = await front.gate.users.rotate_key(
        call.session,
        key_id=call.text("key_id"),
        overlap_ms=body.overlap_ms,
        expires_ms=_expiry(front, body),
    )
    return _new_key(made)


async def delete_key(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.users.delete_key(call.session, key_id=call.text("key_id"))


def _expiry(front: FrontEnd, body: bodies.CreateKey | bodies.RotateKey) -> int | None:
    if body.ttl_ms is None:
        return body.expires_at
    if body.expires_at is not None:
        raise InvalidField("Give either expires_at or ttl_ms.", field="ttl_ms")
    return front.now_ms() + body.ttl_ms


# Responses


def _user(view: UserView) -> bodies.User:
    return bodies.User(
        name=view.name,
        tenant=view.tenant,
        created_at=view.created_ms,
        disabled=view.is_disabled,
        super_user=view.is_super,
        mechanisms=[str(one) for one in view.mechanisms],
        keys=view.key_count,
    )


def _key(view: KeyView) -> bodies.Key:
    return bodies.Key(
        id=view.id,
        kind=view.kind.value,
        user=view.user,
        created_at=view.created_ms,
        created_by=view.created_by,
        expires_at=view.expires_ms or None,
        last_used_at=view.last_used_ms or None,
        description=view.description,
    )


def _new_key(made: NewKeyView) -> bodies.NewKey:
    return bodies.NewKey(key=_key(made.key), secret=made.secret)
