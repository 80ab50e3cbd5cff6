"""Distributes work over Spark: one task per unit, progress while it runs, and clear errors."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# Called with the number of finished tasks and of all tasks.
OnProgress = Callable[[int, int], object]
_LOOK_S = 0.2


class PipelineFailed(GoQueueError):
    """A task failed on a worker; the text is its error."""

    code = "pipeline_failed"


def run_units(
    spark: SparkSession,
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    *,
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """Run the work of each unit in its own task, and return the results in order."""
    if not units:
        return []
    with plain_errors(), watched(spark, on_progress):
        tasks = spark.sparkContext.parallelize(units, len(units))
        return tasks.map(work).collect()


@contextmanager
def watched(spark: SparkSession, on_progress: OnProgress | None) -> Iterator[None]:
    """Report the progress of the jobs started inside, from another thread."""
    if on_progress is None:
        yield
        return
    is_over = threading.Event()
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getActiveJobsIds())

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            done = total = 0
            for job_id in set(tracker.getActiveJobsIds()) - before:
                job = tracker.getJobInfo(job_id)
                for stage_id in job.stageIds if job else ():
                    stage = tracker.getStageInfo(stage_id)
                    if stage is not None:
                        done += stage.numCompletedTasks
                        total += stage.numTasks
            if total:
                on_progress(done, total)

    thread = threading.Thread(target=watch, name="goqueue-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Return what a worker raised, without the traces that Spark wraps it in."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise PipelineFailed(cause_of(str(error))) from error


def cause_of(text: str) -> str:
    """Find our own error in a Spark report, otherwise another Python error or the first line."""
    found = re.findall(r"^(?:[\w.]*\.)?(\w+): (.+)$", text, flags=re.MULTILINE)
    ours = [
        (name, message)
        for name, message in found
        if not name.endswith(("SparkException", "Py4JJavaError", "PythonException"))
        and name != "Caused"
        and not message.startswith("Traceback")
    ]
    # The last one is what was raised; those before it are its causes.
    for name, message in reversed(ours):
        if _is_goqueue_error(name):
            return str(message).strip()
    if ours:
        name, message = ours[0]
        return f"A task failed with {name}: {message.strip()}"
    return (
        f"Spark failed: {text.strip().splitlines()[0] if text.strip() else 'it does not say why'}"
    )


def _is_goqueue_error(name: str) -> bool:
    return any(kind.__name__ == name for kind in GoQueueError.kinds())
