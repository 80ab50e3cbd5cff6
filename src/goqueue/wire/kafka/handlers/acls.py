"""CreateAcls, DescribeAcls, DeleteAcls.

Rules about subjects of the schema registry do not exist in this protocol: they are neither shown
nor deleted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from goqueue.broker.gate.areas.acls import (
    Acl,
    AclFilter,
    PatternFilter,
    PatternKind,
    Permission,
)
from goqueue.model.access import Action, ResourceKind
from goqueue.model.errors import GoQueueError, InvalidAcl
from goqueue.wire.kafka.authorized import ACTION_CODES
from goqueue.wire.kafka.errors import ErrorCode, code_of, message_of
from goqueue.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from goqueue.wire.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from goqueue.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_ANY: Final = 1
_KINDS: Final[Mapping[int, ResourceKind]] = {
    2: ResourceKind.TOPIC,
    3: ResourceKind.GROUP,
    4: ResourceKind.CLUSTER,
    5: ResourceKind.TRANSACTIONAL_ID,
}
_TOKENS_AND_USERS: Final = (6, 7)
_PATTERNS: Final[Mapping[int, PatternKind]] = {3: PatternKind.LITERAL, 4: PatternKind.PREFIXED}
_PATTERN_FILTERS: Final[Mapping[int, PatternFilter]] = {
    1: PatternFilter.ANY,
    2: PatternFilter.MATCH,
    3: PatternFilter.LITERAL,
    4: PatternFilter.PREFIXED,
}
_PERMISSIONS: Final[Mapping[int, Permission]] = {2: Permission.DENY, 3: Permission.ALLOW}
_ACTIONS: Final[Mapping[int, Action]] = {code: one for one, code in ACTION_CODES.items()}

_KIND_CODES: Final = {one: code for code, one in _KINDS.items()}
_PATTERN_CODES: Final = {one: code for code, one in _PATTERNS.items()}
_PERMISSION_CODES: Final = {one: code for code, one in _PERMISSIONS.items()}
_DISABLED: Final = (
    "Access control is off on this node (setting security.access_control), so rules would have no "
    "effect; to prepare rules nevertheless, use `goqueue acl` or HTTP."
)

T = TypeVar("T")


# Creating


async def create_acls(
    front: FrontEnd, call: Call, request: CreateAclsRequest
) -> CreateAclsResponse:
    def all_failed(code: ErrorCode, text: str) -> CreateAclsResponse:
        failed = AclCreationResult(error_code=code, error_message=text)
        return CreateAclsResponse(results=[failed] * len(request.creations))

    if not front.gate.acls.are_enforced(call.session):
        return all_failed(ErrorCode.SECURITY_DISABLED, _DISABLED)
    outcomes: list[GoQueueError | None] = []
    rules: list[Acl] = []
    for wanted in request.creations:
        try:
            rules.append(_rule(wanted))
            outcomes.append(None)
        except GoQueueError as error:
            outcomes.append(error)
    try:
        created = iter(await front.gate.acls.create(call.session, rules=rules))
    except GoQueueError as error:
        return all_failed(code_of(error), message_of(error))
    results = [next(created) if one is None else one for one in outcomes]
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message=None)
            if error is None
            else AclCreationResult(error_code=code_of(error), error_message=message_of(error))
            for error in results
        ]
    )


def _rule(wanted: AclCreation) -> Acl:
    return Acl(
        _kind(wanted.resource_type),
        _read(_PATTERNS, wanted.resource_pattern_type, "pattern type"),
        wanted.resource_name,
        wanted.principal,
        wanted.host,
        _read(_ACTIONS, wanted.operation, "operation"),
        _read(_PERMISSIONS, wanted.permission_type, "permission type"),
    )


def _kind(code: int) -> ResourceKind:
    if code in _TOKENS_AND_USERS:
        raise InvalidAcl(
            "This broker has no delegation tokens, so rules for DELEGATION_TOKEN and USER "
            "resources would have no effect."
        )
    return _read(_KINDS, code, "resource type")


def _read(values: Mapping[int, T], code: int, what: str) -> T:
    if code not in values:
        raise InvalidAcl(f"A rule cannot have the {what} {code}.")
    return values[code]


# Describing


async def describe_acls(
    front: FrontEnd, call: Call, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    if not front.gate.acls.are_enforced(call.session):
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED)
    try:
        found: list[Acl] = []
        for filter in _filters(request, request.resource_type_filter):
            found += (await front.gate.acls.list(call.session, filter=filter)).rules
    except GoQueueError as error:
        return DescribeAclsResponse(error_code=code_of(error), error_message=message_of(error))
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=_KIND_CODES[kind],
                resource_name=name,
                pattern_type=_PATTERN_CODES[pattern],
                acls=[_description(one) for one in rules],
            )
            for (kind, name, pattern), rules in groupby(
                found, key=lambda one: (one.kind, one.name, one.pattern)
            )
        ],
    )


def _description(rule: Acl) -> AclDescription:
    return AclDescription(
        principal=rule.principal,
        host=rule.host,
        operation=ACTION_CODES[rule.action],
        permission_type=_PERMISSION_CODES[rule.permission],
    )


def _filters(wanted: DescribeAclsRequest | DeleteAclsFilter, kind: int) -> Sequence[AclFilter]:
    """Return filters that together select what a filter of Kafka does, which knows no subjects."""
    if kind in _TOKENS_AND_USERS:
        return ()
    kinds = [*_KINDS.values()] if kind == _ANY else [_read(_KINDS, kind, "resource type")]
    filter = AclFilter(
        pattern=_read(_PATTERN_FILTERS, wanted.pattern_type_filter, "pattern type"),
        name=wanted.resource_name_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        action=None if wanted.operation == _ANY else _read(_ACTIONS, wanted.operation, "operation"),
        permission=None
        if wanted.permission_type == _ANY
        else _read(_PERMISSIONS, wanted.permission_type, "permission type"),
    )
    return [msgspec.structs.replace(filter, kind=one) for one in kinds]


# Deleting


async def delete_acls(
    front: FrontEnd, call: Call, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[await _delete(front, call, one) for one in request.filters]
    )


async def _delete(front: FrontEnd, call: Call, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
    if not front.gate.acls.are_enforced(call.session):
        return DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED
        )
    try:
        deleted: list[Acl] = []
        for filter in _filters(wanted, wanted.resource_type_filter):
            deleted += await front.gate.acls.delete(call.session, filter=filter)
    except GoQueueError as error:
        return DeleteAclsFilterResult(error_code=code_of(error), error_message=message_of(error))
    return DeleteAclsFilterResult(
        error_message=None, matching_acls=[_deleted(one) for one in deleted]
    )


def _deleted(rule: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=_KIND_CODES[rule.kind],
        resource_name=rule.name,
        pattern_type=_PATTERN_CODES[rule.pattern],
        principal=rule.principal,
        host=rule.host,
        operation=ACTION_CODES[rule.action],
        permission_type=_PERMISSION_CODES[rule.permission],
    )
