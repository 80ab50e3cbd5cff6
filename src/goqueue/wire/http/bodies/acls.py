"""Access control lists and roles."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body

LIMIT_MAX = 1000
ACLS_MAX = 1000  # in one request
MEMBERS_MAX = 1000  # in one request

Kind = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "SUBJECT"]
Pattern = Literal["LITERAL", "PREFIXED"]
AclAction = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
]
Permission = Literal["ALLOW", "DENY"]
_Name = Annotated[str, Meta(min_length=1, max_length=1024)]
_CURSOR = "`cursor` of the last response; by default from the start."

RoleName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        examples=["operators"],
        description="Without `/`, `,` and `:`; its rules have the principal `Role:` and this name.",
    ),
]
Members = Annotated[
    list[_Name],
    Meta(max_length=MEMBERS_MAX, description="Users, as `User:NAME`.", examples=[["User:alice"]]),
]


class Acl(Answer, kw_only=True):
    """A rule: it allows or denies a principal an action on resources, from a host or from all."""

    kind: Kind
    pattern: Pattern
    name: str
    principal: str
    host: str
    action: AclAction
    permission: Permission


class NewAcl(Body, kw_only=True):
    """A rule to create."""

    kind: Kind
    name: Annotated[
        _Name,
        Meta(
            description=(
                "Of the resource; the literal `*` is every resource of the kind. The cluster is "
                "`kafka-cluster`."
            )
        ),
    ]
    pattern: Annotated[Pattern, Meta(description="Whether the name is a prefix.")] = "LITERAL"
    principal: Annotated[_Name, Meta(description="`User:NAME`, `User:*` or `Role:NAME`.")]
    host: Annotated[_Name, Meta(description="An IP address, or `*` for all.")] = "*"
    action: AclAction
    permission: Annotated[Permission, Meta(description="`DENY` takes precedence.")] = "ALLOW"


class CreateAcls(Body, kw_only=True):
    """Rules to create: all of them, or none if one is invalid. Existing ones are kept."""

    acls: Annotated[list[NewAcl], Meta(min_length=1, max_length=ACLS_MAX)]


class SelectAcls(Body, kw_only=True):
    """A selection of rules; what is not given may be anything."""

    kind: Kind | None = None
    pattern: Annotated[
        Literal["LITERAL", "PREFIXED", "ANY", "MATCH"],
        Meta(description="`MATCH`: all rules that apply to a resource of this name."),
    ] = "ANY"
    name: _Name | None = None
    principal: _Name | None = None
    host: _Name | None = None
    action: AclAction | None = None
    permission: Permission | None = None


class ListAcls(SelectAcls, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most rules to return.")] = 100
    cursor: Annotated[str, Meta(max_length=16_384, description=_CURSOR)] = ""


class DeleteAcls(SelectAcls, kw_only=True):
    all: Annotated[bool, Meta(description="Needed to delete without any selection.")] = False
    dry_run: Annotated[bool, Meta(description="Only return what would be deleted.")] = False


class Acls(Answer, kw_only=True):
    """A page of rules by resource; `cursor` is the start of the next page, and empty at the end."""

    acls: list[Acl]
    cursor: str
    enforced: Annotated[bool, Meta(description="Whether this node controls access.")]


class DeletedAcls(Answer, kw_only=True):
    acls: list[Acl]


class TestAccess(Body, kw_only=True):
    principal: Annotated[_Name, Meta(description="`User:NAME`.")]
    action: AclAction
    kind: Kind
    name: _Name
    host: Annotated[_Name, Meta(description="The address that the client has.")] = "*"


class TestedAccess(Answer, kw_only=True):
    """Whether rules allow an action, and the rule that decides, if one does."""

    allowed: bool
    reason: Literal["super_user", "rule", "no_rule_allows", "no_rules"]
    acl: Acl | None
    enforced: Annotated[bool, Meta(description="Whether this node controls access.")]


# Roles


class Role(Answer, kw_only=True):
    name: str
    members: list[str]


class Roles(Answer, kw_only=True):
    """A page of roles by name; `cursor` is the start of the next page, and empty at the end."""

    roles: list[Role]
    cursor: str


class ListRoles(Body, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most roles to return.")] = 100
    cursor: Annotated[str, Meta(max_length=255, description=_CURSOR)] = ""


class CreateRole(Body, kw_only=True):
    """A role; if it exists, the members are added."""

    name: RoleName
    members: Members = []


class ChangeMembers(Body, kw_only=True):
    members: Members
