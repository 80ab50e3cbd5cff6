"""boto3 in both protocols of SQS, and a queue as the tests speak of it."""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.loaders import Loader

from .waiting import eventually

PROTOCOLS = ("json", "query")
REGION = "us-east-1"
ACCOUNT = "000000000000"
BATCH = 10
# For a node that was killed meanwhile: a cluster whose nodes come back says so until they are back.
ATTEMPTS_AFTER_CRASH = 10

Answer = dict[str, Any]

# Lists of the Query protocol are named after their members; these are the exceptions.
_MEMBER_NAMES = {
    "StringList": "StringListValue",
    "BinaryList": "BinaryListValue",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
}
# Codes that are more than the name of the exception.
_QUERY_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{
        name: f"AWS.SimpleQueueService.{name}"
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "PurgeQueueInProgress",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
}


def connect(
    endpoint: str,
    *,
    protocol: str = "json",
    key: str = "testing",
    secret: str = "testing",
    region: str = REGION,
    attempts_max: int = 1,
) -> Any:
    """A boto3 client that asks once, so that every error is seen, unless it is told otherwise."""
    return _session(protocol).client(
        "sqs",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"mode": "standard", "total_max_attempts": attempts_max}),
    )


def error_of(call: Any, **arguments: Any) -> tuple[str, int, str]:
    """The code, status and text of the error with which a call is answered."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        found = error.response
        status = found["ResponseMetadata"]["HTTPStatusCode"]
        return found["Error"]["Code"], status, found["Error"].get("Message", "")
    raise AssertionError(f"no error but {answer}")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue by its URL."""

    client: Any
    url: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]

    @property
    def arn(self) -> str:
        return self.attributes("QueueArn")["QueueArn"]

    def attributes(self, *names: str) -> dict[str, str]:
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[*names])
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    def set(self, **attributes: str) -> None:
        self.client.set_queue_attributes(QueueUrl=self.url, Attributes=attributes)

    def counts(self) -> tuple[int, int, int]:
        """How many messages can be received, are in flight, and wait for their time."""
        kinds = ("", "NotVisible", "Delayed")
        found = self.attributes(*(f"ApproximateNumberOfMessages{kind}" for kind in kinds))
        ready, in_flight, delayed = (
            int(found[f"ApproximateNumberOfMessages{kind}"]) for kind in kinds
        )
        return ready, in_flight, delayed

    def send(self, body: str, **more: Any) -> Answer:
        answer: Answer = self.client.send_message(QueueUrl=self.url, MessageBody=body, **more)
        return answer

    def send_batch(self, *entries: Mapping[str, Any]) -> Answer:
        answer: Answer = self.client.send_message_batch(QueueUrl=self.url, Entries=[*entries])
        return answer

    def send_all(self, bodies: Iterable[str], **more: Any) -> None:
        """Send in order, in batches."""
        entries = [{"MessageBody": body, **more} for body in bodies]
        for begin in range(0, len(entries), BATCH):
            batch = entries[begin : begin + BATCH]
            answer = self.send_batch(*({"Id": str(n), **one} for n, one in enumerate(batch)))
            assert len(answer["Successful"]) == len(batch), answer

    def receive(self, count: int = BATCH, *, wait_seconds: int = 0, **more: Any) -> list[Answer]:
        answer = self.client.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=count, WaitTimeSeconds=wait_seconds, **more
        )
        messages: list[Answer] = answer.get("Messages", [])
        return messages

    def receive_one(self, **more: Any) -> Answer:
        """The next message, which must come."""
        [message] = self.receive(1, wait_seconds=20, **more)
        return message

    def receive_all(self, count: int, **more: Any) -> list[Answer]:
        """So many messages, in as many calls as it takes."""
        found: list[Answer] = []

        def is_whole() -> bool:
            wanted = min(count - len(found), BATCH)
            found.extend(self.receive(wanted, wait_seconds=2, **more))
            return len(found) >= count

        eventually(is_whole, because=f"{count} messages of {self.name}")
        return found

    def delete(self, message: Answer) -> None:
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def hide(self, message: Answer, seconds: int) -> None:
        """Let the message be out for so long from now; 0 gives it back."""
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def drain(self) -> list[str]:
        """Receive and delete what can be received now; the bodies."""
        bodies = []
        while messages := self.receive():
            for message in messages:
                bodies.append(message["Body"])
                self.delete(message)
        return bodies


def bodies(messages: Iterable[Answer]) -> list[str]:
    """What was said."""
    return [message["Body"] for message in messages]


def md5(text: str) -> str:
    """As AWS computes it for a body."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """As AWS describes it: sorted by name; lengths, names, types, kinds and values."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        kind, value = attribute["DataType"], attribute.get("BinaryValue")
        is_binary = kind.startswith("Binary")
        raw = value if is_binary else attribute["StringValue"].encode()
        for part in (name.encode(), kind.encode()):
            digest.update(struct.pack(">I", len(part)) + part)
        digest.update(b"\x02" if is_binary else b"\x01")
        digest.update(struct.pack(">I", len(raw)) + raw)
    return digest.hexdigest()


@cache
def _session(protocol: str) -> Any:
    session = botocore.session.Session()
    if protocol == "query":
        session.register_component("data_loader", _QueryLoader())
    return boto3.Session(botocore_session=session)


class _QueryLoader(Loader):  # type: ignore[misc]
    """Lets botocore speak to SQS as it did before AWS JSON came, and as older SDKs still do."""

    def load_service_model(
        self, service_name: str, type_name: str, api_version: str | None = None
    ) -> Any:
        model = super().load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) == ("sqs", "service-2"):
            return _in_query(copy.deepcopy(model))
        return model


def _in_query(model: Any) -> Any:
    """The service model of SQS, with what the Query protocol writes differently."""
    for name in ("protocols", "jsonVersion", "targetPrefix", "awsQueryCompatible"):
        model["metadata"].pop(name, None)
    model["metadata"]["protocol"] = "query"
    model["metadata"]["xmlNamespace"] = "http://queue.amazonaws.com/doc/2012-11-05/"
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    for name, shape in model["shapes"].items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = _MEMBER_NAMES.get(name, name.removesuffix("List"))
        elif shape["type"] == "map":
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
        elif shape["type"] == "structure":
            _name_members(shape["members"], model["shapes"])
            if shape.get("exception"):
                code = _QUERY_CODES.get(name, name)
                shape["error"] = {"code": code, "httpStatusCode": 400, "senderFault": True}
    return model


def _name_members(members: Any, shapes: Any) -> None:
    for name, member in members.items():
        if shapes[member["shape"]]["type"] == "map" or name.endswith("ListValues"):
            singular = name.removesuffix("s")
            member["locationName"] = singular[0].upper() + singular[1:]
            if name.endswith("ListValues"):
                member["flattened"] = True
