"""The walls between the rooms: who may import whom, and which words the core may not say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "goqueue"

_NEIGHBOURS = {
    *("groups", "delivery", "schemas", "transactions", "cluster", "tenancy", "metrics", "tracing"),
}
_PARTITION = {"partition", "storage", "model"}
_CODECS = "wire codecs"
_JOURNAL = "journal codecs"
_FORMATS = "schema formats"
_CORE = {"broker", "loop", _JOURNAL, _FORMATS, *_NEIGHBOURS, *_PARTITION}
_GATE = "broker gate"  # the one way from a front end into the core

# What each room may import, besides itself. Neighbours are absent from each other's rows.
MAY_IMPORT: Mapping[str, set[str]] = {
    "model": set(),
    "loop": {"model"},
    "storage": {"model"},
    "partition": {"storage", "model"},
    **dict.fromkeys(_NEIGHBOURS, _PARTITION),
    _JOURNAL: {"model"},
    "tracing": {_JOURNAL, *_PARTITION},
    _FORMATS: {"model"},
    "schemas": {_FORMATS, *_PARTITION},
    "broker": {"loop", _JOURNAL, _FORMATS, *_NEIGHBOURS, *_PARTITION},
    _CODECS: {"model"},
    "wire": {_CODECS, _GATE, "loop", "model"},
    "backups": {"model"},
    "runtime": {"wire", _CODECS, *_CORE, "backups", "config"},
    "client": {_CODECS, _FORMATS, "model"},
    "console": {"client", "model"},
    "spark": {"client", _CODECS, _JOURNAL, "model"},
    # The command line manages a broker through the client alone; only `serve` runs one.
    # Pipelines are commands as well, and run where the command does.
    "cli": {"runtime", "client", "spark", "backups", "model", "config"},
    "config": {"model"},
    "__main__": {"cli"},
    # Names of the clients that are loaded when they are first used.
    "__init__": {"client", "model"},
    "grpc": {"client", "model"},
}
# Of the HTTP front end the client shares what crosses the wire: fields, problem details, and those
# bodies that are made of nothing else. Bodies that show structs of the core are the server's alone.
_HTTP_BODIES = (
    "acls",
    "audit",
    "backups",
    "cluster",
    "groups",
    "journeys",
    "messages",
    "node",
    "queries",
    "quotas",
    "registry",
    "reports",
    "schedules",
    "tenants",
    "topics",
    "transactions",
    "users",
)
# What `__journeys` contains. Clients read that topic, so its encoding is shared with them.
JOURNAL_MODULES = ("goqueue.tracing.encoding", "goqueue.tracing.events")
# The schema languages: functions of texts and bytes, with which clients write and read payloads.
FORMAT_MODULES = ("goqueue.schemas.formats",)
CODEC_MODULES = (
    *(f"goqueue.wire.kafka.{name}" for name in ("messages", "primitives", "api")),
    *(f"goqueue.wire.carrier.{name}" for name in ("bodies", "problems")),
    "goqueue.wire.grpc.messages",
    "goqueue.wire.http.fields",
    *(f"goqueue.wire.http.bodies.{name}" for name in _HTTP_BODIES),
)

# A room receives its section as a value and may name its class, and nothing else of `config`. The
# broker joins the rooms, so it is handed all sections. Reading the sources, and the syntax of
# values, are for those who start a process.
CONFIG_READERS = {"runtime", "cli"}
ROOMS_WITH_ALL_SECTIONS = {"broker"}
ROOMS_WITHOUT_CONFIG = {"model", "loop", "wire", _CODECS, "client", "console", "spark"}

# Inside `config`, kinds do not depend on which settings exist, and sections not on each other.
MAY_IMPORT_IN_CONFIG: Mapping[str, set[str]] = {
    "kinds": set(),
    "listener_kinds": {"kinds"},
    "export_kinds": {"kinds"},
    "fields": {"kinds"},
}
MAY_A_SECTION_IMPORT = {"kinds", "listener_kinds", "export_kinds", "fields"}
ALL_SECTIONS_MEET_IN = {"", "settings", "consistency", "reading"}

# The rooms inside `broker`, each with those it may import. Modules in `broker` itself join
# all of them, and no room imports those.
_NODE = {"durability", "controller", "topics", "replication"}
MAY_IMPORT_IN_BROKER: dict[str, set[str]] = {
    "durability": set(),
    "controller": {"durability"},
    "topics": {"durability", "controller"},
    "identities": _NODE,
    "audit": {"reading", *_NODE},
    "backups": _NODE,
    "quotas": _NODE | {"queues", "schedules", "streams"},
    "replication": _NODE,
    "shards": _NODE,
    "reading": _NODE,
    "streams": {"shards", "reading", *_NODE},
    "schedules": {"shards", *_NODE},
    "schemas": _NODE,
    "queues": {"shards", "reading", *_NODE},
    "share_groups": {"streams", "queues", *_NODE},
    "publishing": {"schedules", *_NODE},
    "named_queues": {"queues", "publishing", "reading", *_NODE},
    "journeys": {"shards", "queues", *_NODE},
    "redrives": {"queues", "reading", "shards", *_NODE},
    "metrics": _NODE
    | {
        *("queues", "schedules", "streams", "schemas", "transactions"),
        *("reading", "shards", "quotas", "journeys"),
    },
    "transactions": {"streams", "queues", "schedules", "publishing", "shards", *_NODE},
    "history": {"metrics", "queues", "streams", *_NODE},
}
# The gate leads into all rooms, and to the modules that join them.
MAY_IMPORT_IN_BROKER["gate"] = {"", *MAY_IMPORT_IN_BROKER}

FRONT_ENDS = {"kafka", "sqs", "http", "grpc"}
# What carries requests over HTTP/1.1, whatever they ask for, and who is carried by it; gRPC shares
# the syntax of credentials and the table of problems.
CARRIER = "carrier"
CARRIED = {"http", "sqs", "grpc"}
FRONT_END_WORDS = re.compile("|".join(sorted(FRONT_ENDS)), re.IGNORECASE)


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    importer: str  # dotted names of modules
    module: str
    name: str  # what is taken out of `module`, or nothing

    @property
    def target(self) -> str:
        """The room that is entered, whether by `from goqueue import x` or by a longer path."""
        full = f"{self.module}.{self.name}" if self.name else self.module
        return room_of(full)


def broken_arrows(source: Path) -> list[str]:
    """One sentence for each import that goes through a wall."""
    return [sentence for found in imports_in(source) if (sentence := _complaint(found))]


def forbidden_words(source: Path) -> list[str]:
    """One sentence for each name in the core that belongs to a front end."""
    sentences = []
    for file in sorted(source.rglob("*.py")):
        module = _module_name(source, file)
        if room_of(module) in _CORE:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            names = [(1, module), *_identifiers(tree)]
            sentences += [
                f"{file.relative_to(source)}:{line} says {name!r}; the core knows no front end."
                for line, name in names
                if FRONT_END_WORDS.search(name)
            ]
    return sentences


def imports_in(source: Path) -> Iterator[Import]:
    """Every import of goqueue under `source`, also those inside functions."""
    for file in sorted(source.rglob("*.py")):
        importer = _module_name(source, file)
        is_package = file.name == "__init__.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for module, name in _imported(node, importer, is_package=is_package):
                if module.split(".")[0] == "goqueue":
                    where = str(file.relative_to(source))
                    yield Import(where, node.lineno, importer, module, name)


def room_of(module: str) -> str:
    """The room a dotted module name stands in."""
    shared = ((_CODECS, CODEC_MODULES), (_JOURNAL, JOURNAL_MODULES), (_FORMATS, FORMAT_MODULES))
    for room, modules in shared:
        if any(module == codec or module.startswith(f"{codec}.") for codec in modules):
            return room
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _complaint(found: Import) -> str | None:
    here, there = room_of(found.importer), found.target
    place = f"{found.file}:{found.line}"
    if here not in MAY_IMPORT:
        return f"{place}: the room {here!r} has no row in MAY_IMPORT."
    ends = _front_end(found.importer), _front_end(found.module)
    is_carried = ends[0] in CARRIED and ends[1] == CARRIER
    if all(ends) and ends[0] != ends[1] and not is_carried:
        return f"{place}: wire/{ends[0]} > wire/{ends[1]} is no arrow; front ends are neighbours."
    if here == "wire" and _is_gate(found):
        there = _GATE
    if there == here == "config":
        return _config_arrow_complaint(found, place)
    if there == here:
        return _broker_complaint(found, place) if here == "broker" else None
    if there == "config" and here not in CONFIG_READERS:
        return _config_complaint(found, here)
    if there not in MAY_IMPORT[here]:
        return f"{place}: {here} > {there} is no arrow; {found.importer} imports {found.module}."
    return None


def _is_gate(found: Import) -> bool:
    return f"{found.module}.{found.name}".startswith("goqueue.broker.gate.")


def _broker_complaint(found: Import, place: str) -> str | None:
    here, there = _broker_room(found.importer), _broker_room(found.module)
    if not here or here == there:
        return None
    if here not in MAY_IMPORT_IN_BROKER:
        return f"{place}: the room 'broker/{here}' has no row in MAY_IMPORT_IN_BROKER."
    if there not in MAY_IMPORT_IN_BROKER[here]:
        target = f"broker/{there}" if there else "broker"
        return f"{place}: broker/{here} > {target} is no arrow; it imports {found.module}."
    return None


def _broker_room(module: str) -> str:
    """The room inside `broker` that a module stands in; none for those that join the rooms."""
    parts = module.split(".")
    is_module = (SOURCE / "broker" / f"{'.'.join(parts[2:3])}.py").exists()
    return "" if is_module else ".".join(parts[2:3])


def _config_complaint(found: Import, here: str) -> str | None:
    place = f"{found.file}:{found.line}"
    if here in ROOMS_WITHOUT_CONFIG or not found.name or found.module == "goqueue":
        return f"{place}: {here} > config is no arrow; {found.importer} imports {found.module}."
    is_section = found.module == "goqueue.config" and found.name.endswith("Settings")
    is_whole = found.name == "Settings" and here not in ROOMS_WITH_ALL_SECTIONS
    if is_whole or not is_section:
        return (
            f"{place}: {here} takes {found.name!r} from {found.module}; a room may name its own "
            "section in goqueue.config, only runtime and cli read the settings."
        )
    return None


def _config_arrow_complaint(found: Import, place: str) -> str | None:
    here, there = (".".join(module.split(".")[2:3]) for module in (found.importer, found.module))
    if here in ALL_SECTIONS_MEET_IN and there:
        return None
    if there in MAY_IMPORT_IN_CONFIG.get(here, MAY_A_SECTION_IMPORT):
        return None
    target = f"config/{there}" if there else "config"
    return f"{place}: config/{here} > {target} is no arrow; it imports {found.module}."


def _front_end(module: str) -> str:
    """The folder of `wire` that a module stands in; they are neighbours too."""
    parts = module.split(".")
    is_known = parts[1:2] == ["wire"] and {*FRONT_ENDS, CARRIER} & set(parts[2:3])
    return parts[2] if is_known else ""


def _imported(node: ast.AST, importer: str, *, is_package: bool) -> list[tuple[str, str]]:
    if isinstance(node, ast.Import):
        return [(alias.name, "") for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    module = node.module or ""
    if node.level:
        base = importer.split(".")
        base = base[: len(base) - node.level + is_package]
        module = ".".join([*base, module] if module else base)
    return [(module, alias.name) for alias in node.names]


def _identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for attribute in ("id", "attr", "arg", "name", "asname", "module"):
            name = getattr(node, attribute, None)
            if isinstance(name, str):
                yield getattr(node, "lineno", 1), name


def _module_name(source: Path, file: Path) -> str:
    parts = list(file.relative_to(source).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(["goqueue", *parts])


def test_imports_point_one_way() -> None:
    assert broken_arrows(SOURCE) == []


def test_the_core_does_not_name_a_front_end() -> None:
    assert forbidden_words(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "text", "arrow"),
    [
        ("storage/log.py", "from goqueue.partition import append", "storage > partition"),
        ("groups/join.py", "from goqueue.delivery.leases import Leases", "groups > delivery"),
        ("groups/join.py", "import goqueue.broker.api", "groups > broker"),
        ("broker/api.py", "from goqueue.wire.kafka import server", "broker > wire"),
        ("client/admin.py", "from goqueue.wire.kafka.server import X", "client > wire"),
        ("client/admin.py", "from goqueue.broker import Broker", "client > broker"),
        ("client/http/payloads.py", "from goqueue.schemas.catalog import X", "client > schemas"),
        ("spark/table.py", "from goqueue.tracing.gathering import merge", "spark > tracing"),
        ("cli/topic.py", "def f():\n    from goqueue.broker import Broker", "cli > broker"),
        ("model/names.py", "from goqueue import storage", "model > storage"),
        ("partition/log.py", "from ..groups import join", "partition > groups"),
        ("wire/kafka/primitives.py", "from goqueue.wire.kafka import server", "codecs > wire"),
        ("wire/kafka/server.py", "from goqueue.wire.sqs import server", "kafka > wire/sqs"),
        ("wire/kafka/server.py", "from goqueue.wire.carrier import calls", "kafka > wire/carrier"),
        ("wire/carrier/calls.py", "from goqueue.wire.http.fields import x", "carrier > wire/http"),
        ("wire/sqs/server.py", "from goqueue.wire.http.handlers import x", "sqs > wire/http"),
        ("wire/http/server.py", "from goqueue.wire.sqs.errors import x", "http > wire/sqs"),
        ("model/names.py", "from goqueue.config import TopicSettings", "model > config"),
        ("storage/log.py", "from goqueue.config import load", "storage takes 'load'"),
        ("storage/log.py", "import goqueue.config", "storage > config"),
        ("storage/log.py", "import goqueue.config.reading", "storage > config"),
        ("storage/log.py", "from goqueue.config import reading", "storage takes 'reading'"),
        ("storage/log.py", "from goqueue.config.reading import load", "storage takes 'load'"),
        ("storage/log.py", "from goqueue.config import SETTINGS", "storage takes 'SETTINGS'"),
        ("storage/log.py", "from goqueue.config import Settings", "storage takes 'Settings'"),
        ("storage/log.py", "from goqueue.config.kinds import Number", "storage takes 'Number'"),
        (
            "storage/log.py",
            "from goqueue.config.storage import StorageSettings",
            "from goqueue.config.storage; a room may name its own section",
        ),
        ("client/batching.py", "from goqueue.config.kinds import SIZE", "client > config"),
        ("config/kinds.py", "from goqueue.config.fields import x", "config/kinds > config/fields"),
        ("config/node.py", "from goqueue.config.cluster import x", "config/node > config/cluster"),
        ("config/attic.py", "from goqueue.config.node import x", "config/attic > config/node"),
        ("config/storage.py", "from goqueue.config import load", "config/storage > config"),
        ("config/reading.py", "from goqueue.config import Settings", "config/reading > config"),
        ("config/node.py", "from goqueue.runtime import serve", "config > runtime"),
        ("attic/old.py", "from goqueue.model import names", "'attic' has no row"),
        ("wire/kafka/server.py", "from goqueue.broker import Broker", "wire > broker"),
        ("wire/http/server.py", "from goqueue.broker.queues.host import X", "wire > broker"),
        ("wire/sqs/server.py", "from goqueue.delivery import Lease", "wire > delivery"),
        (
            "broker/topics/topics.py",
            "from goqueue.broker.replication.leaders import Leaders",
            "broker/topics > broker/replication",
        ),
        (
            "broker/queues/host.py",
            "from goqueue.broker.schedules import schedules",
            "broker/queues > broker/schedules",
        ),
        ("broker/queues/host.py", "from goqueue.broker import Broker", "broker/queues > broker"),
        (
            "broker/queues/host.py",
            "from goqueue.broker.administration import Administration",
            "broker/queues > broker",
        ),
        (
            "broker/attic/old.py",
            "from goqueue.broker.topics.topics import Topics",
            "'broker/attic' has no row",
        ),
    ],
)
def test_a_broken_arrow_is_named(tmp_path: Path, file: str, text: str, arrow: str) -> None:
    _write(tmp_path, file, text)
    assert [arrow in sentence for sentence in broken_arrows(tmp_path)] == [True]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("storage/log.py", "from goqueue.model.names import Offset"),
        ("storage/log.py", "from goqueue.config import StorageSettings"),
        ("storage/log.py", "from .segment import Segment\nimport os"),
        ("broker/api.py", "from goqueue.groups import Groups\nfrom goqueue.storage import Log"),
        ("wire/kafka/server.py", "from goqueue.wire.kafka.messages import produce"),
        ("wire/kafka/messages/produce.py", "from goqueue.wire.kafka.primitives import Reader"),
        ("wire/sqs/server.py", "from goqueue.wire.carrier.calls import Call"),
        ("wire/http/server.py", "from goqueue.wire.carrier.calls import Call"),
        ("client/http/reading.py", "from goqueue.wire.carrier.problems import Problem"),
        ("client/http/payloads.py", "from goqueue.schemas.formats import decoder"),
        ("client/admin.py", "from goqueue.wire.kafka import primitives"),
        ("spark/table.py", "from goqueue.tracing.encoding import decode_head"),
        ("runtime/serve.py", "from goqueue.config import Settings, load"),
        ("broker/broker.py", "from goqueue.config import Settings"),
        ("cli/moments.py", "from goqueue.config.kinds import DURATION, Number"),
        ("config/attic.py", "from goqueue.config.fields import count"),
        ("config/__init__.py", "from goqueue.config.storage import StorageSettings"),
        ("cli/serve.py", "from goqueue.runtime.serve import run"),
        ("broker/queues/host.py", "from goqueue.broker.topics.topics import Topic"),
        ("wire/kafka/server.py", "from goqueue.broker.gate.areas.queues import Received"),
        ("wire/http/server.py", "from goqueue.broker.gate import Gate"),
        ("wire/http/server.py", "from goqueue.loop.promise import Promise"),
        ("broker/administration.py", "from goqueue.broker.queues.queues import Queues"),
    ],
)
def test_an_import_along_an_arrow_is_fine(tmp_path: Path, file: str, text: str) -> None:
    _write(tmp_path, file, text)
    assert broken_arrows(tmp_path) == []


def test_a_front_end_named_in_the_core_is_found(tmp_path: Path) -> None:
    _write(tmp_path, "groups/join.py", "'''Kafka clients join twice.'''\nkafka_version = 3")
    _write(tmp_path, "wire/kafka/server.py", "kafka_version = 3")
    assert [sentence.split(" says ")[0] for sentence in forbidden_words(tmp_path)] == [
        "groups/join.py:2"
    ]


def _write(source: Path, file: str, text: str) -> None:
    path = source / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
