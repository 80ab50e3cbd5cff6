"""Produce to a topic whose records must obey schemas: the batch is refused, record by record."""

from __future__ import annotations

import pytest

from goqueue.loop.promise import Promise, start
from goqueue.schemas.catalog import Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.names import read_subject
from goqueue.wire.kafka.errors import ErrorCode
from tests.unit.wire.kafka.client import Client, failures
from tests.unit.wire.kafka.requests import produce_request, records_for

__all__ = ["failures"]

GOOD = b"\x00\x00\x00\x00\x01\x02a"
FIRST_VERSION_WITH_RECORD_ERRORS = 8


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12, 13])
def test_the_answer_names_every_record_that_is_wrong(version: int) -> None:
    client = Client()
    node = client.node
    node.wait(node.broker.topics.configure("orders", {"schema_validation": "value"}))
    registered: Promise[Version] = Promise()
    work = node.broker.schemas.register(read_subject("orders-value"), Request('"string"'))
    start(work, registered.settle)
    node.wait(registered)
    records = records_for(version, GOOD, b"bare", GOOD, GOOD[:5])
    request = produce_request(version, client.subject, records)
    ((one,),) = [
        topic.partition_responses for topic in client.call("Produce", request, version).responses
    ]
    assert (one.error_code, one.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        assert [each.batch_index for each in one.record_errors] == [1, 3]
        assert "zero byte" in one.record_errors[0].batch_index_error_message
        assert "Record 1" in one.error_message
    assert node.values("orders") == []
    request = produce_request(version, client.subject, records_for(version, GOOD, GOOD))
    ((one,),) = [
        topic.partition_responses for topic in client.call("Produce", request, version).responses
    ]
    assert (one.error_code, one.record_errors) == (0, [])
    assert node.values("orders") == [GOOD, GOOD]
