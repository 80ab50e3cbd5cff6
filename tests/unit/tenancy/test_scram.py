"""SCRAM: the example of RFC 7677, and clients that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.credentials import ScramMechanism, ScramVerifier
from goqueue.model.errors import AuthenticationFailed, MalformedRequest
from goqueue.tenancy.scram import ScramConversation, is_password, make_verifier, salted_password

SALT = b"0123456789abcdef"
MECHANISMS = list(ScramMechanism)


def conversation(
    verifier: ScramVerifier | None, mechanism: ScramMechanism = ScramMechanism.SHA_256
) -> ScramConversation:
    return ScramConversation(
        mechanism, lambda user: verifier, nonce=b"server-nonce", salt_secret=b"secret"
    )


def proof_of(
    mechanism: ScramMechanism,
    password: str,
    first: str,
    answer: str,
    binding: bytes = b"n,,",
    *,
    nonce: str = "",
) -> bytes:
    """The second message of an honest client."""
    fields = dict(part.split("=", 1) for part in answer.split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    salted = salted_password(mechanism, password, salt, iterations)
    name = mechanism.hash_name
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    without_proof = f"c={base64.b64encode(binding).decode()},r={nonce or fields['r']}"
    signed = f"{first[3:]},{answer},{without_proof}".encode()
    signature = hmac.digest(stored_key, signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_that_knows_the_password_is_let_in(mechanism: ScramMechanism) -> None:
    verifier = make_verifier(mechanism, "pencil-case", SALT)
    talk = conversation(verifier, mechanism)
    first = "n,,n=a=2Cb,r=client-nonce"
    answer = talk.answer(first.encode()).decode()
    final = talk.answer(proof_of(mechanism, "pencil-case", first, answer))
    assert talk.is_done
    assert talk.user == "a,b"
    assert final.startswith(b"v=")


@pytest.mark.parametrize("verifier", [None, make_verifier(ScramMechanism.SHA_256, "other", SALT)])
def test_a_wrong_password_and_an_unknown_user_look_the_same(
    verifier: ScramVerifier | None,
) -> None:
    talk = conversation(verifier)
    first = "n,,n=ada,r=client-nonce"
    answer = talk.answer(first.encode()).decode()
    assert answer.startswith("r=client-nonce")
    with pytest.raises(AuthenticationFailed):
        talk.answer(proof_of(ScramMechanism.SHA_256, "pencil-case", first, answer))
    assert not talk.is_done


def test_the_salt_of_an_unknown_user_does_not_change() -> None:
    answers = {conversation(None).answer(b"n,,n=nobody,r=x") for _ in range(3)}
    assert len(answers) == 1


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"p=tls-unique,,n=ada,r=x",
        b"n,,n=ada",
        b"n,,r=x",
        b"n,,n=ada,n=bob,r=x",
        b"n,,m=ext,n=ada,r=x",
        b"n,,n=ada,r=",
        b"\xff\xfe",
        b"n,,r=x,n=ada",
        b"n,,n=,r=x",
        b"n,,n=ada,r=a b",
        b"n,,n=a=41da,r=x",
        b"n,,n=ada=,r=x",
        b"n,b=x,n=ada,r=x",
        b"n,,n=ada,r=x,m=required",
        b"n,,n=ada,r=x,tokenauth=true",
        b"n,,n=ada,r=" + b"x" * 5_000,
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedRequest):
        conversation(None).answer(message)


@pytest.mark.parametrize("message", [b"c=biws,r=n", b"c=biws,p=abc", b"r=n,p=abc", b"c=!,r=n,p=!"])
def test_what_is_no_proof_is_refused(message: bytes) -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    talk.answer(b"n,,n=ada,r=n")
    with pytest.raises((MalformedRequest, AuthenticationFailed)):
        talk.answer(message)


@pytest.mark.parametrize("first", ["n,a=ada,n=ada,r=c", "y,,n=ada,r=c", "n,,n=ada,r=c,x=ignored"])
def test_variants_of_the_first_message_are_accepted(first: str) -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    answer = talk.answer(first.encode()).decode()
    header, at = first[: first.index("n=ada")], first.index("n=ada")
    bare = "n,," + first[at:]
    proof = proof_of(ScramMechanism.SHA_256, "pencil-case", bare, answer, header.encode())
    assert talk.answer(proof).startswith(b"v=")


@pytest.mark.parametrize(
    ("nonce", "is_accepted"),
    [("{client}{client}{server}", True), ("{client}", False), ("{server}", False), ("x", False)],
)
def test_the_nonce_of_old_versions_of_librdkafka_is_accepted(nonce: str, is_accepted: bool) -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    first = "n,,n=ada,r=c-1"
    answer = talk.answer(first.encode()).decode()
    whole = answer.split(",")[0][2:]
    sent = nonce.format(client="c-1", server=whole.removeprefix("c-1"))
    proof = proof_of(ScramMechanism.SHA_256, "pencil-case", first, answer, nonce=sent)
    if is_accepted:
        assert talk.answer(proof).startswith(b"v=")
    else:
        with pytest.raises(AuthenticationFailed):
            talk.answer(proof)


def test_nobody_acts_as_another_user() -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    with pytest.raises(AuthenticationFailed):
        talk.answer(b"n,a=admin,n=ada,r=x")


@pytest.mark.parametrize("binding", [b"y,,", b"p=tls-unique,,x", b"n,a=ada,", b""])
def test_another_channel_binding_than_at_the_start_is_refused(binding: bytes) -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    first = "n,,n=ada,r=c"
    answer = talk.answer(first.encode()).decode()
    proof = proof_of(ScramMechanism.SHA_256, "pencil-case", first, answer, binding)
    with pytest.raises(AuthenticationFailed):
        talk.answer(proof)


def test_a_proof_gets_one_attempt() -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    first = "n,,n=ada,r=c"
    answer = talk.answer(first.encode()).decode()
    with pytest.raises(AuthenticationFailed):
        talk.answer(proof_of(ScramMechanism.SHA_256, "pencil-cases", first, answer))
    with pytest.raises(MalformedRequest):
        talk.answer(proof_of(ScramMechanism.SHA_256, "pencil-case", first, answer))
    assert not talk.is_done


def test_a_client_cannot_use_the_made_up_verifier() -> None:
    """Its keys are known, so a client can compute a proof that fits them."""
    talk = conversation(None)
    first = "n,,n=nobody,r=c"
    answer = talk.answer(first.encode()).decode()
    without_proof = f"c=biws,r={answer.split(',')[0][2:]}"
    proof = base64.b64encode(bytes(32)).decode()
    with pytest.raises(AuthenticationFailed):
        talk.answer(f"{without_proof},p={proof}".encode())


@given(messages=st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_random_messages_are_refused(messages: list[bytes]) -> None:
    talk = conversation(make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT))
    for message in messages:
        with suppress(MalformedRequest, AuthenticationFailed):
            talk.answer(message)
    assert not talk.is_done


@given(data=st.data())
def test_a_changed_proof_is_refused(data: st.DataObject) -> None:
    verifier = make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT)
    talk = conversation(verifier)
    first = "n,,n=ada,r=c"
    answer = talk.answer(first.encode()).decode()
    proof = bytearray(proof_of(ScramMechanism.SHA_256, "pencil-case", first, answer))
    # The last two characters have bits that base64 ignores.
    at = data.draw(st.integers(0, len(proof) - 3))
    proof[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((MalformedRequest, AuthenticationFailed)):
        talk.answer(bytes(proof))


def test_a_finished_conversation_takes_no_more() -> None:
    verifier = make_verifier(ScramMechanism.SHA_256, "pencil-case", SALT)
    talk = conversation(verifier)
    first = "n,,n=ada,r=client-nonce"
    answer = talk.answer(first.encode()).decode()
    proof = proof_of(ScramMechanism.SHA_256, "pencil-case", first, answer)
    talk.answer(proof)
    with pytest.raises(MalformedRequest):
        talk.answer(proof)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_passwords_are_checked_against_verifiers(mechanism: ScramMechanism) -> None:
    verifier = make_verifier(mechanism, "pencil-case", SALT)
    assert is_password(verifier, "pencil-case")
    assert not is_password(verifier, "pencil-cases")
