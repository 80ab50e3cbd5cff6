"""Stock Kafka clients and the credentials that they authenticate with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.integration.process import Broker

from .nodes import ADMIN, GuardedBroker
from .sasl_clients import CLIENTS, Login, Refused, confluent_settings

pytestmark = pytest.mark.single_node("the passwords are those of one node")

KINDS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node whose Kafka clients must authenticate, with the administrator and `ada`."""
    broker = GuardedBroker(tmp_path_factory.mktemp("sasl"))
    try:
        broker.start()
        set_password(broker, "ada", "ada-secret")
        set_password(broker, "eve", "eve-secret")
        yield broker
    finally:
        broker.close()


def alter(node: Broker, *changes: Any) -> None:
    """Change passwords as Kafka's tools do: they do not leave the client."""
    admin = AdminClient(confluent_settings(node.bootstrap, ADMIN))
    for change in changes:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(10)


def set_password(node: Broker, user: str, password: str) -> None:
    infos = [ScramCredentialInfo(one, 4_096) for one in KINDS]
    alter(node, *(UserScramCredentialUpsertion(user, one, password.encode()) for one in infos))


def remove_password(node: Broker, user: str) -> None:
    alter(node, *(UserScramCredentialDeletion(user, one) for one in KINDS))


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_the_right_password_is_served(
    node: Broker, client: str, mechanism: str, unique: str
) -> None:
    login = Login(mechanism, "ada", "ada-secret")
    assert CLIENTS[client](node.bootstrap, login, unique) == f"from {client}".encode()


# At the end, because an address that has failed often has to wait.


@pytest.mark.parametrize("user", ["eve", "nobody"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_wrong_credentials_learns_that_they_are_wrong(
    node: Broker, client: str, mechanism: str, user: str, unique: str
) -> None:
    with pytest.raises(Refused) as refused:
        CLIENTS[client](node.bootstrap, Login(mechanism, user, "wrong-secret"), unique)
    # aiokafka and kafka-python only log what the broker answers.
    texts = "credentials are not valid|Too many failed attempts|Unable to bootstrap"
    assert re.search(texts, str(refused.value))
