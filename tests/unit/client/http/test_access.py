"""Credentials and certificates of the HTTP clients: what is sent, from where, and what hides."""

from __future__ import annotations

import base64
import ssl
import traceback
from pathlib import Path

import httpx
import pytest

from goqueue.client.errors import TlsFailed, Unreachable
from goqueue.client.http import AsyncClient, Client
from goqueue.client.http.request import Request
from goqueue.client.http.settings import Access, HttpSettings, RetrySettings, secured
from goqueue.client.http.transport import Transport
from goqueue.client.security import TlsSettings
from goqueue.client.security.http import HttpLogin
from goqueue.model.errors import AccessDenied, AuthenticationRequired, InvalidRequest
from tests.certificates import Authority

KEY = "gqk_abcdefgh_0123456789"
GET = Request("GET", "/v1/x", lambda data: data)


def access(**given: str) -> Access:
    names = ("api_key", "username", "password", "ca_file", "client_certificate")
    return Access(**{name: given.get(name) for name in names})  # type: ignore[arg-type]


def header_of(settings: HttpSettings, address: str = "h:1") -> str | None:
    """What a request is sent with."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    Transport(address, settings, network=httpx.MockTransport(answer)).send(GET)
    return seen[0].headers.get("authorization")


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


ENVIRON_KEY = {"GOQUEUE_API_KEY": "gqk_from_environment"}
ENVIRON_USER = {"GOQUEUE_USER": "eve", "GOQUEUE_PASSWORD": "from-environment"}


@pytest.mark.parametrize(
    ("address", "given", "login", "environ", "header"),
    [
        ("h:1", {}, None, {}, None),
        ("h:1", {"api_key": KEY}, None, {}, f"Bearer {KEY}"),
        ("h:1", {"username": "ann", "password": "pä:ss"}, None, {}, basic("ann", "pä:ss")),
        ("h:1", {}, HttpLogin(KEY), {}, f"Bearer {KEY}"),
        ("h:1", {}, None, ENVIRON_KEY, "Bearer gqk_from_environment"),
        ("h:1", {}, None, ENVIRON_USER, basic("eve", "from-environment")),
        ("http://bob:p%40ss@h:1", {}, None, {}, basic("bob", "p@ss")),
        # An earlier source wins as a whole.
        ("h:1", {"api_key": KEY}, HttpLogin("gqk_other"), ENVIRON_USER, f"Bearer {KEY}"),
        ("http://bob:pass@h:1", {"api_key": KEY}, None, ENVIRON_USER, f"Bearer {KEY}"),
        ("http://bob:pass@h:1", {}, HttpLogin(KEY), ENVIRON_USER, basic("bob", "pass")),
        ("h:1", {}, HttpLogin(KEY), ENVIRON_USER, f"Bearer {KEY}"),
    ],
)
def test_the_first_source_with_a_login_is_used(
    address: str,
    given: dict[str, str],
    login: HttpLogin | None,
    environ: dict[str, str],
    header: str | None,
) -> None:
    url, settings = secured(address, HttpSettings(login=login), access(**given), environ)
    assert header_of(settings, url) == header
    assert url == "http://h:1"


def test_a_secret_may_be_a_function_that_is_called_each_time() -> None:
    keys = iter(["gqk_one", "gqk_two"])
    settings = HttpSettings(login=HttpLogin(lambda: next(keys)))
    assert [header_of(settings), header_of(settings)] == ["Bearer gqk_one", "Bearer gqk_two"]


@pytest.mark.parametrize(
    "given",
    [
        {"api_key": KEY, "username": "ann", "password": "pass"},
        {"username": "ann"},
        {"password": "pass"},
        {"username": "a:b", "password": "pass"},
    ],
)
def test_logins_that_are_half_or_double_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        secured("h:1", None, access(**given), {})
    assert "pass'" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_wrong_environment_is_named() -> None:
    with pytest.raises(InvalidRequest, match="GOQUEUE_USER"):
        secured("h:1", None, access(), {"GOQUEUE_USER": "ann"})


def test_certificates_make_an_address_https(tmp_path: Path) -> None:
    ca_file = str(Authority(tmp_path).sign("node", "node").authorities)
    environ = {"GOQUEUE_CA_FILE": ca_file}
    assert secured("h:1", None, access(ca_file=ca_file), {})[0] == "https://h:1"
    assert secured("h:1", HttpSettings(tls=TlsSettings()), access(), {})[0] == "https://h:1"
    # The environment says whom to trust, not which addresses are encrypted.
    url, settings = secured("h:1", None, access(), environ)
    assert (url, settings.tls) == ("http://h:1", TlsSettings(ca_file))
    assert secured("h:1", None, access(ca_file="mine"), environ)[1].tls == TlsSettings("mine")
    both = secured("https://h", None, access(client_certificate="both.pem"), environ)[1].tls
    assert both == TlsSettings(ca_file, "both.pem")


def test_both_clients_take_the_same_arguments(tmp_path: Path) -> None:
    files = Authority(tmp_path).sign("client", "client")
    pair = str(files.certificate), str(files.key)
    ca_file = str(files.authorities)
    for kind in (Client, AsyncClient):
        client = kind("h:1", api_key=KEY, ca_file=ca_file, client_certificate=pair)
        settings = client._transport.settings
        assert client._transport.url == "https://h:1"
        assert settings.tls == TlsSettings(ca_file, *pair)
        assert settings.login == HttpLogin(KEY)


def test_secrets_are_in_no_text(tmp_path: Path) -> None:
    settings = HttpSettings(
        login=HttpLogin(username="ann", password="hunter22"),
        headers={"authorization": "hunter22"},
        tls=TlsSettings("a", "b", "c", "hunter22"),
    )
    assert "hunter22" not in repr(settings) + repr(access(password="hunter22"))

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    url, settings = secured("http://ann:hunter22@h:1", None, access(), {})
    settings = HttpSettings(login=settings.login, retry=RetrySettings(retries_max=0))
    with pytest.raises(Unreachable) as caught:
        Transport(url, settings, network=httpx.MockTransport(refuse)).send(GET)
    assert "hunter22" not in "".join(traceback.format_exception(caught.value))


def failing(error: Exception, url: str = "https://h:1") -> Transport:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("TLS") from error

    return Transport(url, HttpSettings(), network=httpx.MockTransport(fail), sleep=_no_sleep)


def _no_sleep(_: float) -> None:
    raise AssertionError("such a request is not repeated")


def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    with pytest.raises(TlsFailed, match=r"h:1 is not trusted \(self-signed certificate\)"):
        failing(error).send(GET)


def test_a_request_without_tls_to_a_tls_listener_is_recognised() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError(r"illegal status line: bytearray(b'\x15\x03\x03\x00\x02')")

    network = httpx.MockTransport(answer)
    with pytest.raises(TlsFailed, match="https://"):
        Transport("h:1", HttpSettings(), network=network, sleep=_no_sleep).send(GET)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "authentication_required", AuthenticationRequired),
        (403, "access_denied", AccessDenied),
    ],
)
def test_refusals_are_final(status: int, code: str, kind: type[Exception]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json={"code": code, "detail": "Not you."})

    network = httpx.MockTransport(answer)
    with pytest.raises(kind, match="Not you"):
        Transport("h:1", HttpSettings(), network=network, sleep=_no_sleep).send(GET)
