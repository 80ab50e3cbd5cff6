"""The schema registry, called at any node of a cluster: its leader takes the changes."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.schemas import (
    LATEST,
    ConfigChange,
    Mode,
    Reference,
    Request,
    SchemasArea,
    Subject,
    VersionView,
    read_subject,
)
from goqueue.model.errors import InvalidSchema, SchemaRefusal, SchemaRefused
from goqueue.model.session import Session
from goqueue.schemas.scopes import Level
from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.front_end import Limits
from goqueue.wire.http.front_end import FrontEnd
from goqueue.wire.http.registry_operations import registry_dialect
from tests.simulation.cluster_world import ClusterWorld
from tests.unit.schemas.desk import record
from tests.unit.wire.http.client import Wire, request

SESSION = Session("test", principal="User:alice")
PLAIN = record(name="User", a="string")
WIDER = record(name="User", a="string", b="int?")
BREAKING = record(name="User", a="string", b="int")
ALL = {"offset": 0, "limit": 100}


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    return world


def register(
    world: ClusterWorld, gate: SchemasArea, subject: Subject, text: str, **more: object
) -> VersionView:
    wanted = Request(text, **more)  # type: ignore[arg-type]
    registered = gate.register(
        SESSION, subject=subject, request=wanted, normalize=False, force=False
    )
    return world.wait(registered)


def test_every_node_registers_and_finds(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        gate, subject = entry.broker.gate.schemas, read_subject(f"users-{number}")
        referred = register(world, gate, read_subject(f"base-{number}"), PLAIN)
        order = '{"type": "record", "name": "Order", "fields": [{"name": "u", "type": "User"}]}'
        version = register(
            world,
            gate,
            subject,
            order,
            references=(Reference("User", f"base-{number}", 1),),
            metadata={"properties": {"team": "a"}},
        )
        assert (version.subject, version.number) == (subject, 1)
        assert version.schema.references[0].subject == f"base-{number}"
        found = gate.lookup(
            SESSION,
            subject=read_subject(f"base-{number}"),
            request=Request(PLAIN),
            normalize=False,
            with_deleted=False,
            form="",
        )
        assert world.wait(found) == referred
        # The other nodes apply a change before it is answered, so any of them shows it.
        for other in world.nodes.values():
            shown = other.broker.gate.schemas.show_version(
                SESSION, subject=subject, number=LATEST, with_deleted=False, form=""
            )
            assert world.wait(shown) == version


def test_compatibility_and_refusals_arrive_as_they_are(world: ClusterWorld) -> None:
    subject = read_subject("users")
    register(world, world.nodes[1].broker.gate.schemas, subject, PLAIN)
    for entry in world.nodes.values():
        gate = entry.broker.gate.schemas
        same = {"subject": subject, "normalize": False, "number": None}
        assert world.wait(gate.compare(SESSION, request=Request(WIDER), **same)) == []
        assert world.wait(gate.compare(SESSION, request=Request(BREAKING), **same)) != []
        with pytest.raises(InvalidSchema):
            world.wait(gate.compare(SESSION, request=Request("{"), **same))
        with pytest.raises(SchemaRefused) as refused:
            register(world, gate, subject, BREAKING)
        assert refused.value.reason == SchemaRefusal.INCOMPATIBLE


def test_every_node_changes_settings_and_modes(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        gate, subject = entry.broker.gate.schemas, read_subject(f":.sales:users-{number}")
        metadata = {"properties": {"owner": "shop"}}
        change = ConfigChange(level=Level.FULL, group=None, default_metadata=metadata)
        config = world.wait(gate.set_config(SESSION, subject=subject, change=change))
        assert config.level is Level.FULL
        assert config.additions.default_metadata == metadata
        change = ConfigChange(normalize=True)
        config = world.wait(gate.set_config(SESSION, subject=subject, change=change))
        assert (config.level, config.normalize) == (Level.FULL, True)
        assert world.wait(gate.delete_config(SESSION, subject=subject)) == config
        mode = gate.set_mode(SESSION, subject=subject, mode=Mode.READONLY, force=False)
        assert world.wait(mode) is Mode.READONLY
        gone = world.wait(gate.delete_mode(SESSION, subject=subject, recursive=False))
        assert gone is Mode.READONLY
        for other in world.nodes.values():
            shown = other.broker.gate.schemas.show_mode(
                SESSION, subject=subject, with_inherited=True
            )
            assert world.wait(shown) is Mode.READWRITE


def test_every_node_deletes(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        gate, subject = entry.broker.gate.schemas, read_subject(f"users-{number}")
        for text in (PLAIN, WIDER):
            register(world, gate, subject, text)
        deleted = gate.delete_version(SESSION, subject=subject, number=1, permanent=False)
        assert world.wait(deleted) == 1
        versions = gate.list_versions(
            SESSION,
            subject=subject,
            with_deleted=False,
            only_deleted=False,
            deleted_as_negative=True,
            **ALL,
        )
        assert world.wait(versions) == [-1, 2]
        assert world.wait(gate.delete_subject(SESSION, subject=subject, permanent=False)) == [2]


def test_an_alias_means_its_subject_at_every_node(world: ClusterWorld) -> None:
    alias, subject = read_subject("people"), read_subject("users")
    first = world.nodes[1].broker.gate.schemas
    change = ConfigChange(alias="users")
    world.wait(first.set_config(SESSION, subject=alias, change=change))
    for entry in world.nodes.values():
        assert register(world, entry.broker.gate.schemas, alias, PLAIN).subject == subject


def test_new_fields_are_shown_by_every_node(world: ClusterWorld) -> None:
    body = {"schema": PLAIN}
    headers = {"Confluent-Accept-Unknown-Properties": "true"}
    for number, entry in world.nodes.items():
        front = FrontEnd(entry.broker.gate, Limits(), ())
        wire = Wire(Application(front, registry_dialect()))
        path = f"/subjects/users-{number}/versions"
        wire.feed(request("POST", path, body, headers=headers))
        world.run_until(lambda wire=wire: bool(wire.answers))  # type: ignore[misc]
        assert {"guid", "id", "schemaType", "version"} <= wire.answers[0].json.keys()
