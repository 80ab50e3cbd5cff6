"""Settings of share groups are settings of queue groups under other names."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.configs import Change, ChangeKind
from goqueue.broker.share_groups.settings import queue_changes, share_defaults, share_values
from goqueue.delivery import QueueSettings
from goqueue.model.errors import GoQueueError, InvalidGroupSettings, InvalidTopicSetting
from tests.simulation.world import World
from tests.unit.broker.share_groups.member import SESSION

SET, DELETE = ChangeKind.SET, ChangeKind.DELETE


def change(world: World, *changes: Change, dry_run: bool = False, is_whole: bool = False) -> None:
    configs = world.broker.local_gate.configs
    world.wait(
        configs.change_group(
            SESSION, group="workers", changes=changes, dry_run=dry_run, is_whole=is_whole
        )
    )


def overrides(world: World) -> dict[str, str]:
    return dict(world.broker.local_gate.configs.of_group(SESSION, group="workers"))


def test_a_new_share_group_has_the_limits_that_its_members_expect() -> None:
    defaults = share_defaults()
    assert defaults["share_delivery_count_limit"] == "5"
    assert defaults["share_auto_offset_reset"] == "latest"
    assert defaults["share_record_lock_duration_ms"] == "30000"
    assert defaults["share_partition_max_record_locks"] == "2000"
    assert defaults["share_isolation_level"] == "read_committed"


def test_changing_a_setting_of_a_missing_group_creates_it() -> None:
    world = World()
    change(world, Change("share_record_lock_duration_ms", SET, "15000"))
    settings = world.broker.queues.groups.get("workers").settings
    assert (settings.visibility_ms, settings.deliveries_max, settings.start) == (
        15_000,
        5,
        "latest",
    )
    assert overrides(world) == {"share_record_lock_duration_ms": "15000"}
    assert world.broker.local_gate.configs.groups(SESSION) == ["workers"]


def test_a_setting_that_is_deleted_is_that_of_a_new_share_group_again() -> None:
    world = World()
    change(world, Change("share_release_backoff", SET, "true"))
    change(world, Change("share_release_backoff", DELETE))
    assert overrides(world) == {}


def test_a_whole_change_reverts_what_it_does_not_name() -> None:
    world = World()
    change(world, Change("share_release_backoff", SET, "true"))
    change(world, Change("share_auto_offset_reset", SET, "earliest"), is_whole=True)
    assert overrides(world) == {"share_auto_offset_reset": "earliest"}


def test_what_is_only_checked_changes_nothing() -> None:
    world = World()
    change(world, Change("share_auto_offset_reset", SET, "earliest"), dry_run=True)
    assert not world.broker.queues.groups.is_known("workers")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("share_isolation_level", "read_uncommitted", InvalidTopicSetting),
        ("share_assignment_interval_ms", "1000", InvalidTopicSetting),
        ("errors_deadletterqueue_copy_record_enable", "false", InvalidTopicSetting),
        ("share_record_lock_duration_ms", "soon", InvalidTopicSetting),
        ("share_renew_acknowledge_enable", "yes", InvalidTopicSetting),
        ("share_partition_max_record_locks", "50", InvalidGroupSettings),
        ("share_auto_offset_reset", "by_duration:1h", InvalidGroupSettings),
        ("share_heartbeat_interval_ms", "45000", InvalidGroupSettings),
        ("share_lease_time", "1", InvalidTopicSetting),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: str, error: type[GoQueueError]) -> None:
    with pytest.raises(error):
        change(World(), Change(name, SET, value))


def test_settings_of_kafka_with_one_value_here_can_be_set_to_that() -> None:
    world = World()
    for name, value in (
        ("share_isolation_level", "read_committed"),
        ("share_assignment_interval_ms", "0"),
        ("errors_deadletterqueue_copy_record_enable", "true"),
    ):
        change(world, Change(name, SET, value))
        change(world, Change(name, DELETE))
    assert overrides(world) == {}
    with pytest.raises(InvalidTopicSetting, match=r"is committed.*set read_committed"):
        change(world, Change("share_isolation_level", SET, "read_uncommitted"))


def test_every_value_can_be_written_back() -> None:
    settings = QueueSettings(release_backoff=True, start="by_duration:PT36H")
    changes = queue_changes(share_values(settings))
    assert QueueSettings(**changes).release_backoff
    assert QueueSettings(**changes).start_before_ms == 36 * 3_600_000
