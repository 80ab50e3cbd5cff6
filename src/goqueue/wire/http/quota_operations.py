"""The routes of quotas; part of the table in `operations`."""

from __future__ import annotations

from functools import partial

from goqueue.model import errors
from goqueue.wire.carrier.routing import STORING, Operation
from goqueue.wire.http.bodies import quotas as bodies
from goqueue.wire.http.handlers import quotas

_operation = partial(Operation, area="quotas")

_DECIDED = (errors.NotController, errors.RequestTimedOut, errors.LimitReached, *STORING)

QUOTAS = (
    _operation(
        "listQuotas",
        "GET",
        "/v1/quotas",
        quotas.list_all,
        "List quotas.",
        request=bodies.ListQuotas,
        answer=bodies.Quotas,
        errors=(errors.InvalidQuota,),
    ),
    _operation(
        "changeQuota",
        "PATCH",
        "/v1/quotas",
        quotas.change,
        "Set or remove limits of a user, a client id, an address or a tenant.",
        request=bodies.ChangeQuota,
        status=204,
        errors=(errors.InvalidQuota, *_DECIDED),
        example={"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 10_000_000}},
    ),
    _operation(
        "deleteQuota",
        "DELETE",
        "/v1/quotas",
        quotas.delete,
        "Remove all limits of an entity.",
        request=bodies.DeleteQuota,
        status=204,
        errors=(errors.InvalidQuota, *_DECIDED),
    ),
    _operation(
        "showQuotaUsage",
        "GET",
        "/v1/quotas/usage",
        quotas.usage,
        "Show how much of the limits is used in the cluster.",
        request=bodies.ShowQuotaUsage,
        answer=bodies.QuotaUsage,
    ),
)
