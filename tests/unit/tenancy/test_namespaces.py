"""Names of a tenant, inwards and outwards."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.access import CLUSTER, Resource, ResourceKind
from goqueue.model.errors import (
    GoQueueError,
    InvalidGroupId,
    InvalidTenantName,
    InvalidTopicName,
    InvalidTopicSetting,
    SchemaRefused,
    UnknownTopic,
    UnknownTransaction,
)
from goqueue.model.tenants import (
    NameKind,
    check_tenant_name,
    name_beside,
    plain_name,
    prefix_of,
    tenant_of,
)
from goqueue.tenancy.namespaces import ForeignName, Namespace

ACME = Namespace("acme", lambda text: text)
OTHER = Namespace("other", lambda text: text)
DEFAULT = Namespace("", lambda text: text)
NAMES = [
    NameKind.TOPIC,
    NameKind.GROUP,
    NameKind.TRANSACTIONAL_ID,
    NameKind.QUEUE,
    NameKind.QUERY,
    NameKind.SUBJECT,
]


@pytest.mark.parametrize("name", ["acme", "a", "0", "a-b", "a" * 32])
def test_a_tenant_can_have_a_name_like_a_host(name: str) -> None:
    check_tenant_name(name)
    assert tenant_of(f"~{name}~orders") == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a~b", "a" * 33, "a b", "é"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTenantName):
        check_tenant_name(name)


def test_the_tenant_of_a_name_is_in_its_prefix() -> None:
    assert (prefix_of("~acme~orders"), plain_name("~acme~orders")) == ("~acme~", "orders")
    assert (prefix_of("orders"), plain_name("orders")) == ("", "orders")
    assert prefix_of("~orders") == prefix_of("a~acme~b") == prefix_of("~Acme~x") == ""


def test_a_name_in_a_record_stays_in_the_tenant_of_the_record() -> None:
    assert name_beside("~acme~orders.dlq", "orders") == "~acme~orders"
    assert name_beside("~acme~orders.dlq", "~other~orders") == "~acme~~other~orders"
    assert name_beside("orders.dlq", "orders") == "orders"
    assert name_beside("orders.dlq", "~acme~orders") is None


@pytest.mark.parametrize("kind", NAMES)
@given(name=st.text(min_size=1, max_size=50))
def test_names_come_back_as_they_were_sent(kind: NameKind, name: str) -> None:
    inside = ACME.inward(kind, name)
    assert ACME.outward(kind, inside) == name


@pytest.mark.parametrize("kind", NAMES)
@given(name=st.text(min_size=1, max_size=50))
def test_no_name_of_one_tenant_is_one_of_another(kind: NameKind, name: str) -> None:
    inside = ACME.inward(kind, name)
    for space in (OTHER, DEFAULT):
        with pytest.raises(ForeignName):
            space.outward(kind, inside)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (NameKind.TOPIC, InvalidTopicName),
        (NameKind.QUEUE, InvalidTopicName),
        (NameKind.GROUP, InvalidGroupId),
        (NameKind.TRANSACTIONAL_ID, GoQueueError),
    ],
)
def test_the_default_tenant_cannot_name_those_of_others(
    kind: NameKind, error: type[GoQueueError]
) -> None:
    with pytest.raises(error):
        DEFAULT.inward(kind, "~acme~orders")
    assert DEFAULT.inward(kind, "a~b~c") == "a~b~c"


def test_an_empty_name_means_none() -> None:
    assert ACME.inward(NameKind.TOPIC, "") == ""
    assert ACME.outward(NameKind.TOPIC, "") == ""


def test_subjects_have_their_tenant_in_the_context() -> None:
    inward = {
        "orders": ":.~acme~:orders",
        ":.sales:orders": ":.~acme~sales:orders",
        ":.:orders": ":.~acme~:orders",
    }
    for plain, inside in inward.items():
        assert ACME.inward(NameKind.SUBJECT, plain) == inside
    assert ACME.outward(NameKind.SUBJECT, ":.~acme~sales:orders") == ":.sales:orders"
    assert ACME.inward(NameKind.CONTEXT, ".") == ".~acme~"
    assert ACME.outward(NameKind.CONTEXT, ".~acme~sales") == ".sales"
    with pytest.raises(ForeignName):
        ACME.outward(NameKind.CONTEXT, ".")
    with pytest.raises(SchemaRefused):
        DEFAULT.inward(NameKind.SUBJECT, ":.~acme~:orders")


def test_a_reference_without_a_context_stays() -> None:
    assert ACME.inward(NameKind.REFERENCE, "orders") == "orders"
    assert ACME.inward(NameKind.REFERENCE, ":.sales:orders") == ":.~acme~sales:orders"


@pytest.mark.parametrize(
    ("plain", "inside"),
    [
        ("", ":.~acme~"),
        ("ord", ":.~acme~:ord"),
        (":.sal", ":.~acme~sal"),
        (":*:ord", ":*:ord"),
    ],
)
def test_prefixes_of_subjects(plain: str, inside: str) -> None:
    assert ACME.inward(NameKind.SUBJECT_PREFIX, plain) == inside


def test_a_pattern_matches_names_of_the_tenant_only() -> None:
    inside = re.compile(ACME.inward(NameKind.PATTERN, "a|b"))
    assert [one for one in ("~acme~a", "~acme~b", "b", "~other~b") if inside.fullmatch(one)] == [
        "~acme~a",
        "~acme~b",
    ]
    assert ACME.inward(NameKind.PATTERN, "") == ""


def test_a_transaction_of_another_tenant_is_unknown() -> None:
    assert ACME.inward(NameKind.TRANSACTION, "~acme~t") == "~acme~t"
    with pytest.raises(UnknownTransaction):
        ACME.inward(NameKind.TRANSACTION, "~other~t")
    with pytest.raises(UnknownTransaction):
        DEFAULT.inward(NameKind.TRANSACTION, "~acme~t")


def test_each_tenant_has_its_own_cluster_id() -> None:
    real = "x" * 22
    shown = {space.outward(NameKind.CLUSTER, real) for space in (ACME, OTHER, DEFAULT)}
    assert len(shown) == 3
    assert all(len(one) == 22 for one in shown)


def test_errors_have_plain_names() -> None:
    shown = ACME.error(UnknownTopic("~acme~orders"))
    assert isinstance(shown, UnknownTopic)
    assert str(shown) == str(UnknownTopic("orders"))


def test_only_the_own_prefix_is_removed_from_a_text_and_only_once() -> None:
    assert ACME.sentence("'~acme~~acme~x' and :.~acme~:y") == "'~acme~x' and y"
    assert ACME.sentence("l~acme~x") == "l~acme~x"


def test_other_attributes_of_errors_stay() -> None:
    shown = ACME.error(InvalidTopicSetting("see ~acme~orders.", setting="x"))
    assert isinstance(shown, InvalidTopicSetting)
    assert (shown.setting, shown.reason) == ("x", "see orders.")


def test_queue_settings_name_topics() -> None:
    inside = ACME.add_to_settings({"dead_letter_topic": "d", "deliveries_max": 3})
    assert inside == {"dead_letter_topic": "~acme~d", "deliveries_max": 3}
    assert ACME.strip_settings(inside) == {"dead_letter_topic": "d", "deliveries_max": 3}
    assert ACME.add_to_settings({"dead_letter_topic": None}) == {"dead_letter_topic": None}


def test_resources_by_their_kind() -> None:
    topic = Resource(ResourceKind.TOPIC, "orders")
    assert ACME.resource(topic).name == "~acme~orders"
    assert ACME.resource(Resource(ResourceKind.SUBJECT, "orders")).name == ":.~acme~:orders"
    assert ACME.resource(CLUSTER).name == "~acme~kafka-cluster"
    assert not ACME.holds(topic)
    assert ACME.holds(ACME.resource(topic))
    assert DEFAULT.holds(topic)
    assert not DEFAULT.holds(ACME.resource(topic))
