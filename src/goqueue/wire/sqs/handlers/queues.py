"""Queues: create, find, list, delete, purge, and their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.named_queues import NamedQueueSpec
from goqueue.model.errors import PurgeInProgress
from goqueue.wire.sqs import queue_attributes as attributes
from goqueue.wire.sqs import shapes
from goqueue.wire.sqs.errors import (
    InvalidAttributeName,
    InvalidParameterValue,
    MissingParameter,
    PurgeQueueInProgress,
    QueueNameExists,
)
from goqueue.wire.sqs.handlers.finding import named, queue_of
from goqueue.wire.sqs.handlers.tags import check_tags
from goqueue.wire.sqs.names import check_name
from goqueue.wire.sqs.paging import page_of
from goqueue.wire.sqs.policies import RedrivePolicy, lets_in

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.named_queues import NamedQueue
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

NAME_REST_MS = 60_000  # before the name of a deleted queue can be used again
PURGE_PAUSE_MS = 60_000  # between two purges of a queue


async def create(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.QueueUrl:
    body: shapes.CreateQueue = asked.body
    given = body.attributes or {}
    is_fifo = attributes.is_fifo(given)
    name = check_name(body.queue_name, is_fifo=is_fifo)
    checked = attributes.check_attributes(given, front.rules, is_of_fifo=is_fifo, is_new=True)
    queues = front.gate.named_queues
    known = await queues.find_latest(call.session, name=name)
    if known is not None:
        _check_same(known, checked)
        return shapes.QueueUrl(asked.url_of(name))
    tags = body.tags or {}
    check_tags(tags)
    whole = attributes.with_defaults(checked, front.rules)
    attributes.check_together(whole)
    dead_letter_topic = await _dead_letter_topic(front, call, asked, name, whole)
    spec = NamedQueueSpec(
        name=name,
        topic=checked.get(attributes.TOPIC),
        attributes=whole,
        tags=tags,
        queue_settings=attributes.queue_settings(whole, dead_letter_topic),
        topic_settings=attributes.topic_settings(whole, front.rules),
        is_ordered=is_fifo,
        compared={one: text for one, text in checked.items() if one != attributes.TOPIC},
    )
    await queues.create(call.session, spec=spec)
    return shapes.QueueUrl(asked.url_of(name))


def _check_same(known: NamedQueue, wanted: Mapping[str, str]) -> None:
    """Creating a queue again succeeds if all its attributes are the same."""
    for name, text in wanted.items():
        its = known.topic if name == attributes.TOPIC else known.attributes.get(name, "")
        if its != text:
            raise QueueNameExists(name)


async def _dead_letter_topic(
    front: SqsFrontEnd, call: Call, asked: Asked, name: str, whole: Mapping[str, str]
) -> str:
    """The topic of the dead-letter queue; empty if there is none."""
    text = whole.get("RedrivePolicy", "")
    policy = RedrivePolicy.read(text)
    if policy is None:
        return ""
    target_name = asked.site.name_of_arn(policy.target_arn)
    target = None
    if target_name:
        target = await front.gate.named_queues.find_latest(call.session, name=target_name)
    reason = ""
    if not target:
        reason = "Dead letter target does not exist."
    elif target.is_ordered != attributes.is_fifo(whole):
        reason = "Dead-letter queue must be same type of queue as the source."
    elif not lets_in(target.attributes.get("RedriveAllowPolicy", "{}"), name):
        reason = "Dead letter target does not allow this queue; see its RedriveAllowPolicy."
    if reason or not target:
        raise InvalidParameterValue.of("RedrivePolicy", text, reason)
    return target.topic


async def url(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.QueueUrl:
    name = asked.body.queue_name
    if not name:
        raise MissingParameter("QueueName")
    asked.site.check_account(asked.body.queue_owner_account_id)
    return shapes.QueueUrl(asked.url_of((await named(front, call, name)).name))


async def list_all(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.ListedQueues:
    body: shapes.ListQueues = asked.body
    prefix = body.queue_name_prefix or ""
    queues = await front.gate.named_queues.list(call.session)
    names = [one.name for one in queues if one.name.startswith(prefix)]
    page, token = page_of(names, body.max_results, body.next_token)
    urls = [asked.url_of(name) for name in page]
    return shapes.ListedQueues(urls or None, token)


async def list_sources(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.SourceQueues:
    body: shapes.ListDeadLetterSourceQueues = asked.body
    target = await queue_of(front, call, asked)
    names = []
    for one in await front.gate.named_queues.list(call.session):
        policy = RedrivePolicy.read(one.attributes.get("RedrivePolicy", ""))
        if policy is not None and policy.target == target.name:
            names.append(one.name)
    page, token = page_of(names, body.max_results, body.next_token)
    return shapes.SourceQueues([asked.url_of(name) for name in page], token)


async def delete(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    rest_ms = NAME_REST_MS if front.rules.has_resting_names else 0
    await front.gate.named_queues.delete(call.session, queue=queue, rest_ms=rest_ms)
    return shapes.Nothing()


async def purge(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    try:
        await front.gate.named_queues.purge(call.session, queue=queue, pause_ms=PURGE_PAUSE_MS)
    except PurgeInProgress:
        raise PurgeQueueInProgress(queue.name) from None
    return shapes.Nothing()


# Attributes


async def get_attributes(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.QueueAttributes:
    queue = await queue_of(front, call, asked)
    names = set(asked.body.attribute_names or ())
    unknown = sorted(names - attributes.READABLE)
    if unknown:
        raise InvalidAttributeName(unknown[0])
    known = dict(queue.attributes)
    known.pop("Policy", None)  # Earlier versions stored it, without effect.
    if "KmsMasterKeyId" not in known:
        known.pop("KmsDataKeyReusePeriodSeconds", None)
    if queue.topic != queue.name:
        known[attributes.TOPIC] = queue.topic
    known["QueueArn"] = asked.site.arn_of(queue.name)
    known["CreatedTimestamp"] = str(queue.created_ms // attributes.SECOND_MS)
    known["LastModifiedTimestamp"] = str(queue.modified_ms // attributes.SECOND_MS)
    is_all = attributes.ALL in names
    if is_all or names & set(attributes.COUNTS):
        counts = await front.gate.named_queues.count(call.session, queue=queue)
        known.update(zip(attributes.COUNTS, map(str, counts), strict=True))
    told = {name: text for name, text in known.items() if is_all or name in names}
    return shapes.QueueAttributes(told or None)


async def set_attributes(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    given = asked.body.attributes
    if given is None:
        raise MissingParameter("Attributes")
    checked = attributes.check_attributes(
        given, front.rules, is_of_fifo=queue.is_ordered, is_new=False
    )
    whole = {name: text for name, text in {**queue.attributes, **checked}.items() if text}
    attributes.check_together(whole)
    dead_letter_topic = await _dead_letter_topic(front, call, asked, queue.name, whole)
    await front.gate.named_queues.change(
        call.session,
        queue=queue,
        attributes={name: text or None for name, text in checked.items()},
        queue_settings=attributes.queue_settings(whole, dead_letter_topic),
        topic_settings=attributes.topic_settings(whole, front.rules),
    )
    return shapes.Nothing()
