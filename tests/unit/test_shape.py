"""The shape of the code: limits that keep a module, a folder and an object readable."""

from __future__ import annotations

import ast
import statistics
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "goqueue"
GENERATED = {SOURCE / "wire" / one / "messages" for one in ("kafka", "grpc")}

MODULE_LINES_MAX = 600
FOLDER_MODULES_MAX = 25
PUBLIC_METHODS_MAX = 30
CONSTRUCTOR_PARAMETERS_MAX = 8
FUNCTION_LINES_MEDIAN_MAX = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Class(NamedTuple):
    """A class, with its bases as far as they are GoQueue's own."""

    module: str
    node: ast.ClassDef
    bases: list[tuple[str, str]]  # module and name

    @property
    def functions(self) -> list[Function]:
        return [one for one in self.node.body if isinstance(one, Function)]


@cache
def modules() -> dict[Path, ast.Module]:
    """Every module that people write, parsed."""
    return {
        file: ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
        if not GENERATED.intersection(file.parents)
    }


@cache
def classes() -> dict[tuple[str, str], Class]:
    found = {}
    for file, tree in modules().items():
        module = _name(file)
        imported = _imported(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = [_base(base) for base in node.bases]
                bases = [imported.get(name, (module, name)) for name in names]
                found[module, node.name] = Class(module, node, bases)
    return found


def test_modules_are_short_enough_to_read() -> None:
    long = {
        str(file.relative_to(SOURCE)): lines
        for file in modules()
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    }
    assert not long, f"more than {MODULE_LINES_MAX} lines: {long}"


def test_folders_have_few_enough_modules_to_see() -> None:
    folders = [SOURCE, *(one for one in SOURCE.rglob("*") if one.is_dir() and one not in GENERATED)]
    large = {
        str(folder.relative_to(SOURCE)): count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > FOLDER_MODULES_MAX
    }
    assert not large, f"more than {FOLDER_MODULES_MAX} modules: {large}"


def test_objects_have_parts_instead_of_many_methods() -> None:
    known = classes()
    large = {
        f"{module}.{name}": len(methods)
        for module, name in known
        if len(methods := _public_methods(known, (module, name))) > PUBLIC_METHODS_MAX
    }
    assert not large, f"more than {PUBLIC_METHODS_MAX} public methods: {large}"


def test_constructors_take_few_enough_parameters_to_name() -> None:
    large = {
        f"{one.module}.{one.node.name}": count
        for one in classes().values()
        if (count := _constructor_parameters(one)) > CONSTRUCTOR_PARAMETERS_MAX
    }
    assert not large, f"more than {CONSTRUCTOR_PARAMETERS_MAX} parameters: {large}"


def test_most_functions_are_seen_at_a_glance() -> None:
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    ]
    assert statistics.median(lengths) <= FUNCTION_LINES_MEDIAN_MAX


def _public_methods(known: dict[tuple[str, str], Class], key: tuple[str, str]) -> set[str]:
    """The public methods and properties of a class, inherited ones included."""
    found = known.get(key)
    if found is None:
        return set()
    own = {one.name for one in found.functions if not one.name.startswith("_")}
    return own.union(*(_public_methods(known, base) for base in found.bases if base != key))


def _constructor_parameters(one: Class) -> int:
    """The parameters of `__init__`; of a mutable dataclass, the fields without a default."""
    for function in one.functions:
        if function.name == "__init__":
            arguments = function.args
            return len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs) - 1
    decorators = [ast.unparse(decorator) for decorator in one.node.decorator_list]
    if not any("dataclass" in name and "frozen=True" not in name for name in decorators):
        return 0
    return sum(isinstance(node, ast.AnnAssign) and node.value is None for node in one.node.body)


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _base(node: ast.expr) -> str:
    """The name of a base class, without the parameters of a generic one."""
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node)


def _name(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
