"""What a worker said is what the user reads."""

from __future__ import annotations

from goqueue.spark.losses import DataLost as DataLost  # Only errors that are loaded are known.
from goqueue.spark.pipelines.jobs import cause_of

REPORT = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
"""


def test_an_error_of_ours_is_told_in_its_own_words() -> None:
    text = REPORT.format(error="goqueue.model.errors.UnknownTopic: Topic 'a' does not exist.")
    assert cause_of(text) == "Topic 'a' does not exist."


def test_of_a_chain_the_error_that_was_raised_is_told() -> None:
    chain = (
        "goqueue.model.errors.OffsetOutOfRange: Offset -1 is not available.\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "goqueue.spark.losses.DataLost: Offsets 0 to 9 have been removed."
    )
    assert cause_of(REPORT.format(error=chain)) == "Offsets 0 to 9 have been removed."


def test_another_error_is_named() -> None:
    assert cause_of(REPORT.format(error="OSError: [Errno 28] No space left on device")) == (
        "A task failed with OSError: [Errno 28] No space left on device"
    )


def test_a_report_without_a_cause_is_its_first_line() -> None:
    assert cause_of("Master is gone\nat x") == "Spark failed: Master is gone"
    assert cause_of("") == "Spark failed: it does not say why"
