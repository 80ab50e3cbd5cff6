"""The areas of the API, for threads and for coroutines: thin wrappers around the same requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from goqueue.client.http.moments import Moment
from goqueue.client.http.requests.acls import AclRequests, RoleRequests
from goqueue.client.http.requests.audit import AuditRequests
from goqueue.client.http.requests.backups import BackupRequests
from goqueue.client.http.requests.cluster import ClusterRequests
from goqueue.client.http.requests.dead_letters import (
    NO_FILTER,
    DeadLetter,
    DeadLetterRequests,
    LetterFilter,
)
from goqueue.client.http.requests.groups import GroupRequests
from goqueue.client.http.requests.journeys import JourneyRequests
from goqueue.client.http.requests.node import NodeRequests
from goqueue.client.http.requests.queues import QueueRequests
from goqueue.client.http.requests.quotas import QuotaRequests
from goqueue.client.http.requests.reports import ReportRequests
from goqueue.client.http.requests.schedules import ScheduleRequests
from goqueue.client.http.requests.tenants import TenantRequests
from goqueue.client.http.requests.topics import TopicRequests
from goqueue.client.http.requests.users import KeyRequests, UserRequests
from goqueue.client.http.shells import AsyncShell, Shell, async_call, call
from goqueue.wire.http.bodies.acls import Acl, Role, SelectAcls
from goqueue.wire.http.bodies.schedules import ScheduleEntry
from goqueue.wire.http.bodies.tenants import Tenant
from goqueue.wire.http.bodies.users import User

_PAGE = 1000
_EVERY = SelectAcls()


class Topics(Shell[TopicRequests]):
    """Administration of topics."""

    create = call(TopicRequests.create)
    list_all = call(TopicRequests.list_all)
    describe = call(TopicRequests.describe)
    configure = call(TopicRequests.configure)
    delete = call(TopicRequests.delete)
    partitions = call(TopicRequests.partitions)
    grow = call(TopicRequests.grow)
    compact = call(TopicRequests.compact)
    delete_records = call(TopicRequests.delete_records)
    lanes = call(TopicRequests.lanes)


class AsyncTopics(AsyncShell[TopicRequests]):
    """Administration of topics."""

    create = async_call(TopicRequests.create)
    list_all = async_call(TopicRequests.list_all)
    describe = async_call(TopicRequests.describe)
    configure = async_call(TopicRequests.configure)
    delete = async_call(TopicRequests.delete)
    partitions = async_call(TopicRequests.partitions)
    grow = async_call(TopicRequests.grow)
    compact = async_call(TopicRequests.compact)
    delete_records = async_call(TopicRequests.delete_records)
    lanes = async_call(TopicRequests.lanes)


class Groups(Shell[GroupRequests]):
    """Groups of both kinds."""

    list_all = call(GroupRequests.list_all)
    put_queue = call(GroupRequests.put_queue)
    configure_queue = call(GroupRequests.configure_queue)
    put_stream = call(GroupRequests.put_stream)
    describe = call(GroupRequests.describe)
    delete = call(GroupRequests.delete)
    lag = call(GroupRequests.lag)
    offsets = call(GroupRequests.offsets)
    delete_offsets = call(GroupRequests.delete_offsets)
    reset = call(GroupRequests.reset)
    assignment = call(GroupRequests.assignment)
    rebalances = call(GroupRequests.rebalances)


class AsyncGroups(AsyncShell[GroupRequests]):
    """Groups of both kinds."""

    list_all = async_call(GroupRequests.list_all)
    put_queue = async_call(GroupRequests.put_queue)
    configure_queue = async_call(GroupRequests.configure_queue)
    put_stream = async_call(GroupRequests.put_stream)
    describe = async_call(GroupRequests.describe)
    delete = async_call(GroupRequests.delete)
    lag = async_call(GroupRequests.lag)
    offsets = async_call(GroupRequests.offsets)
    delete_offsets = async_call(GroupRequests.delete_offsets)
    reset = async_call(GroupRequests.reset)
    assignment = async_call(GroupRequests.assignment)
    rebalances = async_call(GroupRequests.rebalances)


class Queue(Shell[QueueRequests]):
    """The messages of a topic, as delivered to one queue group."""

    receive = call(QueueRequests.receive)
    ack = call(QueueRequests.ack)
    nack = call(QueueRequests.nack)
    reject = call(QueueRequests.reject)
    extend = call(QueueRequests.extend)
    ack_many = call(QueueRequests.ack_many)
    nack_many = call(QueueRequests.nack_many)
    reject_many = call(QueueRequests.reject_many)
    extend_many = call(QueueRequests.extend_many)
    peek = call(QueueRequests.peek)
    stats = call(QueueRequests.stats)
    rewind = call(QueueRequests.rewind)
    purge = call(QueueRequests.purge)


class AsyncQueue(AsyncShell[QueueRequests]):
    """The messages of a topic, as delivered to one queue group."""

    receive = async_call(QueueRequests.receive)
    ack = async_call(QueueRequests.ack)
    nack = async_call(QueueRequests.nack)
    reject = async_call(QueueRequests.reject)
    extend = async_call(QueueRequests.extend)
    ack_many = async_call(QueueRequests.ack_many)
    nack_many = async_call(QueueRequests.nack_many)
    reject_many = async_call(QueueRequests.reject_many)
    extend_many = async_call(QueueRequests.extend_many)
    peek = async_call(QueueRequests.peek)
    stats = async_call(QueueRequests.stats)
    rewind = async_call(QueueRequests.rewind)
    purge = async_call(QueueRequests.purge)


class Schedules(Shell[ScheduleRequests]):
    """Delayed messages."""

    list_page = call(ScheduleRequests.list_page)
    count = call(ScheduleRequests.count)
    get = call(ScheduleRequests.get)
    cancel = call(ScheduleRequests.cancel)
    cancel_many = call(ScheduleRequests.cancel_many)
    reschedule = call(ScheduleRequests.reschedule)
    stats = call(ScheduleRequests.stats)

    def list_all(
        self,
        *,
        topic: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
    ) -> Iterator[ScheduleEntry]:
        """Yield all schedules in a range of time, fetched page by page."""
        cursor = ""
        while True:
            page = self.list_page(topic=topic, from_=from_, until=until, limit=_PAGE, cursor=cursor)
            yield from page.schedules
            cursor = page.cursor
            if not cursor:
                return


class AsyncSchedules(AsyncShell[ScheduleRequests]):
    """Delayed messages."""

    list_page = async_call(ScheduleRequests.list_page)
    count = async_call(ScheduleRequests.count)
    get = async_call(ScheduleRequests.get)
    cancel = async_call(ScheduleRequests.cancel)
    cancel_many = async_call(ScheduleRequests.cancel_many)
    reschedule = async_call(ScheduleRequests.reschedule)
    stats = async_call(ScheduleRequests.stats)

    async def list_all(
        self,
        *,
        topic: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
    ) -> AsyncIterator[ScheduleEntry]:
        """Yield all schedules in a range of time, fetched page by page."""
        cursor = ""
        while True:
            page = await self.list_page(
                topic=topic, from_=from_, until=until, limit=_PAGE, cursor=cursor
            )
            for one in page.schedules:
                yield one
            cursor = page.cursor
            if not cursor:
                return


class DeadLetters(Shell[DeadLetterRequests]):
    """The dead letters of a topic, and the jobs that redrive them."""

    list_page = call(DeadLetterRequests.list_page)
    preview = call(DeadLetterRequests.preview)
    redrive = call(DeadLetterRequests.redrive)
    redrives = call(DeadLetterRequests.redrives)
    show_redrive = call(DeadLetterRequests.show_redrive)
    pause = call(DeadLetterRequests.pause)
    resume = call(DeadLetterRequests.resume)
    cancel = call(DeadLetterRequests.cancel)

    def list_all(self, filter: LetterFilter = NO_FILTER) -> Iterator[DeadLetter]:
        """Yield all matching dead letters, fetched page by page."""
        cursor = ""
        while True:
            page = self.list_page(filter, limit=_PAGE, cursor=cursor)
            yield from page.letters
            if page.cursor == cursor or not page.cursor:
                return
            cursor = page.cursor


class AsyncDeadLetters(AsyncShell[DeadLetterRequests]):
    """The dead letters of a topic, and the jobs that redrive them."""

    list_page = async_call(DeadLetterRequests.list_page)
    preview = async_call(DeadLetterRequests.preview)
    redrive = async_call(DeadLetterRequests.redrive)
    redrives = async_call(DeadLetterRequests.redrives)
    show_redrive = async_call(DeadLetterRequests.show_redrive)
    pause = async_call(DeadLetterRequests.pause)
    resume = async_call(DeadLetterRequests.resume)
    cancel = async_call(DeadLetterRequests.cancel)

    async def list_all(self, filter: LetterFilter = NO_FILTER) -> AsyncIterator[DeadLetter]:
        """Yield all matching dead letters, fetched page by page."""
        cursor = ""
        while True:
            page = await self.list_page(filter, limit=_PAGE, cursor=cursor)
            for letter in page.letters:
                yield letter
            if page.cursor == cursor or not page.cursor:
                return
            cursor = page.cursor


class Journeys(Shell[JourneyRequests]):
    """What happened to messages."""

    get = call(JourneyRequests.get)
    list_page = call(JourneyRequests.list_page)
    stats = call(JourneyRequests.stats)
    events = call(JourneyRequests.events)


class AsyncJourneys(AsyncShell[JourneyRequests]):
    """What happened to messages."""

    get = async_call(JourneyRequests.get)
    list_page = async_call(JourneyRequests.list_page)
    stats = async_call(JourneyRequests.stats)
    events = async_call(JourneyRequests.events)


class Backups(Shell[BackupRequests]):
    """What `goqueue backup` needs of a cluster."""

    cut = call(BackupRequests.cut)
    read = call(BackupRequests.read)


class AsyncBackups(AsyncShell[BackupRequests]):
    """What `goqueue backup` needs of a cluster."""

    cut = async_call(BackupRequests.cut)
    read = async_call(BackupRequests.read)


class Audit(Shell[AuditRequests]):
    """The audit log."""

    read = call(AuditRequests.read)


class AsyncAudit(AsyncShell[AuditRequests]):
    """The audit log."""

    read = async_call(AuditRequests.read)


class Quotas(Shell[QuotaRequests]):
    """Limits of users, client ids, addresses and tenants."""

    list_all = call(QuotaRequests.list_all)
    set = call(QuotaRequests.set)
    delete = call(QuotaRequests.delete)
    usage = call(QuotaRequests.usage)


class AsyncQuotas(AsyncShell[QuotaRequests]):
    """Limits of users, client ids, addresses and tenants."""

    list_all = async_call(QuotaRequests.list_all)
    set = async_call(QuotaRequests.set)
    delete = async_call(QuotaRequests.delete)
    usage = async_call(QuotaRequests.usage)


class Users(Shell[UserRequests]):
    """Users."""

    whoami = call(UserRequests.whoami)
    list_page = call(UserRequests.list_page)
    get = call(UserRequests.get)
    create = call(UserRequests.create)
    set_password = call(UserRequests.set_password)
    disable = call(UserRequests.disable)
    enable = call(UserRequests.enable)
    delete = call(UserRequests.delete)

    def list_all(self, *, prefix: str = "") -> Iterator[User]:
        """Yield all users by name, fetched page by page."""
        cursor = ""
        while True:
            page = self.list_page(prefix=prefix, limit=_PAGE, cursor=cursor)
            yield from page.users
            cursor = page.cursor
            if not cursor:
                return


class AsyncUsers(AsyncShell[UserRequests]):
    """Users."""

    whoami = async_call(UserRequests.whoami)
    list_page = async_call(UserRequests.list_page)
    get = async_call(UserRequests.get)
    create = async_call(UserRequests.create)
    set_password = async_call(UserRequests.set_password)
    disable = async_call(UserRequests.disable)
    enable = async_call(UserRequests.enable)
    delete = async_call(UserRequests.delete)

    async def list_all(self, *, prefix: str = "") -> AsyncIterator[User]:
        """Yield all users by name, fetched page by page."""
        cursor = ""
        while True:
            page = await self.list_page(prefix=prefix, limit=_PAGE, cursor=cursor)
            for one in page.users:
                yield one
            cursor = page.cursor
            if not cursor:
                return


class Tenants(Shell[TenantRequests]):
    """Tenants."""

    list_page = call(TenantRequests.list_page)
    get = call(TenantRequests.get)
    create = call(TenantRequests.create)
    set_state = call(TenantRequests.set_state)
    delete = call(TenantRequests.delete)
    usage = call(TenantRequests.usage)
    own_usage = call(TenantRequests.own_usage)

    def list_all(self) -> Iterator[Tenant]:
        """Yield all tenants by name, fetched page by page."""
        cursor = ""
        while True:
            page = self.list_page(limit=_PAGE, cursor=cursor)
            yield from page.tenants
            cursor = page.cursor
            if not cursor:
                return


class AsyncTenants(AsyncShell[TenantRequests]):
    """Tenants."""

    list_page = async_call(TenantRequests.list_page)
    get = async_call(TenantRequests.get)
    create = async_call(TenantRequests.create)
    set_state = async_call(TenantRequests.set_state)
    delete = async_call(TenantRequests.delete)
    usage = async_call(TenantRequests.usage)
    own_usage = async_call(TenantRequests.own_usage)

    async def list_all(self) -> AsyncIterator[Tenant]:
        """Yield all tenants by name, fetched page by page."""
        cursor = ""
        while True:
            page = await self.list_page(limit=_PAGE, cursor=cursor)
            for one in page.tenants:
                yield one
            cursor = page.cursor
            if not cursor:
                return


class Reports(Shell[ReportRequests]):
    """Reports that jobs have published."""

    list_all = call(ReportRequests.list_all)
    get = call(ReportRequests.get)


class AsyncReports(AsyncShell[ReportRequests]):
    """Reports that jobs have published."""

    list_all = async_call(ReportRequests.list_all)
    get = async_call(ReportRequests.get)


class Keys(Shell[KeyRequests]):
    """Keys of users."""

    list_all = call(KeyRequests.list_all)
    get = call(KeyRequests.get)
    create = call(KeyRequests.create)
    rotate = call(KeyRequests.rotate)
    delete = call(KeyRequests.delete)


class AsyncKeys(AsyncShell[KeyRequests]):
    """Keys of users."""

    list_all = async_call(KeyRequests.list_all)
    get = async_call(KeyRequests.get)
    create = async_call(KeyRequests.create)
    rotate = async_call(KeyRequests.rotate)
    delete = async_call(KeyRequests.delete)


class Node(Shell[NodeRequests]):
    """The node at the client's address."""

    health = call(NodeRequests.health)
    version = call(NodeRequests.version)
    metrics = call(NodeRequests.metrics)


class AsyncNode(AsyncShell[NodeRequests]):
    """The node at the client's address."""

    health = async_call(NodeRequests.health)
    version = async_call(NodeRequests.version)
    metrics = async_call(NodeRequests.metrics)


class Cluster(Shell[ClusterRequests]):
    """The nodes of the cluster, and the placement of partitions."""

    info = call(ClusterRequests.info)
    health = call(ClusterRequests.health)
    level = call(ClusterRequests.level)
    finalize_level = call(ClusterRequests.finalize_level)
    nodes = call(ClusterRequests.nodes)
    node = call(ClusterRequests.node)
    unregister = call(ClusterRequests.unregister)
    drain = call(ClusterRequests.drain)
    undrain = call(ClusterRequests.undrain)
    drain_progress = call(ClusterRequests.drain_progress)
    voters = call(ClusterRequests.voters)
    add_voter = call(ClusterRequests.add_voter)
    remove_voter = call(ClusterRequests.remove_voter)
    partitions = call(ClusterRequests.partitions)
    elect = call(ClusterRequests.elect)
    reassign = call(ClusterRequests.reassign)
    move_away = call(ClusterRequests.move_away)
    reassignments = call(ClusterRequests.reassignments)
    throttle_reassignments = call(ClusterRequests.throttle_reassignments)
    cancel_reassignments = call(ClusterRequests.cancel_reassignments)


class AsyncCluster(AsyncShell[ClusterRequests]):
    """The nodes of the cluster, and the placement of partitions."""

    info = async_call(ClusterRequests.info)
    health = async_call(ClusterRequests.health)
    level = async_call(ClusterRequests.level)
    finalize_level = async_call(ClusterRequests.finalize_level)
    nodes = async_call(ClusterRequests.nodes)
    node = async_call(ClusterRequests.node)
    unregister = async_call(ClusterRequests.unregister)
    drain = async_call(ClusterRequests.drain)
    undrain = async_call(ClusterRequests.undrain)
    drain_progress = async_call(ClusterRequests.drain_progress)
    voters = async_call(ClusterRequests.voters)
    add_voter = async_call(ClusterRequests.add_voter)
    remove_voter = async_call(ClusterRequests.remove_voter)
    partitions = async_call(ClusterRequests.partitions)
    elect = async_call(ClusterRequests.elect)
    reassign = async_call(ClusterRequests.reassign)
    move_away = async_call(ClusterRequests.move_away)
    reassignments = async_call(ClusterRequests.reassignments)
    throttle_reassignments = async_call(ClusterRequests.throttle_reassignments)
    cancel_reassignments = async_call(ClusterRequests.cancel_reassignments)


class Acls(Shell[AclRequests]):
    """Rules of access control."""

    list_page = call(AclRequests.list_page)
    create = call(AclRequests.create)
    delete = call(AclRequests.delete)
    test = call(AclRequests.test)

    def list_all(self, selection: SelectAcls = _EVERY) -> Iterator[Acl]:
        """Yield the selected rules by resource, fetched page by page."""
        cursor = ""
        while True:
            page = self.list_page(selection, limit=_PAGE, cursor=cursor)
            yield from page.acls
            cursor = page.cursor
            if not cursor:
                return


class AsyncAcls(AsyncShell[AclRequests]):
    """Rules of access control."""

    list_page = async_call(AclRequests.list_page)
    create = async_call(AclRequests.create)
    delete = async_call(AclRequests.delete)
    test = async_call(AclRequests.test)

    async def list_all(self, selection: SelectAcls = _EVERY) -> AsyncIterator[Acl]:
        """Yield the selected rules by resource, fetched page by page."""
        cursor = ""
        while True:
            page = await self.list_page(selection, limit=_PAGE, cursor=cursor)
            for one in page.acls:
                yield one
            cursor = page.cursor
            if not cursor:
                return


class Roles(Shell[RoleRequests]):
    """Roles, which users have."""

    list_page = call(RoleRequests.list_page)
    get = call(RoleRequests.get)
    create = call(RoleRequests.create)
    grant = call(RoleRequests.grant)
    revoke = call(RoleRequests.revoke)
    delete = call(RoleRequests.delete)

    def list_all(self) -> Iterator[Role]:
        """Yield all roles by name, fetched page by page."""
        cursor = ""
        while True:
            page = self.list_page(limit=_PAGE, cursor=cursor)
            yield from page.roles
            cursor = page.cursor
            if not cursor:
                return


class AsyncRoles(AsyncShell[RoleRequests]):
    """Roles, which users have."""

    list_page = async_call(RoleRequests.list_page)
    get = async_call(RoleRequests.get)
    create = async_call(RoleRequests.create)
    grant = async_call(RoleRequests.grant)
    revoke = async_call(RoleRequests.revoke)
    delete = async_call(RoleRequests.delete)

    async def list_all(self) -> AsyncIterator[Role]:
        """Yield all roles by name, fetched page by page."""
        cursor = ""
        while True:
            page = await self.list_page(limit=_PAGE, cursor=cursor)
            for one in page.roles:
                yield one
            cursor = page.cursor
            if not cursor:
                return
