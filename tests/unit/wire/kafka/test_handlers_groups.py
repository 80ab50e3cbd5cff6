"""Members of both protocols, and the administration of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from goqueue.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from goqueue.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from goqueue.wire.kafka.messages.list_groups import ListGroupsRequest
from goqueue.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.wire.kafka.client import Client, about, failures
from tests.unit.wire.kafka.requests import Subject, join_request

__all__ = ["failures"]

JOIN_VERSIONS = range(10)


@pytest.fixture
def client(failures: list[Exception]) -> Iterator[Client]:
    yield Client()
    assert failures == []


def join(client: Client, version: int, member: str = "", **fields: Any) -> Any:
    place = about(client.subject, {"member": member})
    return client.call("JoinGroup", join_request(version, place, **fields), version)


# Classic members


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_member_joins_syncs_beats_and_leaves(client: Client, version: int) -> None:
    joined = join(client, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert joined.member_id.startswith("peer-")
        joined = join(client, version, joined.member_id)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [one.metadata for one in joined.members] == [encode_subscription(["orders"])]
    client.subject.member, client.subject.generation = joined.member_id, joined.generation_id
    for name in ("SyncGroup", "Heartbeat", "LeaveGroup"):
        last = min(version, API_BY_NAME[name].version_stable_max)
        answer = client.ask(name, last)
        assert answer.error_code == 0, name
        if name == "SyncGroup":
            assert answer.assignment == b"share"
    gone = client.ask("Heartbeat", 0)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_before_version_one_the_session_is_also_the_time_to_rejoin(client: Client) -> None:
    request = join_request(0, client.subject)
    request.session_timeout_ms = 7_000
    client.call("JoinGroup", request, 0)
    (hosted,) = client.node.broker.groups.shards
    assert hosted.machine.describe_group("shop").members


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_refused_join_is_answered_in_the_form_of_its_version(
    client: Client, version: int
) -> None:
    answer = join(client, version, "stranger")
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.member_id == "stranger"
    assert answer.protocol_name == (None if version >= 7 else "")
    request = join_request(version, client.subject)
    request.session_timeout_ms = 1
    assert (
        client.call("JoinGroup", request, version).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    )


def test_a_second_member_makes_the_first_join_again_and_both_get_their_share(
    client: Client,
) -> None:
    client.have_groups()
    join_api, sync_api = API_BY_NAME["JoinGroup"], API_BY_NAME["SyncGroup"]
    first, second = client.peer, client.node.peer()
    newcomer = second.call("JoinGroup", 9, join_request(9, Subject())).member_id
    members = {client.subject.member: first, newcomer: second}

    second.send(second.frame(join_api, 9, join_request(9, Subject(member=newcomer))))
    client.node.run_for(10)
    assert client.ask("Heartbeat").error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = client.ask("JoinGroup")
    client.node.run_until(lambda: second.has_answer)
    joined = second.take_answer(join_api, 9)
    assert joined.generation_id == rejoined.generation_id == 2
    assert {one.member_id for one in rejoined.members} == set(members)
    assert joined.members == [], "only the leader is told of the others"

    for member in (newcomer, rejoined.leader):
        shares = [SyncGroupRequestAssignment(one, one.encode()) for one in members]
        request = SyncGroupRequest(
            group_id="shop",
            generation_id=2,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares if member == rejoined.leader else [],
        )
        members[member].send(members[member].frame(sync_api, 5, request))
    client.node.run_until(lambda: all(peer.has_answer for peer in members.values()))
    for member, peer in members.items():
        assert peer.take_answer(sync_api, 5).assignment == member.encode()


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave_in_one_request_each_with_its_answer(
    client: Client, version: int
) -> None:
    client.have_groups()
    members = [
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id=client.subject.member),
    ]
    request = LeaveGroupRequest(group_id="shop", members=members)
    answer = client.call("LeaveGroup", request, version)
    assert answer.error_code == 0
    assert [one.error_code for one in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID, 0]


@pytest.mark.parametrize("version", range(3))
def test_before_that_a_member_leaves_alone(client: Client, version: int) -> None:
    client.have_groups()
    stranger = client.ask("LeaveGroup", version, member="stranger")
    assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.ask("LeaveGroup", version).error_code == 0


# Members of the newer protocol


@pytest.mark.parametrize("version", range(2))
def test_a_member_of_the_newer_protocol_is_given_its_partitions(
    client: Client, version: int
) -> None:
    answer = client.ask("ConsumerGroupHeartbeat", version)
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert answer.heartbeat_interval_ms > 0
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (client.subject.topic_id, [0, 1, 2, 3])


def test_a_member_without_an_id_is_given_one(client: Client) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="next",
        member_id="",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    answer = client.call("ConsumerGroupHeartbeat", request, 0)
    assert (answer.error_code, len(answer.member_id)) == (0, 32)


@pytest.mark.parametrize("version", range(2))
def test_a_refused_heartbeat_says_why(client: Client, version: int) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="next", member_id="stranger", member_epoch=5)
    answer = client.call("ConsumerGroupHeartbeat", request, version)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "stranger" in answer.error_message


def test_partitions_of_a_topic_that_is_gone_are_nobodys(client: Client) -> None:
    client.ask("ConsumerGroupHeartbeat")
    client.node.wait(client.node.broker.topics.delete("orders"))
    request = ConsumerGroupHeartbeatRequest(
        group_id="shop-next",
        member_id="11111111-1111-1111-1111-111111111111",
        member_epoch=1,
        topic_partitions=[],
    )
    answer = client.call("ConsumerGroupHeartbeat", request)
    assert answer.error_code == 0
    assert answer.assignment is None or answer.assignment.topic_partitions == []


# Describing


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("has_groups", [False, True])
def test_a_classic_group_that_does_not_exist_is_dead_or_not_found(
    client: Client, version: int, has_groups: bool
) -> None:
    if has_groups:
        client.have_groups()
    for name in ("nobody", "shop-next"):
        (group,) = client.ask("DescribeGroups", version, group=name).groups
        assert (group.group_id, group.group_state) == (name, "Dead")
        assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        assert bool(group.error_message) == (version >= 6)


@pytest.mark.parametrize("version", range(7))
def test_a_classic_group_is_described_with_its_members(client: Client, version: int) -> None:
    client.have_groups()
    (group,) = client.ask("DescribeGroups", version).groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert member.member_id == client.subject.member
    assert (member.client_id, member.client_host) == ("peer", "/192.0.2.1")
    assert member.member_assignment == b"share"


def test_every_group_of_a_request_is_described(client: Client) -> None:
    client.have_groups()
    request = DescribeGroupsRequest(groups=["idle", "nobody", "", "shop"])
    groups = client.call("DescribeGroups", request, 6).groups
    assert [one.group_id for one in groups] == ["idle", "nobody", "", "shop"]
    codes = [one.error_code for one in groups]
    assert codes == [0, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, 0]


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("has_groups", [False, True])
def test_a_consumer_group_that_does_not_exist_is_not_found(
    client: Client, version: int, has_groups: bool
) -> None:
    if has_groups:
        client.have_groups()
    for name in ("nobody", "shop"):
        (group,) = client.ask("ConsumerGroupDescribe", version, consumer_group=name).groups
        assert (group.group_id, group.error_code) == (name, ErrorCode.GROUP_ID_NOT_FOUND)
        assert name in group.error_message


@pytest.mark.parametrize("version", range(2))
def test_a_consumer_group_is_described_with_its_members(client: Client, version: int) -> None:
    client.have_groups()
    (group,) = client.ask("ConsumerGroupDescribe", version).groups
    assert (group.error_code, group.group_state, group.group_epoch) == (0, "Stable", 1)
    (member,) = group.members
    assert member.subscribed_topic_names == ["orders"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [0, 1, 2, 3])
    assert member.member_type == (1 if version >= 1 else -1)


# Listing and deleting


@pytest.mark.parametrize("version", range(6))
def test_all_groups_are_listed(client: Client, version: int) -> None:
    assert client.ask("ListGroups", version).groups == []
    client.have_groups()
    groups = {one.group_id: one for one in client.ask("ListGroups", version).groups}
    assert set(groups) == {"shop", "shop-next", "idle"}
    if version >= 4:
        assert groups["shop"].group_state == "Stable"
    if version >= 5:
        assert groups["shop-next"].group_type.lower() == "consumer"


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["Stable"], [], {"shop", "shop-next"}),
        (["EMPTY"], [], {"idle"}),
        ([], ["consumer"], {"shop-next"}),
        ([], ["Classic"], {"shop", "idle"}),
        (["stable"], ["classic"], {"shop"}),
        (["NoSuchState"], [], set()),
        ([], ["share"], set()),
        ([], ["streams"], set()),
        ([], ["Streams", "classic"], {"shop", "idle"}),
        (["Stable", "NoSuchState"], [], {"shop", "shop-next"}),
    ],
)
def test_groups_are_listed_by_state_and_type(
    client: Client, states: list[str], types: list[str], expected: set[str]
) -> None:
    client.have_groups()
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    groups = client.call("ListGroups", request, 5).groups
    assert {one.group_id for one in groups} == expected


@pytest.mark.parametrize("version", range(4))
def test_only_groups_without_members_are_deleted(client: Client, version: int) -> None:
    assert client.ask("DeleteGroups", version).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    client.have_groups()
    for name, code in (
        ("idle", 0),
        ("idle", ErrorCode.GROUP_ID_NOT_FOUND),
        ("shop", ErrorCode.NON_EMPTY_GROUP),
        ("", ErrorCode.INVALID_GROUP_ID),
    ):
        (one,) = client.ask("DeleteGroups", version, group=name).results
        assert (one.group_id, one.error_code) == (name, code)
    assert {one.group_id for one in client.ask("ListGroups").groups} == {"shop", "shop-next"}
