"""What both brokers are asked about share groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.model.batch import Record, decode_batch, encode_batch, read_header
from goqueue.wire.kafka.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_configs,
    describe_share_group_offsets,
    incremental_alter_configs,
    list_groups,
    metadata,
    produce,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from tests.judge.asking import Ask
from tests.judge.cases import (
    COORDINATORS,
    DIFFERENCES,
    case,
    commit,
    coordinate,
    create,
    until_ready,
)

ATTEMPTS_MAX = 200
NOBODY = b"no such topic id"
MEMBER = "R9WGFLqhTyCQwXx4sYx6Zw"  # an UUID as clients write it
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32
# Kafka computes assignments at intervals, and delivers records of open transactions unless told.
# A released record may wait here.
NOT_COMMON = {"share.assignment.interval.ms", "share.isolation.level", "share.release.backoff"}

Ranges = Sequence[tuple[int, int, Sequence[int]]]  # first and last offset, and what became of them


class Member:
    """One member of a share group, with the topic that it reads."""

    def __init__(self, ask: Ask, group: str, topic: str, member: str = MEMBER) -> None:
        self.ask = ask
        self.group = group
        self.topic = topic
        self.member = member
        self.epoch = 0
        wanted = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        self.topic_id = until_ready(ask, lambda: ask("Metadata", wanted)).topics[0].topic_id

    def join(self) -> Any:
        answer = self.beat(0, [self.topic])
        for _ in range(ATTEMPTS_MAX):
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            self.ask.pause()
            answer = self.beat(answer.member_epoch)
        return answer

    def beat(self, epoch: int, topics: list[str] | None = None, **fields: Any) -> Any:
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": self.member, **fields},
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )
        return until_ready(self.ask, lambda: self.ask("ShareGroupHeartbeat", request))

    def fetch(
        self,
        epoch: int,
        *,
        acks: Ranges = (),
        partitions: Sequence[int] = (0,),
        topic_id: bytes | None = None,
        **fields: Any,
    ) -> Any:
        request = share_fetch.ShareFetchRequest(
            **{
                "group_id": self.group,
                "member_id": self.member,
                "max_wait_ms": 50,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                **fields,
            },
            share_session_epoch=epoch,
            topics=[
                share_fetch.FetchTopic(
                    self.topic_id if topic_id is None else topic_id,
                    [
                        share_fetch.FetchPartition(
                            number,
                            [share_fetch.AcknowledgementBatch(a, b, list(c)) for a, b, c in acks],
                        )
                        for number in partitions
                    ],
                )
            ]
            if partitions
            else [],
        )
        return self.ask("ShareFetch", request)

    def read(self, **fields: Any) -> list[list[int]]:
        """Fetch in a session until there are records; what was acquired."""
        for _ in range(ATTEMPTS_MAX):
            answer = self.fetch(self.epoch, **fields)
            assert answer.error_code == 0, answer
            self.epoch += 1
            found = acquired(answer)
            if found:
                return found
            fields.pop("acks", None)
            self.ask.pause()
        return []

    def acknowledge(
        self,
        ranges: Ranges,
        *,
        epoch: int | None = None,
        topic_id: bytes | None = None,
        **fields: Any,
    ) -> list[Any]:
        """Acknowledge in the session; the error codes of the request and of the partitions."""
        at = self.epoch if epoch is None else epoch
        request = share_acknowledge.ShareAcknowledgeRequest(
            **{"group_id": self.group, "member_id": self.member, **fields},
            share_session_epoch=at,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    self.topic_id if topic_id is None else topic_id,
                    [
                        share_acknowledge.AcknowledgePartition(
                            0,
                            [
                                share_acknowledge.AcknowledgementBatch(a, b, list(c))
                                for a, b, c in ranges
                            ],
                        )
                    ],
                )
            ],
        )
        answer = self.ask("ShareAcknowledge", request)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return [
            answer.error_code,
            *(one.error_code for topic in answer.responses for one in topic.partitions),
        ]


def coordinated(ask: Ask, name: str, request: Any) -> Any:
    """Ask the coordinator of a group, which may still have to load it."""
    return until_ready(ask, lambda: ask(name, request), until=COORDINATORS)


def acquired(answer: Any) -> list[list[int]]:
    return [
        [one.first_offset, one.last_offset, one.delivery_count]
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]


def codes(answer: Any) -> list[Any]:
    """The error codes of a fetch: the request's, and of each partition's fetch and acks."""
    return [
        answer.error_code,
        *sorted(
            [one.partition_index, one.error_code, one.acknowledge_error_code]
            for topic in answer.responses
            for one in topic.partitions
        ),
    ]


def values_in(answer: Any) -> list[str]:
    data = answer.responses[0].partitions[0].records
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        found += [(one.value or b"").decode() for one in decode_batch(data[at : at + header.size])]
        at += header.size
    return found


def write(ask: Ask, topic: str, *values: bytes) -> None:
    """Store one batch in partition 0."""
    batch = bytes(encode_batch([Record(None, one, timestamp_ms=1) for one in values]))
    place = produce.TopicProduceData(
        name=topic, partition_data=[produce.PartitionProduceData(0, batch)]
    )
    request = produce.ProduceRequest(None, -1, 10_000, [place])
    answer = until_ready(ask, lambda: ask("Produce", request, 12))
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def configure(ask: Ask, group: str, **configs: str) -> list[int]:
    changes = [
        incremental_alter_configs.AlterableConfig(name.replace("_", "."), 0, value)
        for name, value in configs.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(GROUP_RESOURCE, group, changes)
    answer = ask(
        "IncrementalAlterConfigs",
        incremental_alter_configs.IncrementalAlterConfigsRequest([resource]),
    )
    return [one.error_code for one in answer.responses]


def reader(ask: Ask, name: str, *values: bytes, **configs: str) -> Member:
    """A member of a group of its own, which reads a topic of its own from the start."""
    create(ask, name)
    coordinate(ask, name, 0)
    assert configure(ask, name, share_auto_offset_reset="earliest", **configs) == [0]
    if values:
        write(ask, name, *values)
    member = Member(ask, name, name)
    member.join()
    return member


# Members


@case
def members_of_share_groups(ask: Ask) -> Any:
    """Joining, staying and leaving, and what is refused."""
    create(ask, "sharing", partitions=2)
    coordinate(ask, "sharing", 0)
    one = Member(ask, "sharing", "sharing")
    found: list[Any] = [
        one.beat(0).error_code,
        one.beat(0, []).error_code,
        one.beat(0, ["sharing"], member_id="").error_code,
        one.beat(0, ["sharing"], group_id="").error_code,
        one.beat(0, ["sharing"], rack_id="").error_code,
        one.beat(-2).error_code,
        one.beat(3).error_code,
    ]
    joined = one.join()
    partitions = [
        (each.topic_id == one.topic_id, each.partitions)
        for each in joined.assignment.topic_partitions
    ]
    epoch = joined.member_epoch
    found += [joined.error_code, joined.member_id == MEMBER, epoch > 0, partitions]
    unchanged = one.beat(epoch)
    found += [unchanged.error_code, unchanged.member_epoch == epoch, unchanged.assignment is None]
    found += [one.beat(epoch + 5).error_code]
    left = one.beat(-1)
    return [*found, left.error_code, left.member_epoch, one.beat(-1).error_code]


DIFFERENCES["members_of_share_groups"] = (
    "A group may be there, as one of HTTP or SQS consumers, before its first member: only the "
    "member is unknown.",
    [42, 42, 42, 42, 42, 42, 25, 0, True, True, [(True, [0, 1])], 0, True, True, 110, 0, -1, 25],
)


@case
def names_of_groups_of_two_kinds(ask: Ask) -> Any:
    """A group is a share group or another one."""
    create(ask, "mixed")
    commit(ask, "mixed-stream", "mixed")
    one = Member(ask, "mixed-stream", "mixed")
    return [
        one.beat(0, ["mixed"]).error_code,
        *described(ask, "mixed-stream"),
        *offsets(ask, "mixed-stream", None),
    ]


DIFFERENCES["names_of_groups_of_two_kinds"] = (
    "A group of another kind has no offsets to describe; Kafka returns none of them.",
    [69, 69, "", "", [], 69, []],
)


# Sessions


@case
def epochs_of_share_sessions(ask: Ask) -> Any:
    one = reader(ask, "epochs")
    some = [(0, 0, [ACCEPT])]
    found: list[Any] = [
        codes(one.fetch(1)),
        codes(one.fetch(-1, partitions=())),
        codes(one.fetch(0, acks=some)),
        one.acknowledge(some, epoch=0),
        one.acknowledge(some, epoch=1),
        one.acknowledge(some, epoch=-1),
        codes(one.fetch(0)),
        codes(one.fetch(0)),
        codes(one.fetch(5)),
        one.acknowledge(some, epoch=5),
        codes(one.fetch(1)),
        codes(one.fetch(1)),
        codes(one.fetch(-1, partitions=())),
    ]
    return [*found, codes(one.fetch(2)), codes(one.fetch(-1, partitions=()))]


@case
def requests_that_name_nobody(ask: Ask) -> Any:
    one = reader(ask, "nobody")
    found = []
    for fields in (
        {"member_id": ""},
        {"member_id": None},
        {"member_id": "m" * 37},
        {"group_id": None},
    ):
        found.append([codes(one.fetch(0, **fields)), one.acknowledge([], epoch=1, **fields)])
    return found


@case
def partitions_that_do_not_exist_in_share_fetches(ask: Ask) -> Any:
    one = reader(ask, "somewhere")
    found = [
        codes(one.fetch(0, topic_id=NOBODY)),
        codes(one.fetch(0, partitions=(0, 7))),
        codes(one.fetch(1, topic_id=NOBODY)),
    ]
    one.epoch = 2
    return [*found, one.acknowledge([(0, 0, [ACCEPT])], topic_id=NOBODY)]


DIFFERENCES["partitions_that_do_not_exist_in_share_fetches"] = (
    "Kafka 4.3.1 fails on an unknown topic id, and the whole request with it.",
    [[0, [0, 100, 0]], [0, [0, 0, 0], [7, 3, 0]], [0, [0, 100, 0], [7, 3, 0]], [0, 100]],
)


# Records


@case
def acknowledgements_and_what_comes_of_them(ask: Ask) -> Any:
    """Accepted and rejected records are done, released ones come again."""
    one = reader(ask, "settled", *(b"%d" % number for number in range(10)))
    found: list[Any] = [one.read()]
    found.append(one.acknowledge([(0, 2, [ACCEPT]), (3, 4, [RELEASE]), (5, 6, [REJECT, GAP])]))
    found.append(one.read())
    found.append(one.acknowledge([(3, 3, [ACCEPT]), (4, 4, [RELEASE]), (7, 9, [ACCEPT])]))
    found.append(one.read(acks=[]))
    found.append(one.read(acks=[(4, 4, [RELEASE])]))
    return found


@case
def acknowledgements_that_are_refused(ask: Ask) -> Any:
    one = reader(ask, "refused", *(b"%d" % number for number in range(6)))
    found: list[Any] = [one.read()]
    for ranges in (
        [(3, 2, [ACCEPT])],
        [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 1, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(4, 7, [ACCEPT])],
        [(20, 20, [ACCEPT])],
        [(0, 0, [RELEASE]), (20, 20, [ACCEPT])],
    ):
        found.append(one.acknowledge(ranges))
    other = Member(ask, "refused", "refused", "AAAAAAAAAAAAAAAAAAAAAA")
    other.join()
    other.fetch(0)
    other.epoch = 1
    found.append(other.acknowledge([(0, 0, [ACCEPT])]))
    return [*found, one.acknowledge([(0, 5, [ACCEPT])])]


_REFUSED = [[0, 42]] * 7 + [[0, 121]] * 4
DIFFERENCES["acknowledgements_that_are_refused"] = (
    "Records that nobody holds are in the wrong state, whether or not they were ever delivered.",
    [[[0, 5, 1]], *_REFUSED, [0, 0]],
)


@case
def limits_of_records_in_share_fetches(ask: Ask) -> Any:
    """The limit is soft, at the end of a batch, unless the client says that it is strict."""
    one = reader(ask, "limited", *(b"%d" % number for number in range(10)))
    found: list[Any] = [one.read(max_records=3, share_acquire_mode=1)]
    found.append(one.read(max_records=2, share_acquire_mode=0))
    found.append(codes(one.fetch(one.epoch, max_records=0, max_wait_ms=0)))
    return found


@case
def ranges_no_longer_than_the_batch_size(ask: Ask) -> Any:
    one = reader(ask, "sized", *(b"%d" % number for number in range(10)))
    return one.read(batch_size=4)


DIFFERENCES["ranges_no_longer_than_the_batch_size"] = (
    "Ranges are split at the size that the client wants; Kafka splits only between batches.",
    [[0, 3, 1], [4, 7, 1], [8, 9, 1]],
)


@case
def renewals(ask: Ask) -> Any:
    """A request that renews leases fetches nothing, and says so."""
    one = reader(ask, "renewed", *(b"%d" % number for number in range(3)))
    found: list[Any] = [one.read()]
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renewed = [(0, 1, [RENEW])]
    found.append(codes(one.fetch(one.epoch, acks=renewed, is_renew_ack=True)))
    answer = one.fetch(one.epoch, acks=renewed, is_renew_ack=True, **nothing)
    one.epoch += 1
    found += [codes(answer), answer.acquisition_lock_timeout_ms]
    found.append(codes(one.fetch(one.epoch, acks=renewed)))
    one.epoch += 1
    found.append(one.acknowledge(renewed, is_renew_ack=True))
    return [*found, one.acknowledge([(0, 2, [ACCEPT])])]


@case
def records_of_a_closed_session(ask: Ask) -> Any:
    """They are released, except those that the last request settles."""
    one = reader(ask, "closed", *(b"%d" % number for number in range(4)))
    found: list[Any] = [one.read()]
    found.append(codes(one.fetch(-1, acks=[(0, 1, [ACCEPT])])))
    one.epoch = 0
    found.append(one.read())
    found.append(one.acknowledge([(2, 2, [ACCEPT])], epoch=-1))
    one.epoch = 0
    return [*found, one.read()]


@case
def whole_batches_of_share_fetches(ask: Ask) -> Any:
    """A batch is returned whole, whichever of its records were acquired."""
    one = reader(ask, "whole", b"a", b"b", b"c")
    one.read(max_records=1, share_acquire_mode=1)
    answer = one.fetch(one.epoch)
    return [acquired(answer), values_in(answer), answer.acquisition_lock_timeout_ms]


# Tools


def described(ask: Ask, group: str) -> list[Any]:
    request = share_group_describe.ShareGroupDescribeRequest([group])
    (one,) = coordinated(ask, "ShareGroupDescribe", request).groups
    members = [
        [
            each.member_id,
            each.client_id != "",
            each.client_host[:1],
            each.subscribed_topic_names,
            [(some.topic_name, some.partitions) for some in each.assignment.topic_partitions],
        ]
        for each in one.members
    ]
    return [one.error_code, one.group_state, one.assignor_name, members]


def listed(ask: Ask, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
    answer = ask("ListGroups", list_groups.ListGroupsRequest(list(states), list(types)))
    return sorted(
        [one.group_id, one.protocol_type, one.group_state, one.group_type]
        for one in answer.groups
        if one.group_id.startswith("told")
    )


@case
def what_tools_see_of_share_groups(ask: Ask) -> Any:
    create(ask, "told")
    commit(ask, "told-stream", "told")
    one = Member(ask, "told", "told")
    one.join()
    found: list[Any] = [described(ask, "told"), described(ask, "told-nobody")]
    found += [listed(ask), listed(ask, types=["share"]), listed(ask, types=["Share"])]
    found += [listed(ask, types=["share"], states=["empty"])]
    request = delete_groups.DeleteGroupsRequest(["told"])
    found.append([each.error_code for each in ask("DeleteGroups", request).results])
    one.beat(-1)
    found += [described(ask, "told"), listed(ask, types=["share"], states=["empty"])]
    return found


def offsets(ask: Ask, group: str, partitions: Sequence[int] | None, topic: str = "") -> list[Any]:
    topics = None
    if partitions is not None:
        topics = [
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                topic or group, list(partitions)
            )
        ]
    wanted = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group, topics)
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest([wanted])
    answer = coordinated(ask, "DescribeShareGroupOffsets", request)
    (one,) = answer.groups
    return [
        one.error_code,
        [
            [each.topic_name, some.partition_index, some.error_code, some.start_offset, some.lag]
            for each in one.topics
            for some in each.partitions
        ],
    ]


def move(ask: Ask, group: str, *places: tuple[int, int], topic: str = "") -> list[Any]:
    moved = [
        alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(*one) for one in places
    ]
    request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group,
        [alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic or group, moved)],
    )
    answer = coordinated(ask, "AlterShareGroupOffsets", request)
    return [
        answer.error_code,
        [one.error_code for each in answer.responses for one in each.partitions],
    ]


def forget(ask: Ask, group: str, topic: str) -> list[Any]:
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group, [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic)]
    )
    answer = coordinated(ask, "DeleteShareGroupOffsets", request)
    return [answer.error_code, [one.error_code for one in answer.responses]]


@case
def offsets_of_share_groups(ask: Ask) -> Any:
    one = reader(ask, "placed-share", *(b"%d" % number for number in range(5)))
    found: list[Any] = [one.read(), one.acknowledge([(0, 1, [ACCEPT])])]
    found.append(offsets(ask, "placed-share", [0]))
    found.append(offsets(ask, "placed-share", None))
    found.append(offsets(ask, "placed-share", [0], topic="nowhere"))
    found.append(offsets(ask, "placed-nobody", [0], topic="placed-share"))
    found += [move(ask, "placed-share", (0, 0)), forget(ask, "placed-share", "placed-share")]
    one.fetch(-1, partitions=())
    one.beat(-1)
    one.epoch = 0
    found.append(move(ask, "placed-share", (0, 1)))
    found.append(offsets(ask, "placed-share", [0]))
    one.join()
    found.append(one.read())
    one.fetch(-1, partitions=())
    one.beat(-1)
    found += [move(ask, "placed-share", (7, 1)), move(ask, "placed-share", (0, 1), topic="nowhere")]
    found += [forget(ask, "placed-share", "nowhere"), forget(ask, "placed-share", "placed-share")]
    found += [offsets(ask, "placed-share", None), forget(ask, "placed-nobody", "placed-share")]
    return found


DIFFERENCES["offsets_of_share_groups"] = (
    "What is done is told at once, a group or topic that does not exist is an error, and what is "
    "set takes effect on records that were settled, too.",
    [
        [[0, 4, 1]],
        [0, 0],
        [0, [["placed-share", 0, 0, 2, 3]]],
        [0, [["placed-share", 0, 0, 2, 3]]],
        [0, [["nowhere", 0, 3, -1, -1]]],
        [69, []],
        [68, []],
        [68, []],
        [0, [0]],
        [0, [["placed-share", 0, 0, 1, 4]]],
        [[1, 4, 1]],
        [0, [3]],
        [0, [3]],
        [0, [3]],
        [0, [0]],
        [0, []],
        [69, []],
    ],
)


@case
def settings_of_share_groups(ask: Ask) -> Any:
    """Values that are accepted and refused."""
    return [
        [name, value, configure(ask, "set-share", **{name: value})]
        for name, value in (
            ("share_auto_offset_reset", "latest"),
            ("share_auto_offset_reset", "by_duration:PT1H"),
            ("share_auto_offset_reset", "sometimes"),
            ("share_record_lock_duration_ms", "15000"),
            ("share_record_lock_duration_ms", "0"),
            ("share_record_lock_duration_ms", "soon"),
            ("share_isolation_level", "read_committed"),
            ("share_isolation_level", "none"),
            ("share_session_timeout_ms", "45000"),
            ("share_heartbeat_interval_ms", "5000"),
            ("share_delivery_count_limit", "3"),
            ("share_partition_max_record_locks", "2000"),
            ("share_renew_acknowledge_enable", "true"),
            ("share_nothing", "1"),
        )
    ]


@case
def settings_that_share_groups_have(ask: Ask) -> Any:
    """Of a group that overrides some; those that both brokers have."""
    configure(ask, "shown-share", share_auto_offset_reset="earliest")
    configure(ask, "shown-share", share_record_lock_duration_ms="20000")
    resource = describe_configs.DescribeConfigsResource(GROUP_RESOURCE, "shown-share", None)
    request = describe_configs.DescribeConfigsRequest([resource], include_synonyms=True)
    (one,) = ask("DescribeConfigs", request).results
    return [
        one.error_code,
        [
            [
                each.name,
                each.value,
                each.config_source,
                each.config_type,
                each.read_only,
                [[some.name, some.value, some.source] for some in each.synonyms],
            ]
            for each in sorted(one.configs, key=lambda config: config.name)
            if each.name.startswith("share.") and each.name not in NOT_COMMON
        ],
    ]


@case
def limits_of_deliveries(ask: Ask) -> Any:
    return [configure(ask, "lives", share_delivery_count_limit=one) for one in ("2", "0")]


DIFFERENCES["limits_of_deliveries"] = ("A limit of 0 is no limit.", [[0], [0]])
