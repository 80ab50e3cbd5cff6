"""The schema registry and its topic.

Registrations are stored in the compacted internal topic `__schemas`, which is made by the first
one: a node without schemas pays nothing. A change is written, then applied, and acknowledged when
it is as durable as any record; reads meanwhile wait as well, because an id once returned must never
refer to another schema. Parsing and comparing schemas happens in a thread, one at a time, because a
schema can be large and must not block the event loop.

The leader of that topic accepts changes, and every node replicates them (`replica`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.schemas.replica import RegistryReplica, Unreadable
from goqueue.broker.topics.topics import Topics
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.loop.turns import Turns
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    InvalidSchema,
    SchemaRefusal,
    SchemaRefused,
    StorageFull,
)
from goqueue.model.names import SCHEMAS_TOPIC
from goqueue.model.quotas import CONTEXTS, SCHEMA_BYTES, SCHEMA_SETTINGS, SCHEMA_VERSIONS
from goqueue.model.tenants import tenant_of
from goqueue.partition import Partition
from goqueue.schemas import removal
from goqueue.schemas.catalog import Content, Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.facts import Change, read_gone, to_record
from goqueue.schemas.formats import Schema, SchemaKind, protobuf_serialized
from goqueue.schemas.names import CONTEXT_DEFAULT, Subject, is_same_tenant
from goqueue.schemas.registry import LATEST, Registry, unknown_version
from goqueue.schemas.scopes import Config, Mode
from goqueue.schemas.sources import Check

BATCH_BYTES_MAX = 1 << 20
WRITES_WAITING_MAX = 1000
READS_WAITING_MAX = 1000  # schemas that wait to be parsed or compared

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Schemas:
    """The registry of a node."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        *,
        is_full: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._is_full = is_full
        self._told_offset = 0
        self._writers = Turns(clock, waiting_max=WRITES_WAITING_MAX)
        self._thinkers = Turns(clock, waiting_max=READS_WAITING_MAX)
        # Raises if a tenant may not have so many of something.
        self.check_quota: Callable[[str, str, int], None] = lambda tenant, limit, wanted: None
        self.changes = 0  # counted, so that caches can detect a change
        self._replica = RegistryReplica(clock, topics, leaders, changed=self._note_change)

    # Look-up

    async def look(self, ask: Callable[[Registry], T]) -> T:
        """Query the registry; return when everything the result may include is durable."""
        registry = await self._ready()
        try:
            return ask(registry)
        finally:
            await self._settled()

    def schema_by_id(self, schema_id: int, *, context: str = CONTEXT_DEFAULT) -> Content | None:
        """The schema with an id; None if there is none."""
        return self._loaded().catalog.content(context, schema_id)

    def schema_by_guid(self, guid: str, *, context: str = CONTEXT_DEFAULT) -> Content | None:
        """The schema with a guid, in whichever context of the same tenant has it."""
        found = self._loaded().find_guid(guid)
        return next((one for one in found if is_same_tenant(one.context, context)), None)

    def read(self, content: Content) -> Schema:
        """The parsed schema of an id; parsing it the first time takes a moment."""
        return self._loaded().source(content).read()

    def latest(self, subject: Subject) -> Version | None:
        """The newest version of a subject that is not deleted."""
        return self._loaded().latest(subject)

    async def lookup(
        self, subject: Subject, request: Request, *, normalize: bool, with_deleted: bool
    ) -> Version:
        """The version of a subject that is equivalent to a schema."""
        registry = await self._ready()
        draft = registry.draft(subject, request, normalize=normalize)
        parsed = await self._think(draft.parse)

        def ask(registry: Registry) -> Version:
            found = registry.find_like(parsed, with_deleted=with_deleted)
            if found is not None:
                return found
            if not registry.has_subject(subject, with_deleted=with_deleted):
                raise SchemaRefused(
                    SchemaRefusal.UNKNOWN_SUBJECT, f"Subject '{subject}' not found."
                )
            raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, "Schema not found")

        return await self.look(ask)

    async def compare(
        self, subject: Subject, request: Request, *, normalize: bool, number: int | None = None
    ) -> list[str]:
        """Why a schema is incompatible with a version, or with all that its subject's level
        covers.
        """
        registry = await self._ready()
        draft = registry.draft(subject, request, normalize=normalize)
        parsed = await self._think(draft.parse)

        def ask(registry: Registry) -> Check:
            if number is None:
                return registry.check(parsed)
            live = registry.live_versions(subject)
            against = (
                live[-1:] if number == LATEST else [one for one in live if one.number == number]
            )
            if not against and number != LATEST:
                raise unknown_version(number)
            return registry.check(parsed, against=against)

        check = await self.look(ask)
        return await self._think(check.run)

    async def formatted(self, content: Content, form: str) -> str:
        """The text of a schema in another form, if its language has one."""
        if form == "serialized" and content.kind is SchemaKind.PROTOBUF:
            source = self._loaded().source(content)
            return (await self._think(lambda: protobuf_serialized(source.read()))).decode()
        raise InvalidSchema(
            f"The form {form[:100]!r} of {content.kind} schemas is not supported; omit format, "
            "or request serialized for a Protobuf schema."
        )

    # Changes

    async def register(
        self, subject: Subject, request: Request, *, normalize: bool = False, force: bool = False
    ) -> Version:
        """Register a schema as a version of a subject, unless it is one already."""
        version = await self._writers.run(
            lambda: self._register(subject, request, normalize=normalize, force=force)
        )
        await self._settled_everywhere()
        return version

    async def delete_version(self, subject: Subject, number: int, *, permanent: bool) -> int:
        """Mark a version as deleted, or delete it permanently; return its number."""
        return await self._change(
            lambda registry: removal.delete_version(registry, subject, number, permanent=permanent)
        )

    async def delete_subject(self, subject: Subject, *, permanent: bool) -> list[int]:
        """The same for all versions of a subject; return their numbers."""
        return await self._change(
            lambda registry: removal.delete_subject(registry, subject, permanent=permanent)
        )

    async def set_config(self, subject: Subject, update: Callable[[Config], Config]) -> Config:
        """Change the settings of a subject, a context or the registry; return the new ones."""

        def decide(registry: Registry) -> tuple[Config, list[Change]]:
            has_own = registry.scopes.has_config(subject)
            before = registry.scopes.own_config(subject) if has_own else None
            if not has_own:
                self._check_settings(registry, subject)
            config = update(before or Config())
            return config, removal.set_config(registry, subject, config)

        return await self._change(decide)

    async def delete_config(self, subject: Subject) -> Config:
        """Delete settings; return what they were."""
        return await self._change(lambda registry: removal.delete_config(registry, subject))

    async def set_mode(self, subject: Subject, mode: Mode, *, force: bool) -> Mode:
        def decide(registry: Registry) -> tuple[Mode, list[Change]]:
            if not registry.scopes.has_mode(subject):
                self._check_settings(registry, subject)
            return mode, removal.set_mode(registry, subject, mode, force=force)

        return await self._change(decide)

    async def delete_mode(self, subject: Subject, *, recursive: bool) -> Mode | None:
        """Delete a mode; return what it was."""
        return await self._change(
            lambda registry: removal.delete_mode(registry, subject, recursive=recursive)
        )

    async def _register(
        self, subject: Subject, request: Request, *, normalize: bool, force: bool
    ) -> Version:
        registry = await self._ready_to_change()
        draft = registry.draft_of_register(subject, request, normalize=normalize)
        parsed = await self._think(draft.parse)
        registry = self._loaded()
        known = registry.find_registered(parsed)
        if known is not None:
            return known
        if registry.needs_check(subject) and not force:
            messages = await self._think(registry.check(parsed).run)
            if messages:
                raise _incompatible(subject, messages)
        registry = self._loaded()
        self._check_room(registry, subject.context, len(parsed.text))
        fact, changes = registry.register(parsed, now_ms=self._clock.wall_ms())
        self._write(registry, changes)
        version = registry.catalog.version(subject, fact.version)
        assert version is not None
        return version

    def _check_room(self, registry: Registry, context: str, text_length: int) -> None:
        """Raise if the tenant of a context has as many schemas, or contexts, as it may."""
        tenant = tenant_of(context[1:])
        used = registry.catalog.counts_of(tenant)
        self.check_quota(tenant, SCHEMA_VERSIONS, used.versions + 1)
        self.check_quota(tenant, SCHEMA_BYTES, used.text_length + text_length)
        if not registry.catalog.has_context(context):
            self.check_quota(tenant, CONTEXTS, used.contexts + 1)

    def _check_settings(self, registry: Registry, subject: Subject) -> None:
        """Raise if the tenant of a subject has as many settings and modes as it may."""
        tenant = tenant_of(subject.context[1:])
        self.check_quota(tenant, SCHEMA_SETTINGS, registry.scopes.count_of(tenant) + 1)

    async def _change(self, decide: Callable[[Registry], tuple[T, list[Change]]]) -> T:
        answer = await self._writers.run(lambda: self._decide(decide))
        await self._settled_everywhere()
        return answer

    async def _decide(self, decide: Callable[[Registry], tuple[T, list[Change]]]) -> T:
        registry = await self._ready_to_change()
        answer, changes = decide(registry)
        self._write(registry, changes)
        return answer

    def _think(self, work: Callable[[], T]) -> Coroutine[Promise[Any], None, T]:
        """Run work in a thread, after the work queued before it."""

        async def apart() -> T:
            promise: Promise[T] = Promise()
            self._clock.run_blocking(work, promise.settle)
            return await promise

        return self._thinkers.run(apart)

    # Leadership

    def lead(self, _: Partition) -> None:
        """Accept changes: this node now leads the topic."""
        self._replica.lead()

    def resign(self, _: Partition) -> None:
        """Stop accepting changes: this node no longer leads the topic."""
        self._replica.resign()

    def on_unreadable(self, found: Unreadable) -> None:
        """Call `found` if this node leads the topic and a later release has written in it."""
        self._replica.on_unreadable = found

    def subject_count(self) -> int:
        """Return the number of subjects, as far as the registry is applied here."""
        return self._replica.registry.catalog.subject_count

    def owner(self) -> int:
        """The node that accepts changes; -1 if there is none."""
        return self._replica.leader()

    def check_sure(self, question: bytes) -> None:
        """Raise a retryable error unless this registry is confirmed to be as recent as the
        leader's.
        """
        self._replica.check_sure(question)

    def _note_change(self) -> None:
        self.changes += 1

    async def _settled_everywhere(self) -> None:
        """Wait until everything written so far is durable, and applied by nodes that respond in
        time.
        """
        await self._settled()
        if self._replica.next_offset > self._told_offset:
            self._told_offset = self._replica.next_offset
            await self._replica.tell(self._replica.next_offset)

    # The topic

    def open(self) -> None:
        """Start loading the registry, if there is one."""
        self._replica.look()

    async def _ready_to_change(self) -> Registry:
        """The registry of the node that accepts changes, whose topic exists."""
        self._replica.check_leading()
        await self._topics.internal.ready(SCHEMAS_TOPIC)
        return await self._ready()

    async def _ready(self) -> Registry:
        """The registry, replayed in pieces if not loaded yet, yielding to the event loop."""
        while not self._replica.load_some():
            turn: Promise[None] = Promise()
            self._clock.call_soon(partial(turn.resolve, None))
            await turn
        return self._replica.registry

    def _loaded(self) -> Registry:
        """The registry, synchronously: a caller that cannot wait replays it to the end."""
        while not self._replica.load_some():
            pass
        return self._replica.registry

    def _write(self, registry: Registry, changes: list[Change]) -> None:
        """Write and apply changes; `_settled` resolves when they are durable."""
        if not changes:
            return
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        self._replica.check_leading()
        partition = self._topics.get(SCHEMAS_TOPIC).partition(0)
        partition.check_leading()
        refusal = partition.failure or partition.shortage
        if refusal is not None:
            raise refusal
        now_ms = self._clock.wall_ms()
        last_offset = partition.end_offset - 1
        try:
            for records in _batches([to_record(change, now_ms=now_ms) for change in changes]):
                batch = memoryview(encode_batch(records))
                last_offset = partition.write(batch, now_ms=now_ms).last_offset
        except GoQueueError as error:
            # A part of a large change may be written; the topic is authoritative.
            failure = error
            partition.when_committed(last_offset, lambda _: self._written(failure))
            raise
        for change in changes:
            gone_or_fact = read_gone(change.key) if change.fact is None else change.fact
            if gone_or_fact is not None:
                registry.apply(gone_or_fact)
        self._replica.wrote(last_offset)
        self.changes += 1
        partition.when_committed(last_offset, self._written)

    def _written(self, error: GoQueueError | None) -> None:
        if error is not None:
            # Changes that could not be made durable are discarded; the durable ones are replayed.
            _log.error("schemas could not be stored: %s", error)
            self._replica.forget()

    def _settled(self) -> Promise[None]:
        """Resolves when everything written so far is durable."""
        promise: Promise[None] = Promise()
        topic = self._topics.find(SCHEMAS_TOPIC)
        if topic is None or not self._replica.is_leading:
            promise.resolve(None)  # What other nodes wrote is committed if it is applied here.
        else:
            topic.partitions[0].when_committed(
                self._replica.next_offset - 1, lambda error: promise.settle(None, error)
            )
        return promise


def _batches(records: list[Record]) -> list[list[Record]]:
    """Split records, in order, into batches of reasonable size."""
    batches: list[list[Record]] = [[]]
    size = 0
    for record in records:
        size += len(record.key or b"") + len(record.value or b"")
        if size > BATCH_BYTES_MAX and batches[-1]:
            batches.append([])
            size = 0
        batches[-1].append(record)
    return batches


def _incompatible(subject: Subject, messages: list[str]) -> SchemaRefused:
    return SchemaRefused(
        SchemaRefusal.INCOMPATIBLE,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(messages)}]",
    )
