"""The options of the sinks, and the lookup of the HTTP API's address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from goqueue.client import find_http
from goqueue.model.compression import Compression
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.names import check_topic_name
from goqueue.spark.access import NAMES as ACCESS_NAMES
from goqueue.spark.access import OPEN, Access, read_access
from goqueue.spark.connecting import connect
from goqueue.spark.options import BOOTSTRAP_DEFAULT, OptionReader

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
TIMEOUT_MS_DEFAULT = 10 * 60 * 1000  # a task that writes for longer is considered dead

_NAMES = (
    "bootstrap.servers",
    "compression",
    "delivery",
    "http.address",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafka.compression.type",
    "topic",
    "transactionTimeout",
    *ACCESS_NAMES,
)
# Producer options that Kafka's own sink refuses too.
_DECIDED_HERE = {
    "kafka.key.serializer": "keys are bytes or text; convert the column",
    "kafka.value.serializer": "values are bytes or text; convert the column",
}
_CODECS = tuple(one.name.lower() for one in Compression)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows are written, and with which delivery guarantee."""

    bootstrap: str
    http: str = ""  # address of the broker's HTTP API, where transactions begin and end
    topic: str | None = None  # None: each row names its topic
    is_exactly_once: bool = True
    compression: Compression = Compression.NONE
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    access: Access = OPEN


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a sink; all errors are reported in one `InvalidRequest`."""
    reader = OptionReader(options, _NAMES, decided_here=_DECIDED_HERE)
    # Without effect, as in Kafka's own sink: what writes headers is the column of that name.
    reader.flag("includeHeaders", default=False)
    topic = reader.text("topic")
    if topic is not None:
        try:
            check_topic_name(topic)
        except GoQueueError as error:
            reader.problems.append(str(error))
    delivery = reader.choice("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE)
    codec = reader.text("kafka.compression.type", "compression") or "none"
    if codec.lower() not in _CODECS:
        reader.problems.append(f"compression is {codec!r}; give one of {', '.join(_CODECS)}.")
        codec = "none"
    found = WriteOptions(
        bootstrap=reader.text("kafka.bootstrap.servers", "bootstrap.servers") or BOOTSTRAP_DEFAULT,
        http=reader.text("http.address") or "",
        topic=topic,
        is_exactly_once=delivery == EXACTLY_ONCE,
        compression=Compression[codec.upper()],
        timeout_ms=reader.duration_ms("transactionTimeout", TIMEOUT_MS_DEFAULT),
        access=read_access(reader),
    )
    reader.raise_problems()
    return found


def located(options: WriteOptions) -> WriteOptions:
    """Return the options with the HTTP address, requested from the broker if not given."""
    if not options.is_exactly_once:
        return options
    return replace(options, http=located_http(options.bootstrap, options.http, options.access))


def located_http(bootstrap: str, http: str | None, access: Access = OPEN) -> str:
    """Return the address of the HTTP API: the given one, or the one that the broker reports."""
    if http:
        return http
    with connect(bootstrap, access) as client:
        found = find_http(client.cluster)
    if found is None:
        raise InvalidRequest(
            "The broker does not say where its HTTP API is, which commits what is written; give it "
            "with option http.address (of a pipeline: --http HOST:PORT), or write with option "
            "delivery=at-least-once."
        )
    return found
