"""Users and their keys."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import DurationMs, Limit, ListCursor, Timestamp

LIMIT_MAX = 1000
OVERLAP_MS = 24 * 3_600_000

UserName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        examples=["alice"],
        description="Without `/`, `,` and `:`; the principal is `User:` and this name.",
    ),
]
Password = Annotated[
    str, Meta(max_length=1024, description="At least 8 characters.", examples=["correct horse"])
]
KeyKind = Annotated[
    Literal["api", "access"],
    Meta(
        description=(
            "`api`: sent as a bearer token or as a password; `access`: signs requests of SQS "
            "clients."
        )
    ),
]
_EXPIRY = "Milliseconds since 1970; null is never."


class ListUsers(Body, kw_only=True):
    prefix: Annotated[str, Meta(max_length=255, description="Only names that start so.")] = ""
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most users to return.")] = 100
    cursor: Annotated[
        str,
        Meta(
            max_length=255, description="`cursor` of the last response; by default from the start."
        ),
    ] = ""


class User(Answer, kw_only=True):
    name: str
    tenant: str
    created_at: int
    disabled: bool
    super_user: Annotated[bool, Meta(description="Whether the settings make it a super user.")]
    mechanisms: Annotated[list[str], Meta(description="For which it has a password.")]
    keys: Annotated[int, Meta(description="Number of its keys.")]


class Users(Answer, kw_only=True):
    """A page of users by name; `cursor` is the start of the next page, and empty at the end."""

    users: list[User]
    cursor: str


class CreateUser(Body, kw_only=True):
    """A new user; without a password it can use keys, certificates and tokens only."""

    name: UserName
    password: Password | None = None
    tenant: Annotated[
        Annotated[str, Meta(max_length=255)] | None,
        Meta(description="By default that of the caller."),
    ] = None

    def __repr__(self) -> str:
        return f"CreateUser(name={self.name!r})"


class ChangeUser(Body, kw_only=True):
    disabled: Annotated[bool, Meta(description="Whether to refuse all credentials of the user.")]


class SetPassword(Body, kw_only=True):
    password: Password

    def __repr__(self) -> str:
        return "SetPassword()"


class Key(Answer, kw_only=True):
    """A key without its secret."""

    id: str
    kind: KeyKind
    user: str
    created_at: int
    created_by: Annotated[str, Meta(description="A principal, or `key:` and the id of a key.")]
    expires_at: Annotated[int | None, Meta(description=_EXPIRY)]
    last_used_at: Annotated[
        int | None,
        Meta(description="Exact for uses of the node that answers, to an hour for the others."),
    ]
    description: str


class ListKeys(Body, kw_only=True):
    limit: Annotated[Limit | None, Meta(description="By default all.")] = None
    cursor: ListCursor = ""


class Keys(Answer, kw_only=True):
    keys: list[Key]
    cursor: Annotated[str, Meta(description="Of the next page; empty at the end.")] = ""
    total: Annotated[int, Meta(description="On all pages.")] = 0


class CreateKey(Body, kw_only=True):
    """A new key; at most one of `expires_at` and `ttl_ms`."""

    kind: KeyKind = "api"
    description: Annotated[str, Meta(max_length=255)] = ""
    expires_at: Annotated[Timestamp | None, Meta(description=_EXPIRY)] = None
    ttl_ms: Annotated[DurationMs | None, Meta(description="Time from now to the expiry.")] = None


class RotateKey(Body, kw_only=True):
    """The new key is like the old one, which stays valid for the overlap."""

    overlap_ms: Annotated[
        DurationMs, Meta(description="For how long the old key stays valid; at most 30 days.")
    ] = OVERLAP_MS
    expires_at: Annotated[
        Timestamp | None, Meta(description="Of the new key; by default that of the old one.")
    ] = None
    ttl_ms: Annotated[
        DurationMs | None, Meta(description="Time from now to the expiry of the new key.")
    ] = None


class NewKey(Answer, kw_only=True):
    """A new key with its secret, which is not shown again."""

    key: Key
    secret: Annotated[
        str,
        Meta(description="The whole API key, or the secret access key that belongs to the id."),
    ]

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r}, secret=(hidden))"


class Whoami(Answer, kw_only=True):
    """Who the caller is."""

    principal: str
    authenticated: bool
    tenant: str
    mechanism: Annotated[str, Meta(description="Empty if the caller sent no credentials.")]
    key: Annotated[str | None, Meta(description="Id of the key that was used.")]
    expires_at: Annotated[int | None, Meta(description=_EXPIRY)]
    super_user: bool
