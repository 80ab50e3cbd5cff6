"""Options for TLS and credentials: those of Spark's Kafka source, and shorter ones of ours.

Kafka's options apply as in Kafka: `kafka.security.protocol` decides whether the others have an
effect. Ours (`apiKey`, `username`, `password`, `caFile`, ...) apply by themselves. Both give the
login for the HTTP API too, which sinks and queues use. No error contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from goqueue.client import SASL_MECHANISMS, SaslSettings, TlsSettings, sasl_of_api_key
from goqueue.client.addresses import read_addresses
from goqueue.client.security.http import HttpLogin
from goqueue.model.errors import InvalidRequest

OWN_NAMES: Final = (
    "apiKey",
    "caFile",
    "clientCertificate",
    "clientKey",
    "password",
    "saslMechanism",
    "tls",
    "token",
    "username",
)
KAFKA_NAMES: Final = (
    "kafka.sasl.jaas.config",
    "kafka.sasl.mechanism",
    "kafka.security.protocol",
    "kafka.ssl.endpoint.identification.algorithm",
    "kafka.ssl.key.password",
    "kafka.ssl.keystore.certificate.chain",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.password",
    "kafka.ssl.keystore.type",
    "kafka.ssl.truststore.certificates",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.password",
    "kafka.ssl.truststore.type",
)
NAMES: Final = (*OWN_NAMES, *KAFKA_NAMES)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Which mechanisms a login module of Kafka is for.
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
_JAAS = re.compile(r"([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*);", re.DOTALL)
_JAAS_OPTION = re.compile(
    r"""\s*([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';=]+)""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Access:
    """How drivers and tasks log in, and whom they trust."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    login: HttpLogin | None = None  # for the HTTP API
    # What it was read from, for readers inside of pipelines.
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


OPEN: Final = Access()


class Cluster(NamedTuple):
    """The brokers of a pipeline, and how to log in at them."""

    bootstrap: str
    access: Access = OPEN


class Options(Protocol):
    """The part of the option reader that is needed here."""

    problems: list[str]

    def text(self, *names: str) -> str | None: ...

    def secret(self, name: str) -> str | None: ...


class Login(NamedTuple):
    """A user and its password, from an entry of JAAS or from our own options."""

    username: str
    password: str


def access_of(options: Mapping[str, str] | None) -> Access:
    """Read options that are about nothing else, as pipelines take them."""
    from goqueue.spark.options import OptionReader

    reader = OptionReader(options or {}, NAMES)
    found = read_access(reader)
    reader.raise_problems()
    return found


def read_access(options: Options) -> Access:
    """Read all options for TLS and credentials."""
    given = tuple((name, value) for name in NAMES if (value := options.secret(name)) is not None)
    if not given:
        return OPEN
    protocol = (options.text("kafka.security.protocol") or "").upper()
    if protocol and protocol not in PROTOCOLS:
        options.problems.append(
            f"kafka.security.protocol is {protocol!r}; give one of {', '.join(PROTOCOLS)}."
        )
    try:
        tls = _tls(options, protocol)
        sasl = _own_sasl(options) or (_kafka_sasl(options) if protocol[:4] == "SASL" else None)
        if sasl is not None and protocol in ("PLAINTEXT", "SSL"):
            options.problems.append(
                f"kafka.security.protocol is {protocol}, which sends no credentials; leave it out, "
                f"or give {'SASL_SSL' if protocol == 'SSL' else 'SASL_PLAINTEXT'}."
            )
        return Access(tls, sasl, _login(sasl), given)
    except InvalidRequest as error:
        options.problems.append(str(error))
        return OPEN


def _login(sasl: SaslSettings | None) -> HttpLogin | None:
    if sasl is None:
        return None
    if sasl.token:
        return HttpLogin(sasl.token)
    if isinstance(sasl.password, str) and sasl == sasl_of_api_key(sasl.password):
        return HttpLogin(sasl.password)
    return HttpLogin(username=sasl.username, password=sasl.password)


def registry_access(options: Options | None, access: Access, url: str, bootstrap: str) -> Access:
    """Return how to log in at a registry: as at the broker, but only if it is on the same host."""
    user = None if options is None else options.secret("schema.username")
    password = None if options is None else options.secret("schema.password")
    if options is not None and bool(user) != bool(password):
        options.problems.append("schema.username and schema.password belong together; give both.")
    if user and password:
        return replace(access, sasl=None, login=HttpLogin(username=user, password=password))
    hosts = {one.host for one in read_addresses(bootstrap)} if access.login else set()
    is_beside = urlsplit(url).hostname in hosts
    return replace(access, sasl=None, login=access.login if is_beside else None, options=())


# Credentials


def _own_sasl(options: Options) -> SaslSettings | None:
    names = ("apiKey", "token", "username", "password")
    api_key, token, user, password = (options.secret(name) for name in names)
    ways = [
        name for name, one in zip(names, (api_key, token, user or password), strict=False) if one
    ]
    if not ways:
        return None
    if len(ways) > 1:
        raise InvalidRequest(f"Give one of {' and '.join(ways)}, not several.")
    if api_key:
        return sasl_of_api_key(api_key)
    if token:
        return SaslSettings("OAUTHBEARER", token=token)
    mechanism = (options.text("saslMechanism") or "SCRAM-SHA-512").upper()
    return SaslSettings(mechanism, user or "", password or "")


def _kafka_sasl(options: Options) -> SaslSettings | None:
    mechanism = (options.text("kafka.sasl.mechanism") or "GSSAPI").upper()
    if mechanism not in SASL_MECHANISMS:
        raise InvalidRequest(
            f"kafka.sasl.mechanism is {mechanism}, which is Kafka's default; give one of "
            f"{', '.join(SASL_MECHANISMS)}."
        )
    if mechanism == "OAUTHBEARER":
        raise InvalidRequest("With OAUTHBEARER, give the token itself, with the option token.")
    config = options.secret("kafka.sasl.jaas.config")
    if config is None:
        raise InvalidRequest("kafka.sasl.jaas.config is missing; it has the user and the password.")
    login = read_jaas(config, mechanism)
    return SaslSettings(mechanism, login.username, login.password)


def read_jaas(text: str, mechanism: str) -> Login:
    """Return the user and the password in `kafka.sasl.jaas.config`."""
    found = _JAAS.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(
            'kafka.sasl.jaas.config cannot be read; write CLASS required username="..." '
            'password="..."; with the semicolon.'
        )
    module = found[1].rpartition(".")[2]
    if mechanism not in _MODULES.get(module, ()):
        fitting = next(name for name, ones in _MODULES.items() if mechanism in ones)
        raise InvalidRequest(
            f"kafka.sasl.jaas.config names {module}, which is not for {mechanism}; use {fitting}."
        )
    values = _jaas_options(found[3])
    if not values.get("username") or not values.get("password"):
        raise InvalidRequest("kafka.sasl.jaas.config needs a username and a password.")
    return Login(values["username"], values["password"])


def _jaas_options(text: str) -> dict[str, str]:
    values, at = {}, 0
    while text[at:].strip():
        found = _JAAS_OPTION.match(text, at)
        if found is None:
            raise InvalidRequest(
                'kafka.sasl.jaas.config has an option that cannot be read; write NAME="VALUE".'
            )
        values[found[1]] = _unquoted(found[2])
        at = found.end()
    return values


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[0] in "\"'" else text


# TLS


def _tls(options: Options, protocol: str) -> TlsSettings | None:
    own = TlsSettings(
        options.text("caFile") or "",
        options.text("clientCertificate") or "",
        options.text("clientKey") or "",
    )
    switch = (options.text("tls") or "").lower()
    if switch not in ("", "true", "false"):
        options.problems.append(f"tls is {switch!r}; give true or false.")
    is_wanted = own != TlsSettings() if not switch else switch == "true"
    if is_wanted and protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        options.problems.append(
            f"kafka.security.protocol is {protocol}, which is not encrypted; leave it out, or the "
            "certificates."
        )
    if protocol in ("SSL", "SASL_SSL"):
        return own if own != TlsSettings() else _kafka_tls(options)
    return own if is_wanted else None


def _kafka_tls(options: Options) -> TlsSettings:
    for store in ("truststore", "keystore"):
        _check_store(options, store)
    algorithm = options.secret("kafka.ssl.endpoint.identification.algorithm")
    chain = options.secret("kafka.ssl.keystore.certificate.chain")
    key = options.secret("kafka.ssl.keystore.key")
    if bool(chain) != bool(key):
        raise InvalidRequest(
            "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key belong together."
        )
    return TlsSettings(
        ca_file=options.text("kafka.ssl.truststore.location") or "",
        certificate_file=options.text("kafka.ssl.keystore.location") or "",
        key_password=options.secret("kafka.ssl.key.password") or "",
        checks_host=algorithm is None or bool(algorithm.strip()),
        ca_text=options.secret("kafka.ssl.truststore.certificates") or "",
        certificate_text=f"{chain}\n{key}\n" if chain else "",
    )


def _check_store(options: Options, store: str) -> None:
    """Refuse stores of Java, which nothing but Java reads."""
    name = f"kafka.ssl.{store}"
    kind = (options.text(f"{name}.type") or "JKS").upper()
    if options.text(f"{name}.location") is not None and kind != "PEM":
        raise InvalidRequest(
            f"{name}.location is a store of type {kind}, which only Java reads; export it as PEM "
            f"(`keytool -exportcert -rfc`, `openssl pkcs12`) and set {name}.type to PEM."
        )
    if kind == "PEM" and options.secret(f"{name}.password"):
        raise InvalidRequest(
            f"{name}.password does not apply to PEM; the password of a key is "
            "kafka.ssl.key.password."
        )
