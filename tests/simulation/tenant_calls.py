"""Random calls of every operation, and a search of the answers for what belongs to others.

Arguments are made from the annotations of operations, so an operation that is added is called too.
Each tenant has topics, groups and messages whose names and contents contain a token that occurs
nowhere else. Clients also send what they could have seen or stolen: ids, receipts and names of
others. A token in an answer that neither is the client's own nor was in its request is a leak.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from random import Random
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from goqueue.broker.gate.operation import OPERATIONS, Operation
from goqueue.broker.queues.records import Received
from goqueue.broker.reading.positions import EARLIEST, Span
from goqueue.loop.promise import Cancellation
from goqueue.model.batch import Record
from goqueue.model.names import INTERNAL_TOPICS
from goqueue.model.session import Session
from goqueue.model.tenants import NameKind
from goqueue.schemas.names import Subject

TOKEN = re.compile(r"zq([a-z]+)q\d+")
SHARED = ("orders", "work", "orders.dlq", "jobs", "s")
# They change who the clients are, or end them.
LEFT_OUT = re.compile(r"users\.|tenants\.(create|delete|set_state)|quotas\.|topics\.delete")
OPTIONAL_CHANCE = 0.3


def operations() -> list[Operation]:
    return [one for one in OPERATIONS.values() if not LEFT_OUT.match(one.name)]


class Loot:
    """What all clients have seen so far, for others to try."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.texts: list[str] = []
        self.bytes: list[bytes] = []
        self.ids: dict[str, list[str]] = {}  # by the arguments that they are for

    def id_for(self, argument: str) -> str | None:
        """An id that somebody got for such an argument."""
        found = self.ids.get(argument.removesuffix("s"))
        return self._random.choice(found) if found else None

    def add_id(self, argument: str, value: str) -> None:
        self.ids.setdefault(argument, []).append(value)

    def add(self, answer: Any) -> None:
        for value in leaves(answer):
            # Names of others are guessed, not stolen: a client may store what it sends.
            if isinstance(value, str) and 4 <= len(value) <= 300 and not TOKEN.search(value):
                self.texts = [*self.texts[-200:], value]
            elif isinstance(value, bytes) and len(value) == 16:
                self.bytes = [*self.bytes[-50:], value]

    def text(self) -> str:
        return self._random.choice(self.texts or ["x"])


class Arguments:
    """Makes arguments of a type."""

    def __init__(self, random: Random, session: Session, loot: Loot) -> None:
        self._random = random
        self._session = session
        self._loot = loot

    def of(self, operation: Operation) -> dict[str, Any]:
        hints = get_type_hints(operation.perform, include_extras=True)
        made: dict[str, Any] = {}
        for one in inspect.signature(operation.perform).parameters.values():
            if one.kind is not inspect.Parameter.KEYWORD_ONLY:
                continue
            is_left_out = one.default is not inspect.Parameter.empty and self._random.random() < 0.6
            if not is_left_out:
                made[one.name] = self.value(hints[one.name], one.name)
        return made

    def name(self) -> str:
        """A name: shared by all, the client's own, stolen, or a guess at an inner name."""
        random, tenant = self._random, self._session.tenant or "plain"
        kind = random.random()
        if kind < 0.45:
            return random.choice(SHARED)
        if kind < 0.8:
            return f"zq{tenant}q{random.randrange(8)}"
        if kind < 0.85:
            return self._loot.text()
        if kind < 0.92:
            return random.choice(sorted(INTERNAL_TOPICS))  # They contain what all tenants have.
        # In a tenant, these are names as good as any; in the default one they are refused.
        guesses = ("~acme~orders", "~other~work", "~acme~zqacmeq0", "~other~zqotherq0")
        return random.choice(guesses[:2] if self._session.tenant else guesses)

    def value(self, kind: Any, name: str = "", depth: int = 0) -> Any:
        random, origin, kinds = self._random, get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._annotated(kinds, name, depth)
        if isinstance(kind, NewType):
            return self.value(kind.__supertype__, name, depth)
        if origin in (Union, UnionType):
            if NoneType in kinds and random.random() < OPTIONAL_CHANCE:
                return None
            rest = [one for one in kinds if one is not NoneType]
            return self.value(random.choice(rest), name, depth)
        if origin is Literal:
            return random.choice(kinds)
        if origin is not None:
            return self._container(origin, kinds, name, depth)
        return self._plain(kind, name, depth)

    def _annotated(self, kinds: Sequence[Any], name: str, depth: int) -> Any:
        plain, *notes = kinds
        note = next((one for one in notes if isinstance(one, NameKind)), NameKind.NONE)
        if note is NameKind.QUEUE_SETTINGS:
            return {"dead_letter_topic": self.name()} if self._random.random() < 0.5 else {}
        if note is NameKind.PATTERN:
            return self._random.choice(["", ".*", ".*zq.*"])
        if note in (NameKind.NAME_PREFIX, NameKind.SUBJECT_PREFIX, NameKind.CONTEXT_PREFIX):
            return self._random.choice(["", "zq", ":*:", ":.", "~acme~"])
        if note is NameKind.CONTEXT:
            return self._random.choice([".", ".sales", ".~acme~"])
        if note is NameKind.NONE:
            if plain is not str:
                return self.value(plain, name, depth)
            known = self._loot.id_for(name)
            if known is not None:
                return known
            return self._loot.text() if self._random.random() < 0.7 else self._word(name)
        if note is NameKind.REFERENCE:
            return self._random.choice(SHARED)
        if note is NameKind.TRANSACTION:
            return self._loot.id_for(name) or self._loot.text()
        return self.name()

    def _word(self, name: str) -> str:
        words = {
            "text": '{"type": "string"}',
            "protocol_type": "consumer",
            "subscribed_regex": ".*",
            "form": "",
            "after": "",
        }
        return words.get(name, "x")

    def _container(self, origin: Any, kinds: Sequence[Any], name: str, depth: int) -> Any:
        count = self._random.randrange(3)
        if issubclass(origin, Mapping):
            return {
                self.value(kinds[0], name, depth + 1): self.value(kinds[1], name, depth + 1)
                for _ in range(count)
            }
        if origin is tuple and kinds[-1] is not Ellipsis:
            return tuple(self.value(one, name, depth + 1) for one in kinds)
        items = [self.value(kinds[0], name, depth + 1) for _ in range(count)]
        if issubclass(origin, Set):
            return frozenset(items)
        return tuple(items) if origin is tuple else items

    def _plain(self, kind: Any, name: str, depth: int) -> Any:
        random = self._random
        if kind is bool:
            return random.random() < 0.4
        if kind is int:
            if name in ("limit", "records_max", "messages_max", "bytes_max", "timeout_ms"):
                return 1000
            return random.choice([0, 0, 1, 1, 2, -1, 60_000]) if name != "wait_ms" else 0
        if kind is float:
            return 1.0
        if kind is bytes:
            return random.choice(self._loot.bytes or [b"x"])
        if kind is str:
            return self._word(name)
        if kind is Cancellation:
            return Cancellation()
        if kind is Span:
            return Span(random.randrange(4), EARLIEST)  # Others hardly ever select a record.
        if kind is Record:
            token = f"zq{self._session.tenant or 'plain'}q{random.randrange(1000, 2000)}"
            return Record(None, token.encode())
        if kind is Any or kind is object:
            return None
        if isinstance(kind, type) and issubclass(kind, Enum):
            return random.choice(list(kind))
        return self._object(kind, depth)

    def _object(self, kind: Any, depth: int) -> Any:
        if kind is Subject:
            own = f"zq{self._session.tenant or 'plain'}q{self._random.randrange(8)}"
            context = self._random.choice([".", ".", ".sales", ".~acme~"])
            return Subject(context, self._random.choice([*SHARED, own]))
        hints = get_type_hints(kind, include_extras=True)
        parameters = inspect.signature(kind).parameters.values()
        made = {
            one.name: self.value(hints[one.name], one.name, depth + 1)
            for one in parameters
            if one.name in hints
            and (one.default is inspect.Parameter.empty or self._random.random() < 0.5)
        }
        return kind(**made)


# Answers


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Every text and every run of bytes in an answer, an error or an argument."""
    if value is None or depth > 12 or isinstance(value, bool | int | float | Cancellation):
        return
    if isinstance(value, str):
        yield value if not isinstance(value, Enum) else ""
    elif isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)
    elif isinstance(value, BaseException):
        yield str(value)
        yield from leaves(vars(value), depth + 1)
    elif isinstance(value, Received):
        yield value.topic
        for message in value:
            yield from leaves(tuple(message)[:2], depth + 1)
            yield message.delivery.receipt
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(key, depth + 1)
            yield from leaves(one, depth + 1)
    elif isinstance(value, tuple | list | Set | range):
        for one in value:
            yield from leaves(one, depth + 1)
    else:
        yield from leaves(_attributes(value), depth + 1)


def _attributes(value: Any) -> Iterable[Any]:
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, one.name) for one in fields(value)]
    # Results and live views: what a front end reads.
    names = ("name", "id", "own_settings", "records", "places", "damaged", "partition", "results")
    return [getattr(value, name) for name in names if hasattr(value, name)]


def tokens(value: Any) -> set[str]:
    found: set[str] = set()
    for leaf in leaves(value):
        text = leaf if isinstance(leaf, str) else leaf.decode("utf-8", "replace")
        found.update(match[0] for match in TOKEN.finditer(text))
    return found


def leaked(session: Session, arguments: Any, answer: Any) -> set[str]:
    """The tokens of others in an answer, unless the client has sent them itself."""
    own = f"zq{session.tenant or 'plain'}q"
    return {one for one in tokens(answer) - tokens(arguments) if not one.startswith(own)}
