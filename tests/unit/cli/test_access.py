"""How a command logs in: which source wins, where secrets go, and what is shown of them."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from goqueue.cli.access import MECHANISMS, NO_ACCESS, VARIABLES, Access, access_from
from goqueue.cli.commands import config
from goqueue.cli.connecting import (
    fitting_kafka_address,
    http_client,
    kafka_client,
    node_http_addresses,
)
from goqueue.cli.context import (
    Call,
    Context,
    Contexts,
    add_shared_options,
    load_contexts,
    save_contexts,
)
from goqueue.cli.remedies import remedies
from goqueue.client import SASL_MECHANISMS, SaslSettings, TlsSettings
from goqueue.client.errors import TlsFailed
from goqueue.client.http import Node
from goqueue.client.security.http import HttpLogin
from goqueue.model.errors import AuthenticationFailed, AuthenticationRequired, InvalidRequest

ANN = Access(user="ann", password="hers-only")
KEY = Access(api_key="gqk_abc_def")


class Shell:
    """Calls `goqueue config ...` with a file of contexts of its own."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self.capsys = capsys

    def __call__(self, *arguments: str) -> str:
        command = typer.main.get_command(config.app)
        add_shared_options(command)
        call = Call(environ={"GOQUEUE_CLI_CONFIG": str(self.file)})
        command.main(list(arguments), standalone_mode=False, obj=call)
        return self.capsys.readouterr().out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@pytest.fixture
def shell(file: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(file, capsys)


def secret(folder: Path, text: str) -> str:
    file = folder / f"secret-{len(list(folder.iterdir()))}"
    file.write_text(text + "\n")
    return str(file)


@pytest.mark.parametrize(
    ("above", "below", "found"),
    [
        (NO_ACCESS, ANN, ANN),
        (ANN, KEY, ANN),
        (KEY, ANN, KEY),
        (Access(user="ann"), ANN, ANN),
        (Access(user="ann"), Access(password="hers-only"), ANN),
        # The password of one user is not sent for another, nor that of a user for a key.
        (Access(user="bob"), ANN, Access(user="bob")),
        (Access(user="bob"), KEY, Access(user="bob")),
        (Access(password="new-one"), ANN, Access(user="ann", password="new-one")),
        (Access(password="new-one"), KEY, Access(password="new-one")),
        (Access(tls=False), Access(ca_file="a.pem"), Access(tls=False, ca_file="a.pem")),
        (
            Access(client_certificate="mine.pem"),
            Access(client_certificate="other.pem", client_key="other.key", ca_file="ca.pem"),
            Access(client_certificate="mine.pem", ca_file="ca.pem"),
        ),
    ],
)
def test_a_login_is_taken_from_one_source(above: Access, below: Access, found: Access) -> None:
    assert above.over(below) == found


def test_flags_come_before_the_context_of_the_address_and_that_before_the_environment(
    file: Path,
) -> None:
    stored = Context("one:1", access=replace(ANN, ca_file="ca.pem"))
    save_contexts(file, Contexts("here", {"here": stored}))
    environ = {"GOQUEUE_CLI_CONFIG": str(file), "GOQUEUE_API_KEY": "gqk_env_key"}
    assert Call(environ).access == replace(ANN, ca_file="ca.pem", tls=True)
    assert Call(environ, access_given=KEY).access == replace(KEY, ca_file="ca.pem", tls=True)
    # The credentials of a context are for its broker only.
    elsewhere = Call(environ, bootstrap_given="two:2").access
    assert elsewhere == Access(api_key="gqk_env_key", tls=False)
    by_variable = Call({**environ, "GOQUEUE_BOOTSTRAP": "two:2"}).access
    assert by_variable == Access(api_key="gqk_env_key", tls=False)
    named = Call({**environ, "GOQUEUE_BOOTSTRAP": "two:2"}, context_given="here").access
    assert named.user == "ann"


def test_the_environment_gives_what_is_missing(file: Path) -> None:
    save_contexts(file, Contexts("here", {"here": Context("one:1", access=Access(user="ann"))}))
    environ = {"GOQUEUE_CLI_CONFIG": str(file), "GOQUEUE_PASSWORD": "hers-only"}
    assert Call(environ).access == replace(ANN, tls=False)


@pytest.mark.parametrize(
    ("given", "http", "environ", "is_encrypted"),
    [
        (NO_ACCESS, None, {}, False),
        (Access(tls=True), None, {}, True),
        (Access(ca_file="ca.pem"), None, {}, True),
        (Access(ca_file="ca.pem", tls=False), None, {}, False),
        (NO_ACCESS, "https://queue.example", {}, True),
        # Certificates of the environment are for brokers with TLS, and not all have it.
        (NO_ACCESS, None, {"GOQUEUE_CA_FILE": "ca.pem"}, False),
        (NO_ACCESS, None, {"GOQUEUE_CA_FILE": "ca.pem", "GOQUEUE_TLS": "true"}, True),
    ],
)
def test_tls_is_used_if_something_says_so(
    given: Access,
    http: str | None,
    environ: dict[str, str],
    is_encrypted: bool,
    tmp_path: Path,
) -> None:
    environ = {"GOQUEUE_CLI_CONFIG": str(tmp_path / "none"), **environ}
    assert Call(environ, http_given=http, access_given=given).access.is_encrypted is is_encrypted


def test_a_context_keeps_secrets_for_its_owner_alone(shell: Shell, file: Path) -> None:
    password = secret(file.parent, "hers-only")
    shell("set-context", "here", "-b", "one:1", "--login", "ann", "--login-password", password)
    shell("set-context", "there", "-b", "two:2", "--login-key", secret(file.parent, "gqk_abc_def"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_contexts(file).get("here").access == ANN
    assert load_contexts(file).get("there").access == KEY
    shown = shell("view") + shell("get-contexts") + shell("get-contexts", "-o", "json")
    assert "hers-only" not in shown
    assert "gqk_abc_def" not in shown
    assert shown.count("(hidden)") == 2
    assert "ann" in shown


def test_a_file_that_others_can_read_is_refused_if_it_has_secrets(shell: Shell, file: Path) -> None:
    shell("set-context", "here", "-b", "one:1")
    file.chmod(0o644)
    shell("set-context", "here", "--login", "ann")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shell("set-context", "here", "--login-password", secret(file.parent, "hers-only"))
    file.chmod(0o640)
    with pytest.raises(InvalidRequest, match=f"chmod 600 {file}"):
        load_contexts(file)


def test_a_new_address_forgets_the_login(shell: Shell, file: Path) -> None:
    shell("set-context", "here", "-b", "one:1", "--login", "ann", "--ca-file", "ca.pem")
    shell("set-context", "here", "--client-certificate", "me.pem")
    access = load_contexts(file).get("here").access
    assert access == Access(user="ann", ca_file="ca.pem", client_certificate="me.pem")
    shell("set-context", "here", "-b", "two:2")
    assert load_contexts(file).get("here") == Context("two:2")


def test_secrets_come_from_standard_input(
    shell: Shell, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, b"hers-only\nmore\n")
    os.close(write)
    with os.fdopen(read) as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        shell("set-context", "here", "--login", "ann", "--login-password", "-")
        assert pipe.readline() == "more\n"
    assert load_contexts(file).get("here").access == ANN


def test_an_unknown_password_needs_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Call({"GOQUEUE_CLI_CONFIG": str(tmp_path / "none")}, access_given=Access(user="ann"))
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with pytest.raises(InvalidRequest, match="GOQUEUE_PASSWORD"):
            _ = call.access


@pytest.mark.parametrize(
    "environ",
    [
        {"GOQUEUE_API_KEY": "gqk_a", "GOQUEUE_USER": "ann"},
        {"GOQUEUE_TLS": "perhaps"},
        {"GOQUEUE_SASL_MECHANISM": "GSSAPI"},
    ],
)
def test_a_wrong_environment_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        access_from(environ)


def test_both_clients_get_the_login() -> None:
    access = replace(ANN, sasl_mechanism="PLAIN", tls=True)
    with kafka_client("one:1", access) as client:
        assert client.settings.sasl == SaslSettings("PLAIN", "ann", "hers-only")
        assert client.settings.tls == TlsSettings()
    with http_client("one:1", access) as api:
        assert api._transport.url == "https://one:1"
        assert api._transport.settings.login == HttpLogin(username="ann", password="hers-only")
    with kafka_client("one:1", KEY) as client:
        assert client.settings.sasl == SaslSettings("PLAIN", "abc", "gqk_abc_def")
        assert client.settings.tls is None


def test_the_listener_of_kafka_that_fits_is_chosen() -> None:
    addresses = {
        "http": "h:80",
        "kafka": "h:1",
        "kafka-ssl": "ssl://h:2",
        "kafka-sasl_ssl": "sasl_ssl://h:3",
        "kafka-sasl_plaintext": "sasl_plaintext://h:4",
    }
    assert fitting_kafka_address(addresses, NO_ACCESS) == "h:1"
    assert fitting_kafka_address(addresses, Access(tls=True)) == "h:2"
    assert fitting_kafka_address(addresses, replace(ANN, tls=True)) == "h:3"
    assert fitting_kafka_address(addresses, ANN) == "h:4"
    assert fitting_kafka_address({"kafka": "sasl_ssl://h:3"}, NO_ACCESS) == "h:3"
    assert fitting_kafka_address({"http": "h:80"}, NO_ACCESS) == ""


def node(number: int, **addresses: str) -> Node:
    return Node(
        id=number,
        state="running",
        addresses={name.replace("_", "-"): one for name, one in addresses.items()},
        rack="",
        voter=True,
        controller=False,
        leaders=0,
        replicas=0,
    )


def test_nodes_are_reached_over_http_as_the_first_of_them_was() -> None:
    nodes = [node(1, http="a:80", http_ssl="ssl://a:443"), node(2, http="0.0.0.0:81"), node(3)]
    assert list(node_http_addresses(nodes, "http://a:80", NO_ACCESS)) == [
        "http://a:80",
        "http://a:81",
    ]
    encrypted = node_http_addresses(nodes[:1], "https://a:443", NO_ACCESS)
    assert {address: one.id for address, one in encrypted.items()} == {"https://a:443": 1}


def test_errors_name_the_options() -> None:
    with pytest.raises(AuthenticationRequired, match="--login USER"), remedies(NO_ACCESS):
        raise AuthenticationRequired
    with pytest.raises(AuthenticationFailed, match="--sasl-mechanism"), remedies(ANN):
        raise AuthenticationFailed
    with pytest.raises(AuthenticationFailed, match="goqueue key list"), remedies(KEY):
        raise AuthenticationFailed
    with pytest.raises(TlsFailed, match="--tls"), remedies(NO_ACCESS):
        raise TlsFailed("no")


def test_nothing_secret_is_in_a_repr() -> None:
    shown = repr(Context(access=ANN)) + repr(Call(access_given=KEY))
    assert "hers-only" not in shown
    assert "gqk_abc_def" not in shown


def test_the_lists_of_names_agree() -> None:
    assert {*MECHANISMS, "OAUTHBEARER"} == set(SASL_MECHANISMS)
    assert set(VARIABLES) == set(Access.__dataclass_fields__)
