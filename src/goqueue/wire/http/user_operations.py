"""The routes of users and keys; part of the table in `operations`."""

from __future__ import annotations

from functools import partial

from goqueue.model import errors
from goqueue.wire.carrier.routing import STORING, Operation
from goqueue.wire.http.bodies import users as bodies
from goqueue.wire.http.handlers import users

_operation = partial(Operation, area="users")

_DECIDED = (errors.NotController, errors.RequestTimedOut, errors.LimitReached, *STORING)

_USERS = (
    _operation(
        "whoami",
        "GET",
        "/v1/whoami",
        users.whoami,
        "Show who the caller is.",
        answer=bodies.Whoami,
    ),
    _operation(
        "listUsers",
        "GET",
        "/v1/users",
        users.list_all,
        "List users, by name.",
        request=bodies.ListUsers,
        answer=bodies.Users,
    ),
    _operation(
        "createUser",
        "POST",
        "/v1/users",
        users.create,
        "Create a user.",
        request=bodies.CreateUser,
        answer=bodies.User,
        status=201,
        errors=(
            errors.UserExists,
            errors.UnknownTenant,
            errors.InvalidCredential,
            errors.InvalidRequest,
            *_DECIDED,
        ),
        example={"name": "alice", "password": "correct horse"},
    ),
    _operation(
        "showUser",
        "GET",
        "/v1/users/{user}",
        users.show,
        "Show a user.",
        answer=bodies.User,
        errors=(errors.UnknownUser,),
    ),
    _operation(
        "changeUser",
        "PATCH",
        "/v1/users/{user}",
        users.change,
        "Disable or enable a user.",
        request=bodies.ChangeUser,
        answer=bodies.User,
        errors=(
            errors.UnknownUser,
            errors.InvalidRequest,
            errors.StalePartitionVersion,
            *_DECIDED,
        ),
        example={"disabled": True},
    ),
    _operation(
        "deleteUser",
        "DELETE",
        "/v1/users/{user}",
        users.delete,
        "Delete a user and its keys.",
        status=204,
        errors=(errors.UnknownUser, errors.InvalidRequest, *_DECIDED),
    ),
    _operation(
        "setPassword",
        "PUT",
        "/v1/users/{user}/password",
        users.set_password,
        "Replace the password of a user.",
        request=bodies.SetPassword,
        status=204,
        errors=(
            errors.UnknownUser,
            errors.InvalidCredential,
            errors.StalePartitionVersion,
            *_DECIDED,
        ),
        example={"password": "correct horse"},
    ),
)

_KEYS = (
    _operation(
        "listKeys",
        "GET",
        "/v1/users/{user}/keys",
        users.list_keys,
        "List the keys of a user, the oldest first.",
        request=bodies.ListKeys,
        answer=bodies.Keys,
        errors=(errors.UnknownUser,),
    ),
    _operation(
        "createKey",
        "POST",
        "/v1/users/{user}/keys",
        users.create_key,
        "Create a key of a user; the response has its secret, which is not shown again.",
        request=bodies.CreateKey,
        answer=bodies.NewKey,
        status=201,
        errors=(errors.UnknownUser, errors.InvalidCredential, *_DECIDED),
        example={"kind": "api", "description": "billing service", "ttl_ms": 7_776_000_000},
    ),
    _operation(
        "showKey",
        "GET",
        "/v1/keys/{key_id}",
        users.show_key,
        "Show a key.",
        answer=bodies.Key,
        errors=(errors.UnknownKey,),
    ),
    _operation(
        "rotateKey",
        "POST",
        "/v1/keys/{key_id}/rotate",
        users.rotate_key,
        "Create a key like another one, which stays valid for an overlap.",
        request=bodies.RotateKey,
        answer=bodies.NewKey,
        status=201,
        errors=(errors.UnknownKey, errors.InvalidCredential, errors.InvalidRequest, *_DECIDED),
        example={"overlap_ms": 3_600_000},
    ),
    _operation(
        "deleteKey",
        "DELETE",
        "/v1/keys/{key_id}",
        users.delete_key,
        "Delete a key.",
        status=204,
        errors=(errors.UnknownKey, *_DECIDED),
    ),
)

USERS = (*_USERS, *_KEYS)
