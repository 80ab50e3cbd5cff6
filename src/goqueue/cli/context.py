"""The broker that a command uses, how it logs in, and its output format.

They come from flags, environment and contexts. A context is a named broker in the user's own file,
as in kubectl. The flags are accepted before and after the name of a command, so that users need not
remember the position.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from goqueue.cli.access import (
    MECHANISMS,
    NO_ACCESS,
    Access,
    access_from,
    access_of_entry,
    entry_of_access,
)
from goqueue.cli.output import OutputForm, yaml_text
from goqueue.cli.passwords import known_password
from goqueue.model.errors import InvalidRequest

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "GOQUEUE_BOOTSTRAP"
HTTP_VARIABLE = "GOQUEUE_HTTP"
HTTP_PORT_DEFAULT = 8080
CONTEXTS_VARIABLE = "GOQUEUE_CLI_CONFIG"


@dataclass(frozen=True, slots=True)
class Context:
    """The addresses, the login and the output format stored under a name."""

    bootstrap: str = BOOTSTRAP_DEFAULT  # empty: requested from the broker at `http`
    output: OutputForm = OutputForm.TABLE
    http: str = ""  # empty: requested from the broker at `bootstrap`
    access: Access = NO_ACCESS


@dataclass(slots=True)
class Contexts:
    """The contexts of the user, and the name of the current one."""

    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise InvalidRequest(f"There is no context {name!r}; existing contexts: {known}.")
        return self.by_name[name]


@dataclass(frozen=True, slots=True)
class Named:
    """The addresses of a broker from one source; at least one of the two is given."""

    bootstrap: str | None = None
    http: str | None = None
    context: str = ""  # the name of the context, if it is the source


@dataclass(slots=True)
class Call:
    """The options of one call of `goqueue` about the broker and the output."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    bootstrap_given: str | None = None
    http_given: str | None = None
    context_given: str | None = None
    output_given: OutputForm | None = None
    access_given: Access = NO_ACCESS
    # What the broker returned, so that it is requested once.
    kafka_found: str = ""
    http_found: str = ""
    access_found: Access | None = None

    @property
    def access(self) -> Access:
        """How to log in: flags, then the context of the addresses, then the environment.

        A context's credentials are for its own broker: they are not sent to an address that was
        given otherwise. The password is typed, once, if it is not known.
        """
        if self.access_found is None:
            named = self.named
            stored = self.context.access if named.context else NO_ACCESS
            found = self.access_given.over(stored)
            is_encrypted = found.is_encrypted or (named.http or "").startswith("https://")
            found = found.over(access_from(self.environ))
            if found.tls is None:  # Certificates of the environment are for brokers with TLS.
                found = replace(found, tls=is_encrypted)
            self.access_found = found.with_password()
        return self.access_found

    @property
    def named(self) -> Named:
        """Flags, else a context named by flag, else the environment, else the current context.

        Only the first source with an address is used. Addresses of two sources may belong to two
        clusters, and a command must not purge a queue of the wrong one.
        """
        if self.bootstrap_given or self.http_given:
            return Named(self.bootstrap_given or None, self.http_given or None)
        bootstrap, http = (self.environ.get(one) for one in (BOOTSTRAP_VARIABLE, HTTP_VARIABLE))
        if not self.context_given and (bootstrap or http):
            return Named(bootstrap or None, http or None)
        context = self.context
        return Named(context.bootstrap or None, context.http or None, self.context_name)

    @property
    def output(self) -> OutputForm:
        return self.output_given or self.context.output

    @property
    def context(self) -> Context:
        """The context named by flag, else the current one, else the defaults."""
        contexts = load_contexts(contexts_file(self.environ))
        name = self.context_given or contexts.current
        return contexts.get(name) if name else Context()

    @property
    def context_name(self) -> str:
        """The name of `context`; empty for the defaults."""
        return self.context_given or load_contexts(contexts_file(self.environ)).current


def current_call(ctx: typer.Context) -> Call:
    """The options of the running command."""
    return ctx.ensure_object(Call)


def add_shared_options(command: Any) -> None:
    """Add the options about the broker to `command` and all its sub-commands."""
    command.params.extend(_shared_options())
    for below in getattr(command, "commands", {}).values():
        add_shared_options(below)


def contexts_file(environ: Mapping[str, str]) -> Path:
    """The file of the contexts."""
    if environ.get(CONTEXTS_VARIABLE):
        return Path(environ[CONTEXTS_VARIABLE])
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home() / ".config") / "goqueue" / "config.yaml"


def _home() -> Path:
    """The home directory; in a container the user may have none, and so no contexts either."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")  # what Debian gives to users without a home


def load_contexts(file: Path) -> Contexts:
    """Read the contexts; none if the file does not exist."""
    import yaml

    try:
        contexts = _contexts_from(yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    except FileNotFoundError:
        return Contexts()
    except InvalidRequest as error:
        raise InvalidRequest(f"The contexts in {file} cannot be read: {error}") from error
    except (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidRequest(f"The contexts in {file} cannot be read: {reason}") from error
    if any(one.access.has_secret for one in contexts.by_name.values()):
        _check_private(file)
    return contexts


def _check_private(file: Path) -> None:
    """Refuse a file with secrets that other users of the machine can read."""
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidRequest(
            f"{file} has passwords or keys, and other users may read it; run `chmod 600 {file}`."
        )


def save_contexts(file: Path, contexts: Contexts) -> None:
    """Write the contexts atomically, for this user only: a crash leaves the old file or the new."""
    text = show_contexts(contexts, is_hidden=False)
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        fresh.replace(file)
    except OSError as error:
        raise InvalidRequest(
            f"The contexts cannot be written to {file}: {error.strerror}; name another file with "
            f"{CONTEXTS_VARIABLE}."
        ) from error


def show_contexts(contexts: Contexts, *, is_hidden: bool = True) -> str:
    """The contexts as the text of their file, without the secrets unless it is written."""
    by_name = {name: _entry(context, is_hidden) for name, context in contexts.by_name.items()}
    tree = {"current-context": contexts.current, "contexts": by_name}
    return yaml_text(tree)


def _entry(context: Context, is_hidden: bool) -> dict[str, Any]:
    addresses = {"bootstrap": context.bootstrap, "http": context.http}
    named = {name: address for name, address in addresses.items() if address}
    access = entry_of_access(context.access, is_hidden=is_hidden)
    return {**named, **access, "output": context.output.value}


def _contexts_from(tree: Mapping[str, Any]) -> Contexts:
    by_name = {
        str(name): Context(
            bootstrap=str(entry.get("bootstrap", "" if entry.get("http") else BOOTSTRAP_DEFAULT)),
            output=OutputForm(entry.get("output", OutputForm.TABLE)),
            http=str(entry.get("http", "")),
            access=access_of_entry(entry),
        )
        for name, entry in (tree.get("contexts") or {}).items()
    }
    return Contexts(current=str(tree.get("current-context") or ""), by_name=by_name)


def _shared_options() -> list[Any]:
    """New options that store their value in the call instead of passing it to a function."""
    carrier = typer.Typer()
    carrier.command()(_options)
    known = {**_FIELDS, **_ACCESS_FIELDS}
    options = [param for param in typer.main.get_command(carrier).params if param.name in known]
    for option in options:
        option.expose_value = False
        option.callback = _note if option.name in _FIELDS else _note_access
    return options


_PANEL = "Logging in"


def _options(
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "-b", metavar="HOST:PORT[,...]", help="Kafka addresses of the cluster."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="HTTP API; by default found through -b."),
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", "-c", help="Named broker; see `goqueue config`.")
    ] = None,
    output: Annotated[
        OutputForm | None, typer.Option("--output", "-o", help="Output format.")
    ] = None,
    login: Annotated[
        str | None,
        typer.Option(
            "--login",
            metavar="USER",
            help="User; the password is typed unless it is given otherwise.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    login_password: Annotated[
        Path | None,
        typer.Option(
            "--login-password",
            metavar="FILE",
            help="File whose first line is the password of --login; - is standard input.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    login_key: Annotated[
        Path | None,
        typer.Option(
            "--login-key",
            metavar="FILE",
            help="File whose first line is an API key; - is standard input.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    sasl_mechanism: Annotated[
        str | None,
        typer.Option(
            "--sasl-mechanism",
            metavar="NAME",
            help=f"{', '.join(MECHANISMS)}; by default SCRAM-SHA-512.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls/--no-tls",
            help="Encrypt; by default if there are certificates.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Authorities to trust, in PEM; by default those of the system.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    client_certificate: Annotated[
        str | None,
        typer.Option(
            "--client-certificate",
            metavar="FILE",
            help="Certificate to show, in PEM.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    client_key: Annotated[
        str | None,
        typer.Option(
            "--client-key",
            metavar="FILE",
            help="Its key, if it is in another file.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> None: ...


_FIELDS = {
    "bootstrap": "bootstrap_given",
    "http": "http_given",
    "context": "context_given",
    "output": "output_given",
}
_ACCESS_FIELDS = {
    "login": "user",
    "login_password": "password",
    "login_key": "api_key",
    "sasl_mechanism": "sasl_mechanism",
    "tls": "tls",
    "ca_file": "ca_file",
    "client_certificate": "client_certificate",
    "client_key": "client_key",
}
_SECRETS = {"login_password": "Password", "login_key": "API key"}


def _note(ctx: Any, param: Any, value: object) -> None:
    call = ctx.ensure_object(Call)
    if value is not None:
        setattr(
            call, _FIELDS[param.name], OutputForm(str(value)) if param.name == "output" else value
        )


def _note_access(ctx: Any, param: Any, value: Any) -> None:
    if value is None:
        return
    call = ctx.ensure_object(Call)
    if param.name in _SECRETS:
        value = known_password(Path(value), what=_SECRETS[param.name])
    call.access_given = replace(call.access_given, **{_ACCESS_FIELDS[param.name]: value})
