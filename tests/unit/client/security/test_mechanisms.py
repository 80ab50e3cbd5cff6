"""The client's sides of SASL, against the broker's own code and against brokers that cheat."""

from __future__ import annotations

import base64

import pytest

from goqueue.client.security.mechanisms import OAuthBearer, Plain, Scram, begin
from goqueue.client.security.settings import SaslSettings, sasl_of_api_key
from goqueue.model.credentials import ScramMechanism, ScramVerifier
from goqueue.model.errors import AuthenticationFailed, InvalidRequest
from goqueue.tenancy.scram import ScramConversation, make_verifier

SALT = b"0123456789abcdef"


def server(mechanism: ScramMechanism, verifier: ScramVerifier | None) -> ScramConversation:
    return ScramConversation(
        mechanism, lambda user: verifier, nonce=b"server-nonce", salt_secret=b"secret"
    )


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("user", ["ann", "a,b=c", "Jürgen"])
def test_scram_agrees_with_the_broker(mechanism: ScramMechanism, user: str) -> None:
    talk = server(mechanism, make_verifier(mechanism, "pencil-käse", SALT))
    client = Scram(mechanism, user, "pencil-käse")
    proof = client.answer(talk.answer(client.first()))
    assert proof is not None
    assert client.answer(talk.answer(proof)) is None
    assert talk.is_done
    assert talk.user == user


def test_the_example_of_rfc_7677() -> None:
    client = Scram("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert client.answer(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()) == (
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_a_broker_that_does_not_know_the_password_is_not_trusted() -> None:
    client = Scram("SCRAM-SHA-256", "ann", "secret-1", "abc")
    client.answer(b"r=abcdef,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        client.answer(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff\xfe",
        b"r=abc,s=c2FsdA==,i=4096",  # nothing added to the nonce
        b"r=other,s=c2FsdA==,i=4096",
        b"r=abcdef,s=c2FsdA==,i=1",
        b"r=abcdef,s=c2FsdA==,i=-5",
        b"r=abcdef,s=c2FsdA==,i=99999999",
        b"r=abcdef,s=c2FsdA==,i=999999999999999999999",
        b"r=abcdef,s=!,i=4096",
        b"r=abcdef,i=4096",
        b"m=x,r=abcdef,s=c2FsdA==,i=4096",
        b"hello",
    ],
)
def test_a_challenge_that_cheats_gets_no_proof(challenge: bytes) -> None:
    client = Scram("SCRAM-SHA-512", "ann", "secret-1", "abc")
    with pytest.raises(AuthenticationFailed):
        client.answer(challenge)


def test_every_conversation_has_another_nonce() -> None:
    assert Scram("SCRAM-SHA-256", "a", "b").first() != Scram("SCRAM-SHA-256", "a", "b").first()


def test_plain_and_tokens_are_framed_as_the_rfcs_say() -> None:
    assert Plain("ann", "secret-1").first() == b"\0ann\0secret-1"
    assert Plain("ann", "secret-1").answer(b"") is None
    token = OAuthBearer("abc.def.ghi")
    assert token.first() == b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"
    assert token.answer(b"") is None
    assert token.answer(b'{"status":"invalid_token"}') == b"\x01"


def test_secrets_that_would_change_the_message_are_refused_without_showing_them() -> None:
    for make in (lambda: Plain("ann", "sec\0ret"), lambda: OAuthBearer("abc\x01def")):
        with pytest.raises(InvalidRequest) as caught:
            make()
        assert "sec" not in str(caught.value)
        assert "def" not in str(caught.value)


def test_a_secret_may_be_a_function_that_is_called_each_time() -> None:
    passwords = iter(["first-one", "second-one"])
    settings = SaslSettings("PLAIN", "ann", lambda: next(passwords))
    assert begin(settings).first() == b"\0ann\0first-one"
    assert begin(settings).first() == b"\0ann\0second-one"


def test_settings_are_checked_and_hide_their_secrets() -> None:
    for wrong in (("SCRAM-SHA-1", "a", "b"), ("PLAIN", "a", ""), ("PLAIN", "", "b")):
        with pytest.raises(InvalidRequest):
            SaslSettings(*wrong)
    with pytest.raises(InvalidRequest, match="token"):
        SaslSettings("OAUTHBEARER")
    shown = repr(SaslSettings("PLAIN", "ann", "hunter22")) + repr(
        SaslSettings("OAUTHBEARER", token="hunter22")
    )
    assert "hunter22" not in shown


def test_an_api_key_is_sent_as_a_password() -> None:
    settings = sasl_of_api_key("gqk_abcdefgh_secret_with_underscores")
    assert (settings.mechanism, settings.username) == ("PLAIN", "abcdefgh")
    assert settings.password == "gqk_abcdefgh_secret_with_underscores"
    assert sasl_of_api_key("other").username == "api-key"
