"""Queue groups: receive and settle messages, which are encoded as JSON a run at a time.

Receiving is the most frequent operation and its responses are long, so no object is made per
message: the fields that the messages of a run share are encoded once, and the others are copied
from the columns of their batch. Each message has the form of `bodies.ReceivedMessage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.queues import LANE_NAMES, Outcomes
from goqueue.loop.promise import Promise
from goqueue.model.columns import at_places
from goqueue.model.decoding import decoder
from goqueue.wire.carrier.calls import Raw, encode
from goqueue.wire.carrier.problems import problem_of
from goqueue.wire.http.bodies import queues as bodies
from goqueue.wire.http.fields import Encoding
from goqueue.wire.http.messages import show, show_headers

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.queues import Lease, Received, ReceivedRun
    from goqueue.model.decode_reference import JsonColumn
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_JSON = b"application/json"
_LANES = [encode(name) for name in LANE_NAMES]
_NO_CONTENTS = (
    b',"key":null,"key_encoding":"utf8","value":null,"value_encoding":"utf8","headers":[]'
)


async def receive(front: FrontEnd, call: Call, body: bodies.Receive) -> Raw:
    group, consumer = call.name("group"), body.consumer or call.client_host
    acks = b""
    if not body.acks:
        received = await front.gate.queues.receive(
            call.session,
            group=group,
            topic=body.topic,
            consumer=consumer,
            messages_max=body.max_messages,
            wait_ms=body.wait_ms,
            visibility_ms=body.visibility_ms,
            cancellation=call.cancellation,
        )
    else:
        outcomes, received = await front.gate.queues.ack_and_receive(
            call.session,
            group=group,
            topic=body.topic,
            receipts=body.acks,
            consumer=consumer,
            messages_max=body.max_messages,
            wait_ms=body.wait_ms,
            visibility_ms=body.visibility_ms,
            cancellation=call.cancellation,
        )
        acks = b'"acks":%s,' % _acks_json(body.acks, outcomes)
    messages = received_json(received, body.encoding) if body.bodies else places_json(received)
    return Raw(b'{%s"messages":%s}' % (acks, messages), _JSON)


async def ack(front: FrontEnd, call: Call, body: bodies.Ack) -> bodies.Settled | Raw:
    outcomes = front.gate.queues.ack(call.session, group=call.name("group"), receipts=body.receipts)
    return await settled(body.receipts, outcomes)


async def nack(front: FrontEnd, call: Call, body: bodies.Nack) -> bodies.Settled | Raw:
    outcomes = front.gate.queues.nack(
        call.session, group=call.name("group"), receipts=body.receipts, delay_ms=body.delay_ms
    )
    return await settled(body.receipts, outcomes)


async def reject(front: FrontEnd, call: Call, body: bodies.Reject) -> bodies.Settled | Raw:
    outcomes = front.gate.queues.reject(
        call.session, group=call.name("group"), receipts=body.receipts, reason=body.reason
    )
    return await settled(body.receipts, outcomes)


async def extend(front: FrontEnd, call: Call, body: bodies.Extend) -> bodies.Settled | Raw:
    outcomes = front.gate.queues.extend(
        call.session,
        group=call.name("group"),
        receipts=body.receipts,
        visibility_ms=body.visibility_ms,
    )
    return await settled(body.receipts, outcomes)


async def settled(receipts: list[str], outcomes: Promise[Outcomes]) -> bodies.Settled | Raw:
    errors = await outcomes
    if not any(errors):
        return Raw(all_settled_json(receipts), _JSON)
    return _settled(receipts, errors)


def _acks_json(receipts: list[str], errors: Outcomes) -> bytes:
    return encode(_settled(receipts, errors)) if any(errors) else all_settled_json(receipts)


def _settled(receipts: list[str], errors: Outcomes) -> bodies.Settled:
    results = [bodies.ReceiptResult(receipt) for receipt in receipts]
    failed = 0
    for result, error in zip(results, errors, strict=True):
        if error is not None:
            result.problem = problem_of(error)
            failed += 1
    return bodies.Settled(results=results, failed=failed)


# Received messages


def received_json(received: Received, encoding: Encoding) -> bytes:
    """The list of messages in the response to a receive call."""
    topic = encode(received.topic)
    rows = [run_json(topic, run, encoding) for run in received.runs]
    return b"[%s]" % b",".join(rows)


def places_json(received: Received) -> bytes:
    """The same without the contents of the messages."""
    topic = encode(received.topic)
    rows = []
    for columns, places, lease, first in received.runs:
        run = _Run(topic, lease, first, len(places))
        run.say_place(at_places(columns.timestamps, places))
        run.rows.say(_NO_CONTENTS)
        rows.append(run.json())
    return b"[%s]" % b",".join(rows)


def all_settled_json(receipts: list[str]) -> bytes:
    """The body of `bodies.Settled` if all receipts were valid, and so need no escaping."""
    receipts_json = '"},{"receipt":"'.join(receipts)
    return b'{"results":[{"receipt":"%s"}],"failed":0}' % receipts_json.encode()


def run_json(topic: bytes, run: ReceivedRun, encoding: Encoding) -> bytes:
    """The messages of a run, separated by commas; `topic` is JSON already."""
    try:
        return _run_json(topic, run, encoding, is_text=encoding == "utf8")
    except ValueError:  # Some of it is not UTF-8.
        return _run_json(topic, run, encoding, is_text=False)


def _run_json(topic: bytes, run: ReceivedRun, encoding: Encoding, *, is_text: bool) -> bytes:
    columns, places, lease, first = run
    shown = _Run(topic, lease, first, len(places))
    shown.say_place(at_places(columns.timestamps, places))
    rows = shown.rows
    if is_text:
        # In the usual case everything is text and is copied into the response as it is.
        if columns.has_keys:
            rows.add(b',"key":', columns.key_column(places))
        else:
            rows.say(b',"key":null')
        rows.add(b',"key_encoding":"utf8","value":', columns.value_column(places))
        rows.say(b',"value_encoding":"utf8"')
    else:
        rows.add_shown(b"key", columns.keys(places), encoding)
        rows.add_shown(b"value", columns.values(places), encoding)
    if columns.has_headers:
        headers = [encode(show_headers(columns.headers(one), encoding)) for one in places]
        rows.add(b',"headers":', headers)
    else:
        rows.say(b',"headers":[]')
    return shown.json()


class _Run:
    """The fields of the messages of a run before and after their contents."""

    def __init__(self, topic: bytes, lease: Lease, first: int, count: int) -> None:
        self.rows = _Rows()
        self._topic = topic
        self._lease = lease
        self._of_lease = slice(first, first + count)
        self._count = count

    def say_place(self, timestamps: Sequence[int]) -> None:
        topic, number = self._topic, self._lease.partition
        offsets = list(self._lease.offsets[self._of_lease])
        self.rows.add(b'{"id":%s:%d:' % (topic[:-1], number), offsets)
        self.rows.add(b'","topic":%s,"partition":%d,"offset":' % (topic, number), offsets)
        first = timestamps[0]
        if timestamps[-1] == first and list(timestamps).count(first) == len(timestamps):
            self.rows.say(b',"timestamp":%d' % first)  # they are often stored together
        else:
            self.rows.add(b',"timestamp":', timestamps)

    def json(self) -> bytes:
        rows, lease, of_lease = self.rows, self._lease, self._of_lease
        rows.add(b',"receipt":"%s' % lease.head.encode(), lease.tails_at(of_lease))
        rows.add_named(b'","priority":', lease.lanes[of_lease])
        attempts = list(lease.attempts[of_lease])
        if attempts.count(1) == len(attempts):
            rows.say(b',"attempt":1')
        else:
            rows.add(b',"attempt":', attempts)
        rows.say(b',"leased_until":%d}' % lease.until_ms)
        return rows.json(self._count)


class _Rows:
    """Joins the fixed parts of all rows with the columns between them."""

    def __init__(self) -> None:
        self._fragments: list[bytes] = []
        self._columns: list[JsonColumn] = []
        self._text = b""

    def say(self, text: bytes) -> None:
        self._text += text

    def add(self, text: bytes, column: JsonColumn) -> None:
        self._fragments.append(self._text + text)
        self._columns.append(column)
        self._text = b""

    def add_named(self, text: bytes, lanes: bytes) -> None:
        if lanes.count(lanes[0]) == len(lanes):
            self.say(text + _LANES[lanes[0]])
        else:
            self.add(text, [_LANES[lane] for lane in lanes])

    def add_shown(self, name: bytes, contents: list[bytes | None], encoding: Encoding) -> None:
        shown = [show(content, encoding) for content in contents]
        self.add(b',"%s":' % name, [encode(one.text) for one in shown])
        self.add(b',"%s_encoding":' % name, [encode(one.encoding) for one in shown])

    def json(self, count: int) -> bytes:
        fragments = (*self._fragments, self._text)
        return decoder.json_rows(fragments, tuple(self._columns), count)
