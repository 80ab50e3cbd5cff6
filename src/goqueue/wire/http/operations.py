"""The table of all routes, from which the router, the OpenAPI document and the tests are made."""

from __future__ import annotations

from goqueue.wire.http.acl_operations import ACLS
from goqueue.wire.http.audit_operations import AUDIT
from goqueue.wire.http.backups.operations import BACKUPS
from goqueue.wire.http.cluster_operations import CLUSTER
from goqueue.wire.http.deadletter_operations import DEAD_LETTERS
from goqueue.wire.http.group_operations import GROUPS, STREAM_GROUPS
from goqueue.wire.http.journey_operations import JOURNEYS
from goqueue.wire.http.message_operations import MESSAGES
from goqueue.wire.http.node_operations import NODE
from goqueue.wire.http.overviews.operations import OVERVIEWS
from goqueue.wire.http.queue_operations import QUEUE_GROUPS
from goqueue.wire.http.quota_operations import QUOTAS
from goqueue.wire.http.schedule_operations import SCHEDULES
from goqueue.wire.http.tenant_operations import TENANTS
from goqueue.wire.http.topic_operations import TOPICS
from goqueue.wire.http.transaction_operations import QUERIES, TRANSACTIONS
from goqueue.wire.http.user_operations import USERS

OPERATIONS = (
    *TOPICS,
    *MESSAGES,
    *JOURNEYS,
    *GROUPS,
    *STREAM_GROUPS,
    *QUEUE_GROUPS,
    *DEAD_LETTERS,
    *SCHEDULES,
    *TRANSACTIONS,
    *QUERIES,
    *USERS,
    *ACLS,
    *TENANTS,
    *AUDIT,
    *QUOTAS,
    *OVERVIEWS,
    *BACKUPS,
    *CLUSTER,
    *NODE,
)
