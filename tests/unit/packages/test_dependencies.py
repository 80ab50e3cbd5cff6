"""What each extra installs is what the code behind it imports, and the base is what clients do."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from goqueue.cli.extras import SCHEMA_MODULES, SERVER_MODULES
from tools.packages.check_compiled import COMPILED_MODULES

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "src"
# Names of distributions for the modules they bring, where the two differ.
DISTRIBUTIONS = {
    "google.protobuf": "protobuf",
    "google.type": "googleapis-common-protos",
    "google.rpc": "googleapis-common-protos",
    "re2": "google-re2",
    "yaml": "pyyaml",
    "jsonschema_rs": "jsonschema-rs",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
}
# Rooms by what has to be installed for them. A module that imports one of an extra only where it
# is called belongs to who calls it.
SERVER_ROOMS = re.compile(
    r"goqueue\.(broker|cluster|delivery|groups|loop|metrics|partition|runtime|storage|tenancy"
    r"|tracing|transactions|wire|schemas|model|config)\b"
)
GRPC_ROOMS = re.compile(r"goqueue\.(client\.grpc|wire\.grpc)\b")
SPARK_ROOMS = re.compile(
    r"goqueue\.(spark|cli\.commands\.pipeline)\b|pyspark_goqueue|.*\.decode_vectors$"
)


@cache
def project() -> dict[str, list[str]]:
    """The names of distributions in the base ("") and in each extra, with those it includes."""
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"": table["dependencies"], **table["optional-dependencies"]}
    return {extra: list(_names(extra, extras)) for extra in extras}


def _names(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    for text in extras[extra]:
        included = re.fullmatch(r"goqueue\[(\w+)\]", text)
        if included is not None:
            yield from _names(included[1], extras)
        else:
            yield re.split(r"[<>=\[ ;]", text)[0]


def imports(file: Path) -> Iterator[str]:
    """The modules of other distributions that a module names, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
            names = [node.module]
            if node.module == "google":
                names = [f"google.{alias.name}" for alias in node.names]
        for name in names:
            first = name.split(".")[0]
            if first not in sys.stdlib_module_names and first not in ("goqueue", "pyspark_goqueue"):
                yield ".".join(name.split(".")[: 2 if first == "google" else 1])


@cache
def modules() -> dict[str, set[str]]:
    """Every module with the distributions that it imports; generated messages come in thousands."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        path = file.relative_to(SOURCE)
        if "kafka/messages" not in path.as_posix():
            names = {DISTRIBUTIONS.get(name, name) for name in imports(file)}
            found[".".join(path.with_suffix("").parts)] = names
    return found


def allowed(module: str) -> set[str]:
    """What may be installed where this module is imported."""
    known = project()
    names = set(known[""])
    if SPARK_ROOMS.match(module):
        names |= {*known["spark"], "py4j"}  # which comes with Spark
    if GRPC_ROOMS.match(module):
        names |= set(known["grpc"])
    if SERVER_ROOMS.match(module):
        names |= set(known["server"])
    return names


def test_every_import_is_a_declared_dependency_of_its_extra() -> None:
    undeclared = {
        module: sorted(missing)
        for module, used in modules().items()
        if (missing := used - allowed(module))
    }
    assert not undeclared


def test_every_declared_dependency_is_imported() -> None:
    used = {name for names in modules().values() for name in names}
    idle = {
        f"{extra}: {name}"
        for extra, names in project().items()
        for name in names
        if name not in used and name != "pandas"  # Spark needs that one
    }
    assert not idle


@pytest.mark.parametrize(
    ("checked", "extra"), [(SCHEMA_MODULES, "schemas"), (SERVER_MODULES, "server")]
)
def test_commands_look_for_all_packages_of_their_extra(
    checked: tuple[str, ...], extra: str
) -> None:
    assert {DISTRIBUTIONS.get(name, name) for name in checked} == set(project()[extra])


def test_the_check_of_wheels_names_all_compiled_modules() -> None:
    sources = {
        ".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in SOURCE.rglob("_*.c")
    }
    assert set(COMPILED_MODULES) == sources
