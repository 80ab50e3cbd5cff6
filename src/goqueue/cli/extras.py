"""Packages that only some commands need, which `pip install goqueue` does not install.

The broker and the schema languages are extras (docs/adr/0075), so a command that needs one says
how to install it instead of failing at an import.
"""

from __future__ import annotations

from importlib.util import find_spec

from goqueue.model.errors import InvalidRequest

# The modules of each extra's packages; a test compares them with pyproject.toml.
SCHEMA_MODULES = ("google.protobuf", "google.type", "jsonschema_rs", "re2")
SERVER_MODULES = (*SCHEMA_MODULES, "cryptography", "httptools", "joserfc", "uvloop")


def need_server() -> None:
    """Refuse to run a broker unless all its packages are installed, those of rare cases too."""
    _need(SERVER_MODULES, "A broker", "server")


def need_schemas() -> None:
    """Refuse to write or read payloads of schemas without the packages of their languages."""
    _need(SCHEMA_MODULES, "Payloads of registered schemas", "schemas")


def _need(modules: tuple[str, ...], purpose: str, extra: str) -> None:
    missing = [name for name in modules if not _is_installed(name)]
    if missing:
        verb = "need" if purpose.endswith("s") else "needs"
        raise InvalidRequest(
            f"{purpose} {verb} packages that are not installed ({', '.join(missing)}); "
            f"install them with `pip install 'goqueue[{extra}]'`."
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
