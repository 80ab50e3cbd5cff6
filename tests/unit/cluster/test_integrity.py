"""Copies that may have lost something: who leads when nobody in sync is sure, told as stories."""

from __future__ import annotations

import pytest

from goqueue.cluster.commands import CopyClaim
from goqueue.cluster.elections import is_claim_due
from goqueue.cluster.facts import NO_LEADER, NOTHING_CLAIMED, Claim
from goqueue.model import errors
from tests.unit.cluster.test_controller import TOPIC, UNCLEAN, Cluster

WHOLE = Claim(2, 100)
CUT = Claim(2, 50)


class DarkCluster(Cluster):
    """A partition whose nodes have all lost their power."""

    def __init__(self, *replicas: int, in_sync: tuple[int, ...] = (), **settings: str) -> None:
        super().__init__(*replicas)
        self.topic(list(replicas), **settings)
        if in_sync:
            self.in_sync(*in_sync)
        self.epoch_before = self.partition().leader_epoch
        self.kill(*replicas)
        assert self.partition().leader == NO_LEADER

    def return_of(self, node: int, claim: Claim | None = None) -> None:
        """A node comes back, and is in doubt if it has something to claim."""
        self.silent.discard(node)
        incarnation = b"again" + bytes([node])
        self.register(node, incarnation)
        integrity = () if claim is None else (CopyClaim(TOPIC, 0, claim),)
        self.commit(
            self.controller.heartbeat(
                node,
                incarnation,
                applied_index=self.index,
                wants_drain=False,
                now_ms=self.now_ms,
                integrity=integrity,
            )
        )

    def claim(self, node: int, claim: Claim) -> None:
        incarnation = self.metadata.nodes[node].incarnation
        self.commit(self.controller.claim_copies(node, incarnation, [CopyClaim(TOPIC, 0, claim)]))


def test_a_member_in_doubt_does_not_lead_and_one_that_is_sure_does() -> None:
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(1, CUT)
    assert cluster.state() == (NO_LEADER, (1, 2, 3))
    cluster.return_of(2)
    assert cluster.state() == (2, (2,))
    assert cluster.partition().claims == ()


@pytest.mark.parametrize("claims", [{1: CUT, 2: WHOLE}, {2: WHOLE, 1: CUT}])
def test_of_two_in_doubt_the_one_that_has_more_leads_whoever_comes_first(
    claims: dict[int, Claim],
) -> None:
    cluster = DarkCluster(1, 2, 3)
    for node, claim in claims.items():
        cluster.return_of(node, claim)
    assert cluster.state() == (2, (2,))
    assert cluster.partition().leader_epoch > cluster.epoch_before


def test_a_newer_epoch_outweighs_a_longer_log() -> None:
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(1, Claim(2, 900))
    cluster.return_of(3, Claim(3, 10))
    assert cluster.state() == (3, (3,))


def test_copies_that_are_equal_are_both_in_sync() -> None:
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(3, WHOLE)
    cluster.return_of(1, WHOLE)
    assert cluster.state() == (1, (1, 3))


def test_half_of_five_copies_may_have_rotted() -> None:
    cluster = DarkCluster(1, 2, 3, 4, 5)
    cluster.return_of(1, CUT)
    cluster.return_of(2, CUT)
    assert cluster.partition().leader == NO_LEADER
    cluster.return_of(3, WHOLE)
    assert cluster.state() == (3, (3,))


def test_when_only_one_is_in_sync_and_in_doubt_all_are_heard() -> None:
    """The others left before it fell: one of them may have all that was ever committed."""
    cluster = DarkCluster(1, 2, 3, in_sync=(1,))
    cluster.return_of(2)
    cluster.return_of(1, CUT)
    cluster.return_of(3)
    assert cluster.state() == (NO_LEADER, (1,))
    cluster.claim(2, Claim(2, 40))
    assert cluster.partition().leader == NO_LEADER
    cluster.claim(3, WHOLE)
    assert cluster.state() == (3, (3,))


def test_the_only_copy_leads_in_doubt_too() -> None:
    cluster = DarkCluster(1)
    cluster.return_of(1, CUT)
    assert cluster.state() == (1, (1,))


def test_of_two_copies_one_in_doubt_waits_for_the_other() -> None:
    cluster = DarkCluster(1, 2)
    cluster.return_of(1, CUT)
    assert cluster.partition().leader == NO_LEADER
    cluster.return_of(2, WHOLE)
    assert cluster.state() == (2, (2,))


def test_a_copy_that_cannot_be_opened_does_not_lead_and_is_waited_for() -> None:
    """It may have everything, and the ones that can be opened may have rotted."""
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(1, NOTHING_CLAIMED)
    cluster.return_of(2, NOTHING_CLAIMED)
    cluster.return_of(3, CUT)
    assert cluster.state() == (NO_LEADER, (1, 2, 3))
    cluster.claim(2, WHOLE)
    assert cluster.state() == (2, (2,))


def test_whoever_could_not_open_its_copy_is_asked_again_until_it_has_told() -> None:
    cluster = DarkCluster(1, 2, 3, in_sync=(1, 2))
    assert not any(is_claim_due(cluster.partition(), node) for node in (1, 2, 3))
    cluster.return_of(1, NOTHING_CLAIMED)
    cluster.return_of(3)
    assert [is_claim_due(cluster.partition(), node) for node in (1, 2, 3)] == [True, False, True]
    cluster.claim(1, CUT)
    assert [is_claim_due(cluster.partition(), node) for node in (1, 2, 3)] == [False, False, True]


def test_an_operator_need_not_wait_for_a_copy_that_cannot_be_opened() -> None:
    cluster = DarkCluster(1, 2)
    cluster.return_of(1, NOTHING_CLAIMED)
    cluster.return_of(2, CUT)
    assert cluster.partition().leader == NO_LEADER
    cluster.commit(cluster.controller.elect(TOPIC, 0, is_unclean=True))
    assert cluster.state() == (2, (2,))


def test_the_only_copy_leads_as_soon_as_it_can_be_opened() -> None:
    cluster = DarkCluster(1)
    cluster.return_of(1, NOTHING_CLAIMED)
    assert cluster.partition().leader == NO_LEADER
    cluster.claim(1, CUT)
    assert cluster.state() == (1, (1,))


def test_a_doubt_outlives_the_controller_and_the_node_that_had_it() -> None:
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(1, CUT)
    cluster.controller = cluster.new_controller()
    cluster.run(1000)
    cluster.kill(1)
    cluster.back(1, b"third life")
    cluster.run(1000)
    assert cluster.state() == (NO_LEADER, (1, 2, 3))


def test_the_one_that_has_most_is_waited_for_when_it_falls_again() -> None:
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(2, WHOLE)
    cluster.kill(2)
    cluster.return_of(1, CUT)
    assert cluster.partition().leader == NO_LEADER
    cluster.back(2, b"third life")
    assert cluster.state() == (2, (2,))


def test_nobody_is_elected_in_doubt_at_an_operators_wish_unless_it_is_unclean() -> None:
    cluster = DarkCluster(1, 2, 3, in_sync=(1, 2))
    cluster.return_of(1, CUT)
    with pytest.raises(errors.PreferredLeaderNotAvailable):
        cluster.controller.elect(TOPIC, 0)
    cluster.commit(cluster.controller.elect(TOPIC, 0, is_unclean=True))
    assert cluster.state() == (1, (1,))


def test_an_unclean_election_takes_the_fullest_that_is_known() -> None:
    cluster = DarkCluster(1, 2, 3, in_sync=(1,))
    cluster.return_of(1, CUT)
    cluster.return_of(2)
    cluster.claim(2, WHOLE)
    assert cluster.partition().leader == NO_LEADER
    cluster.commit(cluster.controller.configure_topic("orders", UNCLEAN))
    assert cluster.state() == (2, (2,))


def test_a_lost_disk_takes_its_claim_along() -> None:
    cluster = DarkCluster(1, 2, 3)
    cluster.return_of(1, WHOLE)
    cluster.register(1, b"other disk", disk=b"new")
    assert cluster.partition().claims == ()
    assert cluster.partition().in_sync == (2, 3)


# Damage that is found while a node serves


def given_up(cluster: Cluster, node: int) -> None:
    cluster.commit(
        cluster.controller.give_up_copy(
            node,
            cluster.metadata.nodes[node].incarnation,
            TOPIC,
            0,
            version=cluster.partition().version,
        )
    )


def test_a_damaged_leader_leaves_its_place_to_another_and_is_no_longer_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3])
    given_up(cluster, 1)
    assert cluster.state() == (2, (2, 3))


def test_a_damaged_leader_stays_in_sync_where_only_one_other_copy_is() -> None:
    """That one may have a hole as well, which only this copy can fill."""
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3])
    cluster.in_sync(1, 2)
    given_up(cluster, 1)
    assert cluster.state() == (2, (1, 2))


def test_a_damaged_leader_without_anyone_else_in_sync_goes_on() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.in_sync(1)
    given_up(cluster, 1)
    assert cluster.state() == (1, (1,))


def test_for_a_damaged_follower_the_leader_begins_a_new_epoch() -> None:
    """Else it would go by what it knows of that follower, and take it in again at once."""
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3])
    epoch = cluster.partition().leader_epoch
    given_up(cluster, 3)
    assert cluster.state() == (1, (1, 2))
    assert cluster.partition().leader_epoch == epoch + 1


def test_a_word_about_damage_that_comes_late_changes_nothing() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3])
    version = cluster.partition().version
    given_up(cluster, 1)
    with pytest.raises(errors.StalePartitionVersion):
        cluster.controller.give_up_copy(1, b"\x01", TOPIC, 0, version=version)
