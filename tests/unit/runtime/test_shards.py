"""Where several nodes on one machine listen and keep their data."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.config import Settings, load
from goqueue.model.errors import InvalidSettings
from goqueue.runtime.shards import SHARDS_MAX, plan


def settings_in(folder: Path, **overrides: str) -> Settings:
    paths = {name.replace("__", "."): text for name, text in overrides.items()}
    return load(environ={}, overrides={"node.data_dir": str(folder), **paths})


def test_the_first_listens_where_the_settings_say_and_the_others_beside_it(tmp_path: Path) -> None:
    shards = plan(settings_in(tmp_path), 3)
    assert [one.settings["listeners.kafka"] for one in shards] == [
        "127.0.0.1:9092",
        "127.0.0.1:9093",
        "127.0.0.1:9094",
    ]
    assert [one.data_dir.name for one in shards] == ["shard-1", "shard-2", "shard-3"]
    assert len({one.settings["cluster.peers"] for one in shards}) == 1
    assert shards[0].settings["cluster.peers"].startswith("1@127.0.0.1:7000,2@127.0.0.1:7001,")


def test_no_two_listeners_get_the_same_port(tmp_path: Path) -> None:
    shards = plan(settings_in(tmp_path), 8)
    bound = [
        text
        for one in shards
        for path, text in one.settings.items()
        if path.startswith("listeners.")
    ]
    assert len(bound) == len(set(bound))


def test_free_ports_stay_free_to_choose_but_that_between_nodes_must_be_known(
    tmp_path: Path,
) -> None:
    wanted = {"listeners__kafka": "127.0.0.1:0", "listeners__internal": "127.0.0.1:0"}
    shards = plan(settings_in(tmp_path, **wanted), 2)
    assert {one.settings["listeners.kafka"] for one in shards} == {"127.0.0.1:0"}
    assert all(not one.settings["listeners.internal"].endswith(":0") for one in shards)


def test_shards_of_several_machines_take_their_places_in_the_list_of_peers(tmp_path: Path) -> None:
    peers = "1@10.0.0.1:7100,2@10.0.0.1:7200,3@10.0.0.2:7100,4@10.0.0.2:7200"
    shards = plan(settings_in(tmp_path, node__id="3", cluster__peers=peers), 2)
    assert [one.node_id for one in shards] == [3, 4]
    assert [one.settings["listeners.internal"][-5:] for one in shards] == [":7100", ":7200"]
    assert all("cluster.peers" not in one.settings for one in shards)


def test_an_advertised_port_moves_along_with_the_bound_one(tmp_path: Path) -> None:
    shards = plan(settings_in(tmp_path, listeners__kafka_advertised="broker.example:19092"), 2)
    assert shards[1].settings["listeners.kafka_advertised"] == "broker.example:19093"


def test_the_folder_of_a_single_node_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    with pytest.raises(InvalidSettings, match="choose another folder"):
        plan(settings_in(tmp_path), 2)


@pytest.mark.parametrize("count", [-1, 0, SHARDS_MAX + 1])
def test_senseless_numbers_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(InvalidSettings, match="--shards"):
        plan(settings_in(tmp_path), count)


def test_every_listener_moves_and_keeps_its_name_and_security(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path,
        listeners__kafka="127.0.0.1:9092,out=sasl_ssl://0.0.0.0:9093",
        listeners__kafka_advertised="out=queue.example:19093",
        security__tls_certificate="server.pem",
        security__tls_key="server.key",
    )
    first, second = plan(settings, 2)
    assert first.settings["listeners.kafka"] == "127.0.0.1:9092,out=sasl_ssl://0.0.0.0:9093"
    assert second.settings["listeners.kafka"] == "127.0.0.1:9094,out=sasl_ssl://0.0.0.0:9095"
    assert second.settings["listeners.kafka_advertised"] == "out=queue.example:19095"
