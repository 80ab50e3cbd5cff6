"""Tenants."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.bodies.users import UserName

LIMIT_MAX = 1000

TenantName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=32,
        examples=["acme"],
        description="Lower-case letters, digits and `-`.",
    ),
]
State = Annotated[
    Literal["active", "read_only", "suspended"],
    Meta(
        description=(
            "`read_only`: its users read, receive and acknowledge, but write and change nothing; "
            "`suspended`: they can do nothing."
        )
    ),
]


class ListTenants(Body, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most tenants to return.")] = 100
    cursor: Annotated[
        str,
        Meta(
            max_length=255, description="`cursor` of the last response; by default from the start."
        ),
    ] = ""


class Tenant(Answer, kw_only=True):
    name: str
    account: Annotated[str, Meta(description="In the URLs of its queues, for SQS clients.")]
    state: Annotated[
        Literal["active", "read_only", "suspended", "deleting"],
        Meta(description="`deleting`: a purge is in progress."),
    ]
    description: str
    created_at: int
    users: Annotated[int, Meta(description="Number of its users.")]
    topics: Annotated[int, Meta(description="Number of its topics.")]


class Tenants(Answer, kw_only=True):
    """A page of tenants by name; `cursor` is the start of the next page, and empty at the end."""

    tenants: list[Tenant]
    cursor: str


class CreateTenant(Body, kw_only=True):
    """A new tenant."""

    name: TenantName
    description: Annotated[str, Meta(max_length=255)] = ""
    admin: Annotated[
        UserName | None,
        Meta(
            description=(
                "User that may do everything in the tenant; create it there afterwards. Without "
                "one, create rules for its users."
            )
        ),
    ] = None


class ChangeTenant(Body, kw_only=True):
    state: State


class DeleteTenant(Body, kw_only=True):
    purge: Annotated[
        bool,
        Meta(
            description=(
                "Delete its users and all that it has too, in the background. Without it, a "
                "tenant that has anything is not deleted."
            )
        ),
    ] = False


class Usage(Answer, kw_only=True):
    """What a tenant has."""

    users: int
    topics: int
    partitions: int
    queues: int
    groups: Annotated[int, Meta(description="Of both kinds.")]
    subjects: int
    scheduled: Annotated[int, Meta(description="Messages that are not due yet.")]
    stored_bytes: Annotated[int, Meta(description="In partitions; replicas do not count.")]
