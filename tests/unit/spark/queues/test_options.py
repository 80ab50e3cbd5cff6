"""The options of a queue: what is taken, and what is said of the rest."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.queues.options import is_queue, queue_options, refuse_table, with_address


def test_the_options_of_a_queue_are_read() -> None:
    found = queue_options(
        {
            "Subscribe": "orders, mails,orders",
            "queue.group": "workers",
            "queue.hold": "2h",
            "maxmessagespertrigger": "500",
            "kafka.bootstrap.servers": "b:9",
            "http.address": "b:8",
            "includeHeaders": "true",
            "minPartitions": "4",
            "maxRecordsPerPartition": "100",
            "failOnDataLoss": "false",
        }
    )
    assert (found.group, found.hold_ms, found.messages_max) == ("workers", 7_200_000, 500)
    assert (found.read.topics, found.read.bootstrap) == (("orders", "mails"), "b:9")
    assert (found.read.tasks_min, found.read.records_per_task_max) == (4, 100)
    assert found.read.has_headers
    assert not found.read.fails_on_data_loss
    assert with_address(found).http == "b:8"


def test_a_group_makes_it_a_queue() -> None:
    assert is_queue({"Queue.Group": "workers", "subscribe": "orders"})
    assert not is_queue({"group": "workers", "subscribe": "orders"})
    refuse_table({"subscribe": "orders"})
    with pytest.raises(InvalidRequest, match=r"queue\.group is for streams"):
        refuse_table({"queue.group": "workers", "subscribe": "orders"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": ""}, "Name the topics of the queue with subscribe"),
        ({"queue.group": " "}, "queue.group is empty"),
        ({"startingOffsets": "earliest"}, "startingOffsets does not go with queue.group"),
        ({"subscribePattern": "or.*"}, "subscribePattern does not go with queue.group"),
        ({"group": "readers"}, "group does not go with queue.group"),
        ({"maxMessagesPerTrigger": "0"}, "whole number from 1 on"),
        ({"maxMessagesPerTrigger": "100001"}, "at most 100000"),
        ({"queue.hold": "10ms"}, "less than a second"),
        ({"queue.hold": "soon"}, "give a duration"),
        ({"queue.holds": "10m"}, "did you mean 'queue.hold'"),
        ({"kafka.ssl.protocol": "x"}, "not supported here"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        queue_options({"subscribe": "orders", "queue.group": "workers", **options})


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidRequest) as error:
        queue_options({"queue.group": "", "view": "batches", "maxMessagesPerTrigger": "x"})
    for part in ("queue.group is empty", "view does not go", "Name the topics", "whole number"):
        assert part in str(error.value)
