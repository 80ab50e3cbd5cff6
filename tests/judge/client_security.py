"""Tests the client's TLS and SASL against Apache Kafka, which is the judge of both.

    make judge-security

One Kafka serves three listeners (PLAINTEXT, SASL_PLAINTEXT, SASL_SSL) and lets sessions end after a
few seconds. Each case connects with `LogClient`, with the right credentials and with wrong ones,
and states what must come of it. Maven fetches Kafka, so this is not part of the test suite.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench.peers import free_ports
from bench.peers.kafka import Kafka
from goqueue.client import ClientSettings, LogClient, Position, SaslSettings, TlsSettings
from goqueue.client.errors import HungUp, TlsFailed
from goqueue.model.credentials import ScramMechanism
from goqueue.model.errors import AuthenticationFailed, GoQueueError
from goqueue.tenancy.scram import salted_password
from goqueue.wire.kafka.messages import alter_user_scram_credentials as alter_scram
from tests.certificates import Authority, Files

USER, PASSWORD = "ann", "pencil, case=7"
SESSION_MS = 3_000
FAILURE_SECONDS_MAX = 8  # of a case that must fail: nothing may be retried until a time-out
ITERATIONS = 8_192
SCRAM_NUMBERS = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True, slots=True)
class Places:
    """The listeners of the judge, and the certificates."""

    plaintext: str
    sasl_plaintext: str
    sasl_ssl: str
    files: Files
    stranger: Files  # signed by an authority that the judge does not know


Case = Callable[[Places], None]


def sasl(mechanism: str, password: str = PASSWORD) -> SaslSettings:
    if mechanism == "OAUTHBEARER":
        return SaslSettings(mechanism, token=lambda: unsecured_token(USER))
    return SaslSettings(mechanism, USER, password)


def unsecured_token(subject: str, seconds: int = 60) -> str:
    """A token that Kafka's unsecured validator takes; it is for tests, as Kafka says."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    parts = (json.dumps(one).encode() for one in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in parts) + "."


def works(address: str, settings: ClientSettings, *, seconds: float = 0) -> None:
    """Write and read through a listener, for longer than a session if so wanted."""
    topic = f"t{os.urandom(4).hex()}"
    with LogClient(address, settings) as client:
        client.topics.create(topic, partition_count=2)
        deadline, sent = time.monotonic() + seconds, 0
        with client.producer() as producer:
            while sent < 20 or time.monotonic() < deadline:
                producer.send(topic, b"%d" % sent, partition=sent % 2)
                sent += 1
                time.sleep(0.02 if seconds else 0)
        found = client.reader([topic], Position.earliest(), until=Position.latest()).records()
        assert sorted(int(one.value or b"") for one in found) == list(range(sent))


def fails(address: str, settings: ClientSettings, kind: type[GoQueueError], *texts: str) -> None:
    """Expect one kind of error, soon, whose text names what to do and no secret."""
    began = time.monotonic()
    with pytest.raises(kind) as caught, LogClient(address, settings) as client:
        client.nodes.describe()
    said = str(caught.value)
    assert all(text in said for text in texts), said
    assert PASSWORD not in said
    assert time.monotonic() - began < FAILURE_SECONDS_MAX, "it was retried for too long"


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {
        "no credentials": lambda at: fails(
            at.sasl_plaintext, ClientSettings(), HungUp, "require credentials"
        ),
        "credentials where none are taken": lambda at: fails(
            at.plaintext, ClientSettings(sasl=sasl("PLAIN")), AuthenticationFailed, "takes no"
        ),
        "no TLS": lambda at: fails(
            at.sasl_ssl, ClientSettings(sasl=sasl("PLAIN")), GoQueueError, "require", "TLS"
        ),
        "TLS where there is none": lambda at: fails(
            at.sasl_plaintext, tls(at), GoQueueError, "TLS"
        ),
        "an authority that is not known": lambda at: fails(
            at.sasl_ssl, ClientSettings(tls=TlsSettings()), TlsFailed, "not trusted", "ca_file"
        ),
        "another host name": lambda at: fails(
            at.sasl_ssl.replace("127.0.0.1", "localhost"), tls(at), TlsFailed, "another name"
        ),
        "another host name, unchecked": lambda at: works(
            at.sasl_ssl.replace("127.0.0.1", "localhost"),
            ClientSettings(
                tls=TlsSettings(str(at.files.authorities), checks_host=False), sasl=sasl("PLAIN")
            ),
        ),
        "a certificate of the client": lambda at: works(
            at.sasl_ssl,
            ClientSettings(
                tls=TlsSettings(
                    str(at.files.authorities), str(at.files.certificate), str(at.files.key)
                ),
                sasl=sasl("PLAIN"),
            ),
        ),
        "a certificate that is not trusted": lambda at: fails(
            at.sasl_ssl,
            ClientSettings(
                tls=TlsSettings(
                    str(at.files.authorities), str(at.stranger.certificate), str(at.stranger.key)
                ),
                sasl=sasl("PLAIN"),
            ),
            TlsFailed,
            "certificate unknown",
        ),
    }
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
        found[f"{mechanism} without TLS"] = _through("sasl_plaintext", mechanism, SESSION_MS * 2.5)
        found[f"{mechanism} with TLS"] = _through("sasl_ssl", mechanism, 0)
        found[f"{mechanism}, wrong"] = _wrong(mechanism)
    return found


def tls(at: Places, **changes: str) -> ClientSettings:
    return ClientSettings(tls=replace(TlsSettings(str(at.files.authorities)), **changes))


def _through(listener: str, mechanism: str, lasting_ms: float) -> Case:
    def case(at: Places) -> None:
        settings = ClientSettings(sasl=sasl(mechanism))
        if listener == "sasl_ssl":
            settings = replace(tls(at), sasl=sasl(mechanism))
        works(getattr(at, listener), settings, seconds=lasting_ms / 1000)

    return case


def _wrong(mechanism: str) -> Case:
    wrong = (
        SaslSettings(mechanism, token=unsecured_token(USER, seconds=-600))
        if mechanism == "OAUTHBEARER"
        else sasl(mechanism, "not the password")
    )
    return lambda at: fails(
        at.sasl_plaintext, ClientSettings(sasl=wrong), AuthenticationFailed, mechanism
    )


def main() -> None:
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        files = authority.sign("judge", "127.0.0.1")
        stranger = Authority(Path(folder) / "other", "strangers").sign("stranger", "127.0.0.1")
        *ports, controller = free_ports(4)
        at = Places(*(f"127.0.0.1:{port}" for port in ports), files, stranger)
        properties = _properties(at, Path(folder), f"127.0.0.1:{controller}")
        with Kafka(properties=properties, ports=(ports[0], controller)):
            _create_user(at.plaintext)
            for name, case in cases().items():
                if chosen in name:
                    failed += not _passes(name, case, at)
    sys.exit(1 if failed else 0)


def _passes(name: str, case: Case, at: Places) -> bool:
    began = time.monotonic()
    try:
        case(at)
    except (Exception, pytest.fail.Exception) as error:
        sys.stdout.write(f"FAIL {name}: {type(error).__name__}: {error}\n")
        return False
    sys.stdout.write(f"ok   {time.monotonic() - began:4.1f} s  {name}\n")
    sys.stdout.flush()
    return True


def _properties(at: Places, folder: Path, controller: str) -> dict[str, str]:
    """Two listeners more, on which everything that the client offers is accepted."""
    both = folder / "judge.both.pem"
    both.write_text(at.files.key.read_text() + at.files.certificate.read_text())
    listeners = {
        "PLAINTEXT": at.plaintext,
        "SASL_PLAINTEXT": at.sasl_plaintext,
        "SASL_SSL": at.sasl_ssl,
    }
    stated = ",".join(f"{name}://{address}" for name, address in listeners.items())
    settings = {
        "listeners": f"{stated},CONTROLLER://{controller}",
        "advertised.listeners": stated,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{name}" for name in listeners),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(at.files.authorities),
        # Without the prefix it does not apply to listeners with SASL.
        "listener.name.sasl_ssl.ssl.client.auth": "requested",
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{name}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": f'{_PLAIN} required user_{USER}="{PASSWORD}";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required "
            f'unsecuredLoginStringClaim_sub="broker";',
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.internals."
            "unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
        }
    return settings


def _create_user(bootstrap: str) -> None:
    with LogClient(bootstrap) as client:
        for number, mechanism in SCRAM_NUMBERS.items():  # Kafka takes a user once per request.
            salt = os.urandom(16)
            salted = salted_password(mechanism, PASSWORD, salt, ITERATIONS)
            change = alter_scram.ScramCredentialUpsertion(USER, number, ITERATIONS, salt, salted)
            request = alter_scram.AlterUserScramCredentialsRequest(upsertions=[change])
            response = client.cluster.call_controller(alter_scram, request)
            assert all(one.error_code == 0 for one in response.results), response


if __name__ == "__main__":
    main()
