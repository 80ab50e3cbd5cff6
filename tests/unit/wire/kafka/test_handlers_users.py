"""Passwords of users by Kafka's tools: what is stored, and what is refused as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.access import Action, Resource
from goqueue.model.credentials import ScramMechanism
from goqueue.model.session import Session
from goqueue.tenancy.scram import is_password, salted_password
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from goqueue.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.unit.wire.kafka.client import Client

SHA_256, SHA_512 = 1, 2
MECHANISMS = {SHA_256: ScramMechanism.SHA_256, SHA_512: ScramMechanism.SHA_512}


@pytest.fixture
def client() -> Client:
    return Client()


def upsertion(
    name: str = "ada", mechanism: int = SHA_256, iterations: int = 4_096, **fields: Any
) -> ScramCredentialUpsertion:
    salted = b"x" * 32
    if mechanism in MECHANISMS:
        salted = salted_password(MECHANISMS[mechanism], "pencil", b"salt", max(iterations, 1))
    given = {"salt": b"salt", "salted_password": salted, **fields}
    return ScramCredentialUpsertion(name, mechanism, iterations, **given)


def alter(client: Client, *changes: Any) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    answer = client.call("AlterUserScramCredentials", request)
    assert len({one.user for one in answer.results}) == len(answer.results)
    assert all(bool(one.error_code) == bool(one.error_message) for one in answer.results)
    return {one.user: one.error_code for one in answer.results}


def describe(client: Client, *names: str) -> dict[str, Any]:
    users = [UserName(name) for name in names] if names else None
    answer = client.call("DescribeUserScramCredentials", DescribeUserScramCredentialsRequest(users))
    assert answer.error_code == 0
    return {
        one.user: one.error_code
        or {each.mechanism: each.iterations for each in one.credential_infos}
        for one in answer.results
    }


def test_a_password_is_stored_as_a_verifier(client: Client) -> None:
    assert alter(client, upsertion(), upsertion(mechanism=SHA_512, iterations=8_192)) == {"ada": 0}
    assert describe(client) == {"ada": {SHA_256: 4_096, SHA_512: 8_192}}
    fact = client.node.broker.identities.user("ada")
    assert all(is_password(one, "pencil") for one in fact.verifiers)


def test_other_credentials_of_a_user_stay(client: Client) -> None:
    alter(client, upsertion(), upsertion(mechanism=SHA_512))
    assert alter(client, upsertion(iterations=5_000)) == {"ada": 0}
    assert describe(client, "ada") == {"ada": {SHA_256: 5_000, SHA_512: 4_096}}
    assert alter(client, ScramCredentialDeletion("ada", SHA_256)) == {"ada": 0}
    assert describe(client, "ada") == {"ada": {SHA_512: 4_096}}


def test_a_user_without_credentials_is_not_described(client: Client) -> None:
    alter(client, upsertion())
    alter(client, ScramCredentialDeletion("ada", SHA_256))
    assert describe(client) == {}
    assert describe(client, "ada") == {"ada": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=-1, salted_password=bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(name="a/b"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b"x" * 257), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b"short"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("ada", 7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("ada", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_cannot_be_stored_is_refused_alone(client: Client, change: Any, code: int) -> None:
    assert alter(client, change, upsertion(name="bob")) == {change.name: code, "bob": 0}
    assert describe(client) == {"bob": {SHA_256: 4_096}}


def test_a_credential_that_is_changed_twice_is_refused(client: Client) -> None:
    alter(client, upsertion())
    twice = (upsertion(iterations=5_000), ScramCredentialDeletion("ada", SHA_256))
    assert alter(client, *twice, upsertion("bob")) == {
        "ada": ErrorCode.DUPLICATE_RESOURCE,
        "bob": 0,
    }
    assert alter(client, upsertion("eve"), upsertion("eve")) == {
        "eve": ErrorCode.DUPLICATE_RESOURCE
    }
    assert describe(client) == {"ada": {SHA_256: 4_096}, "bob": {SHA_256: 4_096}}


def test_all_changes_of_a_user_are_made_or_none(client: Client) -> None:
    changes = (upsertion(), ScramCredentialDeletion("ada", SHA_512))
    assert alter(client, *changes) == {"ada": ErrorCode.RESOURCE_NOT_FOUND}
    assert describe(client) == {}


def test_unknown_users_and_users_named_twice_are_described_as_such(client: Client) -> None:
    alter(client, upsertion())
    assert describe(client, "ada", "bob", "eve", "eve") == {
        "ada": {SHA_256: 4_096},
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "eve": ErrorCode.DUPLICATE_RESOURCE,
    }


class _Denies:
    """Allows everything but some actions."""

    def __init__(self, *actions: Action) -> None:
        self._actions = actions

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return action not in self._actions


def test_both_need_rights_to_the_cluster(client: Client) -> None:
    alter(client, upsertion())
    client.node.broker.local_gate.policy = _Denies(Action.ALTER, Action.DESCRIBE)
    assert alter(client, upsertion("bob")) == {"bob": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    answer = client.call("DescribeUserScramCredentials", DescribeUserScramCredentialsRequest(None))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.results == []
    client.node.broker.local_gate.policy = None
    assert list(describe(client)) == ["ada"]
