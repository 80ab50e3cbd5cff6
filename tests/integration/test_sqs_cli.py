"""The `aws` command of AWS on a node, action by action."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from awscli.clidriver import create_clidriver

from .sqs import ACCOUNT, REGION, md5
from .waiting import eventually

RUN_SECONDS_MAX = 60
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_PAGER": "",
}


class Aws:
    """`aws sqs …` on one endpoint. It runs in this process, which saves its long start."""

    def __init__(self, endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.endpoint = endpoint
        self._capsys = capsys
        self._driver = create_clidriver()

    def __call__(self, action: str, **options: Any) -> Any:
        """What the command printed, which must have succeeded."""
        code, printed, complaint = self._run(action, options)
        assert code == 0, complaint
        return json.loads(printed) if printed.strip() else None

    def fails(self, action: str, **options: Any) -> str:
        """What the command complained of."""
        code, _, complaint = self._run(action, options)
        assert code != 0
        return complaint

    def _run(self, action: str, options: dict[str, Any]) -> tuple[int, str, str]:
        command = ["--endpoint-url", self.endpoint, "--output", "json", "sqs", action]
        for name, value in options.items():
            command.append(f"--{name.replace('_', '-')}")
            command += [str(one) for one in (value if isinstance(value, list) else [value])]
        self._capsys.readouterr()
        code = self._driver.main(command)
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def aws(
    sqs_endpoint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Aws:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return Aws(sqs_endpoint, capsys)


@pytest.mark.on_cluster
def test_a_message_goes_through_a_queue(aws: Aws, unique: str) -> None:
    url = aws("create-queue", queue_name=unique, attributes="VisibilityTimeout=60")["QueueUrl"]
    assert url == f"{aws.endpoint}/{ACCOUNT}/{unique}"
    assert aws("get-queue-url", queue_name=unique) == {"QueueUrl": url}
    assert aws("list-queues", queue_name_prefix=unique) == {"QueueUrls": [url]}

    attributes = json.dumps({"kind": {"DataType": "String", "StringValue": "greeting"}})
    sent = aws("send-message", queue_url=url, message_body="héllo", message_attributes=attributes)
    assert sent["MD5OfMessageBody"] == md5("héllo")
    [message] = aws(
        "receive-message",
        queue_url=url,
        wait_time_seconds=20,
        attribute_names="All",
        message_attribute_names="All",
    )["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "héllo")
    assert message["MessageAttributes"]["kind"]["StringValue"] == "greeting"
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"

    receipt = message["ReceiptHandle"]
    aws("change-message-visibility", queue_url=url, receipt_handle=receipt, visibility_timeout=90)
    aws("delete-message", queue_url=url, receipt_handle=receipt)
    aws("delete-queue", queue_url=url)
    assert "NonExistentQueue" in aws.fails("get-queue-url", queue_name=unique)


def test_messages_go_through_a_queue_in_batches(aws: Aws, unique: str) -> None:
    url = aws("create-queue", queue_name=unique)["QueueUrl"]
    entries = [{"Id": f"m{n}", "MessageBody": str(n)} for n in range(3)]
    answer = aws("send-message-batch", queue_url=url, entries=json.dumps(entries))
    assert [one["Id"] for one in answer["Successful"]] == ["m0", "m1", "m2"]
    receipts = []
    while len(receipts) < 3:
        answer = aws(
            "receive-message", queue_url=url, max_number_of_messages=10, wait_time_seconds=20
        )
        receipts += [one["ReceiptHandle"] for one in answer["Messages"]]
    held = [{"Id": f"m{n}", "ReceiptHandle": one} for n, one in enumerate(receipts)]
    longer = [one | {"VisibilityTimeout": 90} for one in held]
    answer = aws("change-message-visibility-batch", queue_url=url, entries=json.dumps(longer))
    assert len(answer["Successful"]) == 3
    answer = aws("delete-message-batch", queue_url=url, entries=json.dumps(held))
    assert len(answer["Successful"]) == 3
    assert aws("receive-message", queue_url=url) is None


def test_a_queue_is_described_changed_and_purged(aws: Aws, unique: str) -> None:
    url = aws("create-queue", queue_name=unique, tags="team=blue")["QueueUrl"]
    aws("set-queue-attributes", queue_url=url, attributes="DelaySeconds=7")
    found = aws("get-queue-attributes", queue_url=url, attribute_names=["DelaySeconds", "QueueArn"])
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{unique}"
    assert found == {"Attributes": {"DelaySeconds": "7", "QueueArn": arn}}

    aws("tag-queue", queue_url=url, tags="stage=test")
    aws("untag-queue", queue_url=url, tag_keys="team")
    assert aws("list-queue-tags", queue_url=url) == {"Tags": {"stage": "test"}}

    refused = aws.fails(
        "add-permission",
        queue_url=url,
        label="readers",
        aws_account_ids="111111111111",
        actions="ReceiveMessage",
    )
    assert "goqueue acl create" in refused
    aws("purge-queue", queue_url=url)


def test_dead_letters_are_moved_back(aws: Aws, unique: str) -> None:
    dead = aws("create-queue", queue_name=f"{unique}-dead")["QueueUrl"]
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{unique}-dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    attributes = json.dumps({"RedrivePolicy": policy, "VisibilityTimeout": "0"})
    url = aws("create-queue", queue_name=unique, attributes=attributes)["QueueUrl"]
    assert aws("list-dead-letter-source-queues", queue_url=dead) == {"queueUrls": [url]}

    aws("send-message", queue_url=url, message_body="bad")
    aws("receive-message", queue_url=url, wait_time_seconds=20)
    assert aws("receive-message", queue_url=url) is None  # Its second receive buries it.
    name = "ApproximateNumberOfMessages"  # a move takes what is there when it begins

    def dead_count() -> str:
        found = aws("get-queue-attributes", queue_url=dead, attribute_names=[name])
        return str(found["Attributes"][name])

    eventually(lambda: dead_count() == "1", because="the message is a dead letter")
    handle = aws("start-message-move-task", source_arn=arn)["TaskHandle"]
    [message] = aws("receive-message", queue_url=url, wait_time_seconds=20)["Messages"]
    assert message["Body"] == "bad"
    [task] = aws("list-message-move-tasks", source_arn=arn)["Results"]
    assert task["Status"] in ("RUNNING", "COMPLETED")
    assert "An error occurred" in aws.fails("cancel-message-move-task", task_handle="nonsense")
    assert handle


def test_a_fifo_queue_is_used(aws: Aws, unique: str) -> None:
    attributes = "FifoQueue=true,ContentBasedDeduplication=true"
    url = aws("create-queue", queue_name=f"{unique}.fifo", attributes=attributes)["QueueUrl"]
    for body in ("1", "2", "1"):
        aws("send-message", queue_url=url, message_body=body, message_group_id="g")
    bodies: list[str] = []
    while len(bodies) < 2:  # One call brings at least one; the rest follows when that is deleted.
        answer = aws(
            "receive-message", queue_url=url, max_number_of_messages=10, wait_time_seconds=20
        )
        for message in answer["Messages"]:
            bodies.append(message["Body"])
            aws("delete-message", queue_url=url, receipt_handle=message["ReceiptHandle"])
    assert bodies == ["1", "2"]


def test_the_command_itself_works(sqs_endpoint: str, unique: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "awscli", "--endpoint-url", sqs_endpoint),
            *("sqs", "create-queue", "--queue-name", unique),
        ],
        env={**os.environ, **CREDENTIALS},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"QueueUrl": f"{sqs_endpoint}/{ACCOUNT}/{unique}"}
