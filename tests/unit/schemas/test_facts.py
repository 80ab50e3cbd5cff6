"""Facts as records: what is written is read, and what was never written is told from it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import UnsupportedVersion
from goqueue.schemas.facts import (
    FACT_VERSION,
    Change,
    ConfigFact,
    CorruptSchemaState,
    Fact,
    GoneConfig,
    GoneMode,
    GoneVersion,
    IdsFact,
    ModeFact,
    VersionFact,
    config_key,
    mode_key,
    read_record,
    state,
    to_record,
    version_key,
)
from goqueue.schemas.formats import Reference, SchemaKind

FACTS: list[Fact] = [
    VersionFact(
        subject=":.sales:a/b",
        version=7,
        id=3,
        kind=SchemaKind.PROTOBUF,
        text='syntax = "proto3";',
        guid="g",
        registered_at_ms=5,
        references=(Reference("n", "s", 1),),
        metadata={"properties": {"a": "b"}},
        rule_set={"domainRules": []},
        is_deleted=True,
    ),
    ConfigFact(subject="", level="FULL", normalize=True, group="major"),
    ModeFact(subject=":.sales:", mode="IMPORT"),
    IdsFact(context=".", next_id=12),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_is_read_as_it_was_written(fact: Fact) -> None:
    record = to_record(state(fact), now_ms=9)
    assert read_record(record.key or b"", record.value) == fact


@given(st.text(max_size=50), st.integers(1, 2**31 - 1))
def test_a_key_says_what_is_gone(subject: str, number: int) -> None:
    gone = {
        version_key(subject, number): GoneVersion(subject, number),
        config_key(subject): GoneConfig(subject),
        mode_key(subject): GoneMode(subject),
    }
    for key, meant in gone.items():
        record = to_record(Change(key, None), now_ms=9)
        assert read_record(record.key or b"", record.value) == meant


def test_what_a_later_version_writes_is_not_passed_over() -> None:
    with pytest.raises(UnsupportedVersion, match=r"version/1/a.*version 2.*upgrade this node"):
        read_record(b"version/1/a", b"\x02anything")
    later = FACT_VERSION + msgspec.msgpack.encode({"type": "later"})
    with pytest.raises(UnsupportedVersion, match=r"kind 'later'.*upgrade this node"):
        read_record(b"later/a", later)
    assert read_record(b"unheard/of", None) is None


@given(st.binary(max_size=100), st.binary(max_size=200))
def test_other_bytes_are_refused_in_one_way(key: bytes, value: bytes) -> None:
    for content in (None, value, FACT_VERSION + value):
        try:
            read_record(key, content)
        except (CorruptSchemaState, UnsupportedVersion):
            pass
