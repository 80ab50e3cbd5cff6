"""Options for TLS and credentials: Kafka's names, ours, and no secret that is shown."""

from __future__ import annotations

import pickle

import pytest

from goqueue.client import SaslSettings, TlsSettings, sasl_of_api_key
from goqueue.client.security.http import HttpLogin
from goqueue.model.errors import InvalidRequest
from goqueue.spark.access import OPEN, Access, access_of, read_jaas, registry_access
from goqueue.spark.driver_access import DriverAccess, described
from goqueue.spark.options import read_options
from goqueue.spark.queues.options import queue_options
from goqueue.spark.sink.options import write_options

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{SCRAM} required username="ann" password="hers-only";'
KEY = "gqk_abcdefgh_secret"
KAFKA = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/etc/ca.pem",
}
ANN = SaslSettings("SCRAM-SHA-512", "ann", "hers-only")
ANN_HTTP = HttpLogin(username="ann", password="hers-only")


def without_options(access: Access) -> Access:
    return Access(access.tls, access.sasl, access.login)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, OPEN),
        ({"kafka.security.protocol": "PLAINTEXT"}, OPEN),
        (KAFKA, Access(TlsSettings("/etc/ca.pem"), ANN, ANN_HTTP)),
        ({**KAFKA, "kafka.security.protocol": "SASL_PLAINTEXT"}, Access(None, ANN, ANN_HTTP)),
        ({**KAFKA, "kafka.security.protocol": "ssl"}, Access(TlsSettings("/etc/ca.pem"))),
        # As in Kafka, nothing has an effect without the protocol.
        ({**KAFKA, "kafka.security.protocol": "PLAINTEXT"}, OPEN),
        ({"kafka.sasl.jaas.config": JAAS, "kafka.sasl.mechanism": "PLAIN"}, OPEN),
        ({"kafka.security.protocol": "SSL"}, Access(TlsSettings())),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.location": "/me.pem",
                "kafka.ssl.key.password": " opensesame ",
                "kafka.ssl.endpoint.identification.algorithm": "",
            },
            Access(
                TlsSettings(
                    certificate_file="/me.pem", key_password=" opensesame ", checks_host=False
                )
            ),
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.certificates": "CA",
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.certificate.chain": "CERT",
                "kafka.ssl.keystore.key": "KEY",
            },
            Access(TlsSettings(ca_text="CA", certificate_text="CERT\nKEY\n")),
        ),
        ({"apiKey": KEY}, Access(None, sasl_of_api_key(KEY), HttpLogin(KEY))),
        (
            {"token": "a.b.c"},
            Access(None, SaslSettings("OAUTHBEARER", token="a.b.c"), HttpLogin("a.b.c")),
        ),
        ({"username": "ann", "password": "hers-only"}, Access(None, ANN, ANN_HTTP)),
        (
            {"apiKey": KEY, "caFile": "/ca.pem", "clientCertificate": "/me.pem"},
            Access(TlsSettings("/ca.pem", "/me.pem"), sasl_of_api_key(KEY), HttpLogin(KEY)),
        ),
        ({"tls": "true"}, Access(TlsSettings())),
        (
            {"kafka.security.protocol": "SASL_SSL", "apiKey": KEY},
            Access(TlsSettings(), sasl_of_api_key(KEY), HttpLogin(KEY)),
        ),
    ],
)
def test_options_say_how_to_log_in(options: dict[str, str], found: Access) -> None:
    access = access_of(options)
    assert without_options(access) == found
    assert dict(access.options) == options
    assert access_of(dict(access.options)) == access
    assert pickle.loads(pickle.dumps(access)) == access  # as it reaches executors


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"kafka.ssl.truststore.type": "JKS"}, "only Java reads"),
        ({"kafka.ssl.truststore.type": ""}, "type JKS"),
        ({"kafka.ssl.keystore.location": "k.jks"}, "keytool"),
        ({"kafka.ssl.truststore.password": "hers-only"}, "does not apply to PEM"),
        ({"kafka.ssl.keystore.key": "hers-only"}, "belong together"),
        ({"kafka.sasl.mechanism": ""}, "GSSAPI"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "option token"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "use PlainLoginModule"),
        ({"kafka.sasl.jaas.config": ""}, "cannot be read"),
        ({"kafka.sasl.jaas.config": f'{SCRAM} required password="hers-only";'}, "needs a username"),
        ({"kafka.sasl.jaas.config": JAAS.rstrip(";")}, "semicolon"),
        ({"kafka.security.protocol": "TLS"}, "SASL_SSL"),
        ({"kafka.ssl.cipher.suites": "x"}, "not supported here"),
        ({"kafka.sasl.kerberos.service.name": "x"}, "not supported here"),
        ({"apiKey": KEY, "username": "ann", "password": "hers-only"}, "not several"),
        ({"username": "ann"}, "needs a user and a password"),
        ({"kafka.security.protocol": "SSL", "apiKey": KEY}, "sends no credentials"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "caFile": "/ca.pem"}, "not encrypted"),
        ({"tls": "perhaps"}, "true or false"),
    ],
)
def test_wrong_options_are_refused_without_showing_secrets(
    changes: dict[str, str], hint: str
) -> None:
    with pytest.raises(InvalidRequest, match=hint) as caught:
        access_of({**KAFKA, **changes})
    assert "hers-only" not in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "login"),
    [
        (f'{PLAIN} required username="ann" password="a b;c=d,e" ;', ("ann", "a b;c=d,e")),
        (f"{PLAIN} required\n  username='ann'\n  password='it\\'s';\n", ("ann", "it's")),
        (
            f'{PLAIN} required password="say \\"hi\\" \\\\o/" username=ann;',
            ("ann", 'say "hi" \\o/'),
        ),
        (f'kafkashaded.{PLAIN} requisite serviceName="x" username="a" password="b";', ("a", "b")),
    ],
)
def test_logins_are_read_as_java_reads_them(text: str, login: tuple[str, str]) -> None:
    assert read_jaas(text, "PLAIN") == login


def test_tables_streams_queues_and_sinks_take_them() -> None:
    options = {**KAFKA, "subscribe": "orders"}
    expected = access_of(KAFKA)
    assert read_options(options, is_streaming=False).access == expected
    assert read_options(options, is_streaming=True).access == expected
    assert queue_options({**options, "queue.group": "billing"}).read.access == expected
    assert write_options({**KAFKA, "topic": "orders"}).access == expected
    lower = {name.lower(): value for name, value in {"apiKey": KEY, "caFile": "x"}.items()}
    assert access_of(lower).sasl == sasl_of_api_key(KEY)


def test_nothing_secret_is_in_a_repr() -> None:
    shown = repr(read_options({**KAFKA, "subscribe": "orders"}, is_streaming=False))
    shown += repr(write_options({"apiKey": KEY, "topic": "orders"}))
    assert "hers-only" not in shown
    assert KEY not in shown


def test_a_registry_elsewhere_does_not_get_the_login() -> None:
    access = access_of(KAFKA)
    beside = registry_access(None, access, "https://q.example:8081", "other:1,q.example:9093")
    assert beside.login == ANN_HTTP
    assert beside.tls == access.tls
    elsewhere = registry_access(None, access, "https://registry.example", "q.example:9093")
    assert elsewhere.login is None
    own = read_options(
        {
            **KAFKA,
            "subscribe": "orders",
            "schema.registry": "https://registry.example",
            "schema.username": "bob",
            "schema.password": "his-only",
        },
        is_streaming=False,
    )
    assert own.typing is not None
    assert own.typing.access.login == HttpLogin(username="bob", password="his-only")
    with pytest.raises(InvalidRequest, match=r"schema\.username"):
        read_options(
            {"subscribe": "o", "schema.registry": "http://r", "schema.username": "bob"},
            is_streaming=False,
        )


def test_listeners_have_their_own_source_of_secrets() -> None:
    access = access_of(KAFKA)
    report = described(access)
    assert report == {"tls": True, "mechanism": "SCRAM-SHA-512"}
    assert described(OPEN) == {}
    environ = {
        "GOQUEUE_USER": "ann",
        "GOQUEUE_PASSWORD": "hers-only",
        "GOQUEUE_CA_FILE": "/etc/ca.pem",
    }
    assert DriverAccess(environ=environ).for_report(report) == without_options(access)
    assert DriverAccess(environ=environ).for_report({}) == OPEN
    assert DriverAccess(access, {}).for_report(report) == access
    by_key = DriverAccess(environ={"GOQUEUE_API_KEY": KEY}).for_report(report)
    assert by_key.sasl == sasl_of_api_key(KEY)
