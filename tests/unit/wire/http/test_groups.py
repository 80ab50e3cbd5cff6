"""Stream groups over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request

GROUP = "/v1/groups/billing"


@pytest.fixture(autouse=True)
def _orders(world: World) -> None:
    world.create("orders", 4)


def join(client: Client, member_id: str, **more: Any) -> dict[str, Any]:
    body = {"topics": ["orders"], "member_id": member_id, **more}
    joined: dict[str, Any] = client.post(f"{GROUP}/join", body)
    return joined


def poll(client: Client, member_id: str, epoch: int, **more: Any) -> dict[str, Any]:
    query = {"member_id": member_id, "member_epoch": epoch, **more}
    polled: dict[str, Any] = client.get(f"{GROUP}/poll", **query)
    return polled


def partitions(assignment: list[dict[str, Any]] | None) -> set[int]:
    return {number for one in assignment or [] for number in one["partitions"]}


def values(polled: dict[str, Any]) -> list[str]:
    return [one["value"] for one in polled["messages"]]


def test_a_member_alone_gets_everything_and_reads_on(world: World, client: Client) -> None:
    joined = join(client, "one")
    assert partitions(joined["assignment"]) == {0, 1, 2, 3}
    epoch = joined["member_epoch"]
    world.produce("orders", ["a", "b"], partition=2)
    assert values(poll(client, "one", epoch)) == ["a", "b"]
    assert values(poll(client, "one", epoch)) == []
    world.produce("orders", ["c"], partition=0)
    assert values(poll(client, "one", epoch)) == ["c"]


def test_partitions_move_in_two_steps_and_nobody_reads_the_same(
    world: World, client: Client
) -> None:
    one = join(client, "one")
    two = join(client, "two")
    assert partitions(two["assignment"]) == set(), "they are still held by the first"
    told = client.post(
        f"{GROUP}/heartbeat", {"member_id": "one", "member_epoch": one["member_epoch"]}
    )
    kept = partitions(told["assignment"])
    assert len(kept) == 2
    beat = {"member_id": "two", "member_epoch": two["member_epoch"]}
    assert client.post(f"{GROUP}/heartbeat", beat)["assignment"] is None
    revoked = client.post(
        f"{GROUP}/revoke",
        {"member_id": "one", "member_epoch": one["member_epoch"], "owned": told["assignment"]},
    )
    assert revoked["member_epoch"] > one["member_epoch"]
    got = client.post(f"{GROUP}/heartbeat", beat)
    assert partitions(got["assignment"]) == {0, 1, 2, 3} - kept
    for number in range(4):
        world.produce("orders", [str(number)], partition=number)
    first = values(poll(client, "one", revoked["member_epoch"]))
    second = values(poll(client, "two", got["member_epoch"]))
    assert sorted(first + second) == ["0", "1", "2", "3"]
    assert {int(value) for value in first} == kept
    shown = client.get(f"{GROUP}/assignment")
    assert {one["member_id"]: partitions(one["assigned"]) for one in shown["members"]} == {
        "one": kept,
        "two": {0, 1, 2, 3} - kept,
    }
    assert client.get(f"{GROUP}/rebalances")["reasons"]["member_joined"] == 2


def test_who_waits_for_messages_hears_at_once_that_another_has_joined(
    world: World, client: Client
) -> None:
    epoch = join(client, "one")["member_epoch"]
    query = {"member_id": "one", "member_epoch": epoch, "auto_commit": "true"}
    waiting = client.wire()
    waiting.feed(request("GET", f"{GROUP}/poll", wait_ms=5_000, **query))
    world.run_for(1_000)
    assert waiting.answers == []
    begin_ms = world.broker.clock.now_ms()
    two = join(client, "two")["member_epoch"]
    world.run_until(lambda: bool(waiting.answers) and waiting.answers[0].is_whole)
    assert world.broker.clock.now_ms() - begin_ms < 100
    polled = waiting.answers[0].json
    kept = partitions(polled["assignment"])
    assert (len(kept), polled["messages"]) == (2, [])
    # What was given up is read by the other, and not again when it comes back.
    one = poll(client, "one", polled["member_epoch"], auto_commit="true")["member_epoch"]
    for number in range(4):
        world.produce("orders", [str(number)], partition=number)
    seen = poll(client, "two", two, auto_commit="true")
    poll(client, "two", seen["member_epoch"], auto_commit="true")
    assert {int(value) for value in values(seen)} == {0, 1, 2, 3} - kept
    client.post(f"{GROUP}/leave", {"member_id": "two"})
    for _ in range(3):
        polled = poll(client, "one", one, auto_commit="true")
        one = polled["member_epoch"]
        seen["messages"] += polled["messages"]
    assert sorted(values(seen)) == ["0", "1", "2", "3"]
    assert client.get(f"{GROUP}/lag")["lag"] == 0


def test_automatic_commits_lose_nothing_when_partitions_move(world: World, client: Client) -> None:
    epochs = {"one": join(client, "one")["member_epoch"]}
    for number in range(4):
        world.produce("orders", [f"{number}-{index}" for index in range(10)], partition=number)
    seen = values(poll(client, "one", epochs["one"], limit=8, auto_commit="true"))
    epochs["two"] = join(client, "two")["member_epoch"]
    for _ in range(12):
        for member in epochs:
            polled = poll(client, member, epochs[member], limit=5, auto_commit="true")
            epochs[member] = polled["member_epoch"]
            seen += values(polled)
    assert sorted(seen) == sorted(f"{a}-{b}" for a in range(4) for b in range(10))
    shown = client.get(f"{GROUP}/assignment")["members"]
    assert sorted(len(partitions(one["assigned"])) for one in shown) == [2, 2]
    assert client.get(f"{GROUP}/lag")["lag"] == 0


def test_a_member_whose_answer_was_lost_goes_on(world: World, client: Client) -> None:
    epoch = join(client, "one")["member_epoch"]
    world.produce("orders", ["a"], partition=0)
    assert values(poll(client, "one", epoch, auto_commit="true")) == ["a"]
    world.produce("orders", ["b"], partition=0)
    world.wait(world.broker.topics.grow("orders", 5))
    lost = poll(client, "one", epoch, auto_commit="true")
    assert values(lost) == ["b"]
    assert lost["member_epoch"] > epoch
    again = poll(client, "one", epoch, auto_commit="true")
    assert again["member_epoch"] == lost["member_epoch"]
    poll(client, "one", again["member_epoch"], auto_commit="true")
    assert client.get(f"{GROUP}/lag")["lag"] == 0


def test_messages_of_an_answer_that_was_lost_come_again_to_who_says_so(
    world: World, client: Client
) -> None:
    epoch = join(client, "one")["member_epoch"]
    world.produce("orders", ["a"], partition=0)
    seen = poll(client, "one", epoch, auto_commit="true", after=0)
    assert values(seen) == ["a"]
    world.produce("orders", ["b"], partition=0)
    lost = poll(client, "one", epoch, auto_commit="true", after=seen["poll"])
    assert values(lost) == ["b"]
    again = poll(client, "one", epoch, auto_commit="true", after=seen["poll"])
    assert (values(again), again["poll"]) == (["b"], lost["poll"])
    assert client.get(f"{GROUP}/lag")["lag"] == 1, "nobody has finished with it"
    assert values(poll(client, "one", epoch, auto_commit="true", after=again["poll"])) == []
    assert client.get(f"{GROUP}/lag")["lag"] == 0


def test_an_answer_that_is_taken_back_brings_back_no_partition_that_others_had(
    world: World, client: Client
) -> None:
    epoch = join(client, "one")["member_epoch"]
    world.produce("orders", ["a"], partition=3)
    seen = poll(client, "one", epoch, after=0)
    positions = client.world.broker.stream_polling.positions.of("billing", "one")
    positions.assign(frozenset({("orders", 0)}))
    positions.assign(frozenset({("orders", 0), ("orders", 3)}))
    commit = {"topic": "orders", "partition": 3, "offset": 1}  # by whoever had it meanwhile
    body = {"member_id": "one", "member_epoch": epoch, "offsets": [commit]}
    client.post(f"{GROUP}/commit", body)
    assert values(seen) == ["a"]
    assert values(poll(client, "one", epoch, after=0)) == []


def test_what_was_not_committed_is_read_again_after_a_restart(world: World, client: Client) -> None:
    epoch = join(client, "one")["member_epoch"]
    world.produce("orders", ["a", "b", "c"], partition=1)
    poll(client, "one", epoch)
    offset = {"topic": "orders", "partition": 1, "offset": 1}
    committed = client.post(
        f"{GROUP}/commit", {"member_id": "one", "member_epoch": epoch, "offsets": [offset]}
    )
    assert committed == {"results": [{"topic": "orders", "partition": 1}], "failed": 0}
    world.stop()
    world.start()
    again = Client(world)
    assert values(poll(again, "one", epoch)) == ["b", "c"]
    assert again.get(f"{GROUP}/lag")["lag"] == 2


def test_a_new_group_may_begin_at_the_end(world: World, client: Client) -> None:
    world.produce("orders", ["old"])
    epoch = join(client, "one")["member_epoch"]
    assert values(poll(client, "one", epoch, start="latest")) == []
    world.produce("orders", ["new"])
    assert values(poll(client, "one", epoch, start="latest")) == ["new"]


def test_a_poll_waits_but_no_longer_than_a_heartbeat(world: World, client: Client) -> None:
    epoch = join(client, "one")["member_epoch"]
    before = world.broker.clock.now_ms()
    poll(client, "one", epoch, wait_ms=60_000)
    assert world.broker.clock.now_ms() - before < 6_000
    wire = client.wire()
    path = f"{GROUP}/poll"
    wire.feed(request("GET", path, member_id="one", member_epoch=epoch, wait_ms=4_000))
    world.run_for(1_000)
    world.produce("orders", ["x"], partition=3)
    world.run_until(lambda: bool(wire.answers))
    assert values(wire.answers[0].json) == ["x"]


def spare_member(world: World, client: Client) -> int:
    """The epoch of a member `spare` for which no partition is left; the other one is `one`."""
    world.create("single", 1)
    join(client, "one", topics=["single"])
    spare = join(client, "spare", topics=["single"])
    assert partitions(spare["assignment"]) == set()
    return int(spare["member_epoch"])


def test_a_member_without_partitions_waits_as_one_with_partitions_does(
    world: World, client: Client
) -> None:
    epoch = spare_member(world, client)
    for wait_ms in (0, 4_000):
        before = world.broker.clock.now_ms()
        assert values(poll(client, "spare", epoch, wait_ms=wait_ms)) == []
        assert 0 <= world.broker.clock.now_ms() - before - wait_ms < 100


def test_a_member_without_partitions_gets_them_as_soon_as_they_are_free(
    world: World, client: Client
) -> None:
    epoch = spare_member(world, client)
    wire = client.wire()
    query = {"member_id": "spare", "member_epoch": epoch, "wait_ms": 5_000}
    wire.feed(request("GET", f"{GROUP}/poll", **query))
    world.run_for(1_000)
    assert not wire.answers
    client.post(f"{GROUP}/leave", {"member_id": "one"})
    world.run_for(10)
    [answer] = wire.answers
    assert partitions(answer.json["assignment"]) == {0}
    world.produce("single", ["x"])
    assert values(poll(client, "spare", answer.json["member_epoch"])) == ["x"]


def test_an_idle_member_that_hangs_up_leaves_nothing_behind(world: World, client: Client) -> None:
    epoch = spare_member(world, client)
    wire = client.wire()
    query = {"member_id": "spare", "member_epoch": epoch, "wait_ms": 5_000}
    wire.feed(request("GET", f"{GROUP}/poll", **query))
    world.run_for(1_000)
    wire.close()
    world.run_for(10_000)
    assert not wire.answers
    assert not world.broker.groups.rebalance_watch._watches


def test_a_reader_behind_retention_is_told_that_it_was_moved(world: World, client: Client) -> None:
    epoch = join(client, "one")["member_epoch"]
    world.produce("orders", ["a", "b", "c"], partition=0)
    poll(client, "one", epoch, limit=1)
    client.send("DELETE", "/v1/topics/orders/records", partition=0, before_offset=2)
    polled = poll(client, "one", epoch)
    assert values(polled) == ["c"]
    assert polled["resets"] == [
        {"topic": "orders", "partition": 0, "offset_before": 1, "offset": 2}
    ]


def test_a_member_that_is_silent_is_out(world: World, client: Client) -> None:
    epoch = join(client, "one")["member_epoch"]
    world.run_for(46_000)
    query = {"member_id": "one", "member_epoch": epoch}
    refused = client.refused("GET", f"{GROUP}/poll", **query)
    assert (refused.status, refused.json["code"]) == (404, "unknown_member")
    assert len(client.world.broker.stream_polling.positions) == 0


def test_a_member_with_an_old_epoch_is_fenced(client: Client) -> None:
    epoch = join(client, "one")["member_epoch"]
    query = {"member_id": "one", "member_epoch": epoch + 5}
    assert client.refused("GET", f"{GROUP}/poll", **query).json["code"] == "fenced_member_epoch"
    body = {**query, "offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert client.refused("POST", f"{GROUP}/commit", body).json["code"] == "stale_member_epoch"


def test_leaving_frees_the_partitions_at_once(client: Client) -> None:
    join(client, "one")
    client.post(f"{GROUP}/leave", {"member_id": "one"})
    assert partitions(join(client, "two")["assignment"]) == {0, 1, 2, 3}
    refused = client.refused("POST", f"{GROUP}/leave", {"member_id": "one"})
    assert refused.json["code"] == "unknown_member"


def test_an_instance_keeps_its_partitions_through_a_restart(client: Client) -> None:
    join(client, "one", instance_id="worker-1")
    client.post(f"{GROUP}/leave", {"member_id": "one", "instance_id": "worker-1", "restarts": True})
    back = join(client, "another-id", instance_id="worker-1")
    assert partitions(back["assignment"]) == {0, 1, 2, 3}


def test_offsets_are_committed_from_outside_only_while_nobody_is_in(client: Client) -> None:
    offsets = [
        {"topic": "orders", "partition": 0, "offset": 3, "metadata": "note"},
        {"topic": "orders", "partition": 9, "offset": 3},
        {"topic": "none", "partition": 0, "offset": 3},
    ]
    answer = client.post(f"{GROUP}/commit", {"offsets": offsets})
    assert [one.get("problem", {}).get("code") for one in answer["results"]] == [
        None,
        "unknown_partition",
        "unknown_topic",
    ]
    assert answer["failed"] == 2
    (shown,) = client.get(f"{GROUP}/offsets")["offsets"]
    assert (shown["partition"], shown["offset"], shown["metadata"]) == (0, 3, "note")
    join(client, "one")
    refused = client.refused("POST", f"{GROUP}/commit", {"offsets": offsets[:1]})
    assert refused.json["code"] == "group_not_empty"


def test_offsets_are_reset_to_any_place(world: World, client: Client) -> None:
    world.produce("orders", ["a", "b"], partition=1)
    world.run_for(3_600_000)
    world.produce("orders", ["c"], partition=1)

    def reset(to: str, **more: Any) -> int:
        body = {"topic": "orders", "to": to, "partitions": [1], **more}
        (moved,) = client.post(f"{GROUP}/reset", body)["offsets"]
        return int(moved["offset"])

    assert [reset(to) for to in ("earliest", "latest", "offset:1", "30m")] == [0, 3, 1, 2]
    assert reset("earliest", dry_run=True) == 0
    assert client.get(f"{GROUP}/offsets")["offsets"][0]["offset"] == 2
    bad = {"topic": "orders", "to": "offset:9"}
    assert client.refused("POST", f"{GROUP}/reset", bad).json["code"] == "invalid_request"
    join(client, "one")
    live = {"topic": "orders", "to": "earliest"}
    assert client.refused("POST", f"{GROUP}/reset", live).json["code"] == "group_not_empty"


def test_groups_are_listed_described_and_deleted(client: Client) -> None:
    assert client.get("/v1/groups") == {"groups": []}
    assert client.refused("GET", GROUP).json["code"] == "unknown_group"
    assert client.refused("DELETE", GROUP).json["code"] == "unknown_group"
    join(client, "one")
    (listed,) = client.get("/v1/groups", prefix="bil")["groups"]
    assert listed == {"name": "billing", "kind": "stream", "state": "Stable"}
    assert client.get("/v1/groups", kind="queue") == {"groups": []}
    described = client.get(GROUP)
    assert described["members"][0]["client_host"] == "10.0.0.7"
    assert client.refused("DELETE", GROUP).json["code"] == "group_not_empty"
    client.post(f"{GROUP}/leave", {"member_id": "one"})
    assert client.send("DELETE", GROUP).status == 204
    assert client.get("/v1/groups") == {"groups": []}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_field"),
        ({"topics": ["orders"], "assignor": "best"}, "invalid_field"),
        ({"topic_pattern": "("}, "invalid_regular_expression"),
        ({"topics": ["orders"], "member_id": ""}, "invalid_field"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(
    client: Client, body: dict[str, Any], code: str
) -> None:
    refused = client.refused("POST", f"{GROUP}/join", body)
    assert (refused.status, refused.json["code"]) == (400, code)


def test_a_pattern_subscribes_to_topics_that_come_later(world: World, client: Client) -> None:
    joined = client.post(f"{GROUP}/join", {"topic_pattern": "new-.*", "member_id": "one"})
    assert joined["assignment"] == []
    world.create("new-1")
    beat = {"member_id": "one", "member_epoch": joined["member_epoch"]}
    told = client.post(f"{GROUP}/heartbeat", beat)
    assert told["assignment"] == [{"topic": "new-1", "partitions": [0]}]


def test_lag_counts_partitions_without_a_commit_from_the_start_of_their_log(
    world: World, client: Client
) -> None:
    for number in range(4):
        world.produce("orders", [str(one) for one in range(10)], partition=number)
    commit = {"offsets": [{"topic": "orders", "partition": 1, "offset": 7}]}
    client.post(f"{GROUP}/commit", commit)
    found = client.get(f"{GROUP}/lag")
    assert found["lag"] == 33
    assert [(one["offset"], one["lag"]) for one in found["partitions"]] == [
        (None, 10),
        (7, 3),
        (None, 10),
        (None, 10),
    ]


def test_lag_of_a_topic_that_a_member_only_subscribes_to(world: World, client: Client) -> None:
    join(client, "one")
    world.produce("orders", ["a", "b"], partition=3)
    join(client, "two")
    assert client.get(f"{GROUP}/lag")["lag"] == 2


def commit_all(client: Client, group: str = GROUP) -> None:
    offsets = [{"topic": "orders", "partition": one, "offset": 0} for one in range(4)]
    assert client.post(f"{group}/commit", {"offsets": offsets})["failed"] == 0


def test_lag_and_members_have_pages(world: World, client: Client) -> None:
    commit_all(client)
    for number, count in enumerate((1, 5, 0, 3)):
        world.produce("orders", ["a"] * count, partition=number)
    first = client.get(f"{GROUP}/lag", sort="lag", limit=3)
    assert [(one["partition"], one["lag"]) for one in first["partitions"]] == [
        (1, 5),
        (3, 3),
        (0, 1),
    ]
    assert (first["lag"], first["total"], first["topics"]) == (9, 4, ["orders"])
    last = client.get(f"{GROUP}/lag", sort="lag", limit=3, cursor=first["cursor"])
    assert [one["partition"] for one in last["partitions"]] == [2]
    assert (last["cursor"], last["lag"]) == ("", 9)
    assert client.get(f"{GROUP}/lag", topic="others")["partitions"] == []
    assert client.send("GET", f"{GROUP}/lag", cursor="x").json["field"] == "cursor"
    for name in ("one", "two"):
        join(client, name)
    shown = client.get(GROUP, members="false")
    assert (shown["members"], shown["member_count"]) == ([], 2)
    page = client.get(f"{GROUP}/assignment", limit=1)
    assert (len(page["members"]), page["total"], page["cursor"]) == (1, 2, "1")


def test_committed_offsets_are_deleted(client: Client) -> None:
    commit_all(client)
    deleted = client.post(f"{GROUP}/offsets/delete", {"topic": "orders", "partitions": [1, 3]})
    assert deleted["failed"] == 0
    assert [one["partition"] for one in deleted["results"]] == [1, 3]
    left = client.get(f"{GROUP}/offsets")["offsets"]
    assert [one["partition"] for one in left] == [0, 2]
    unknown = client.post(f"{GROUP}/offsets/delete", {"topic": "orders", "partitions": [9]})
    assert unknown["failed"] == 1
    join(client, "one")
    used = client.post(f"{GROUP}/offsets/delete", {"topic": "orders"})
    assert used["failed"] == 2
    assert used["results"][0]["problem"]["code"] == "group_subscribed_to_topic"
