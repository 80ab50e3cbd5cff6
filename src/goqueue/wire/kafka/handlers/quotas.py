"""Client quotas: describe and alter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.quotas import EntityFilter, Match
from goqueue.model.errors import GoQueueError, InvalidQuota
from goqueue.wire.kafka.errors import code_of, message_of
from goqueue.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from goqueue.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_MATCHES: tuple[Match, ...] = ("exact", "default", "any")  # by their numbers


def describe_client_quotas(
    front: FrontEnd, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        filters = [_filter(one) for one in request.components]
        found = front.gate.quotas.describe(call.session, filters=filters, is_strict=request.strict)
    except GoQueueError as error:
        return DescribeClientQuotasResponse(
            error_code=code_of(error), error_message=message_of(error), entries=None
        )
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name or None)
                    for kind, name in one.entity
                ],
                values=[ValueData(key=key, value=value) for key, value in one.limits.items()],
            )
            for one in found
        ],
    )


def _filter(component: ComponentData) -> EntityFilter:
    if not 0 <= component.match_type < len(_MATCHES):
        raise InvalidQuota(f"There is no match type {component.match_type}; use 0 to 2.")
    return EntityFilter(
        component.entity_type, _MATCHES[component.match_type], component.match or ""
    )


async def alter_client_quotas(
    front: FrontEnd, call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change quotas, each entity by itself."""
    return AlterClientQuotasResponse(
        entries=[
            await _alter(front, call, one, validate_only=request.validate_only)
            for one in request.entries
        ]
    )


async def _alter(
    front: FrontEnd, call: Call, entry: RequestEntryData, *, validate_only: bool
) -> ResponseEntryData:
    result = ResponseEntryData(
        error_message=None,
        entity=[
            ResponseEntityData(entity_type=one.entity_type, entity_name=one.entity_name)
            for one in entry.entity
        ],
    )
    try:
        await front.gate.quotas.alter(
            call.session,
            names=_names(entry),
            limits={one.key: None if one.remove else one.value for one in entry.ops},
            dry_run=validate_only,
        )
    except GoQueueError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
    return result


def _names(entry: RequestEntryData) -> dict[str, str]:
    names: dict[str, str] = {}
    for one in entry.entity:
        if one.entity_type in names:
            raise InvalidQuota(f"{one.entity_type[:100]!r} is given twice; give it once.")
        if one.entity_name == "":
            raise InvalidQuota("A name is empty; leave it out for the default.")
        names[one.entity_type] = one.entity_name or ""
    return names
