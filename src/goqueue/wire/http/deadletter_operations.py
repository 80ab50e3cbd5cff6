"""The routes of dead letters; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import ROUTED, Operation
from goqueue.wire.http.bodies import deadletters as bodies
from goqueue.wire.http.handlers import deadletters

_REDRIVES = "/v1/deadletters/{topic}/redrives"
_JOB = _REDRIVES + "/{redrive_id}"
_STORING = (errors.StorageFull, errors.StorageFailed, *ROUTED)
_CHANGING = (errors.UnknownRedrive, errors.RedriveEnded, *_STORING)

DEAD_LETTERS = (
    Operation(
        "listDeadLetters",
        "GET",
        "/v1/deadletters/{topic}",
        deadletters.list_all,
        "List the dead letters of a topic that were not redriven.",
        area="dead letters",
        request=bodies.ListDeadLetters,
        answer=bodies.DeadLetters,
        errors=(errors.UnknownTopic, errors.StorageFailed, *ROUTED),
    ),
    Operation(
        "summariseDeadLetters",
        "GET",
        "/v1/deadletters/{topic}/summary",
        deadletters.summary,
        "Count the dead letters of a topic by reason, by group and by key.",
        area="dead letters",
        request=bodies.SummariseDeadLetters,
        answer=bodies.DeadLetterSummary,
        errors=(errors.UnknownTopic, errors.StorageFailed, *ROUTED),
    ),
    Operation(
        "startRedrive",
        "POST",
        _REDRIVES,
        deadletters.start,
        "Start a redrive, which moves dead letters back to their source, or preview it.",
        area="dead letters",
        request=bodies.StartRedrive,
        answer=bodies.RedriveStarted,
        errors=(errors.UnknownTopic, errors.RedriveActive, *_STORING),
        example={"filter": {"reason": "deliveries_exhausted"}, "rate_per_s": 100},
    ),
    Operation(
        "listRedrives",
        "GET",
        _REDRIVES,
        deadletters.list_jobs,
        "List the redrives of a topic, newest first.",
        area="dead letters",
        answer=bodies.Redrives,
        errors=ROUTED,
    ),
    Operation(
        "showRedrive",
        "GET",
        _JOB,
        deadletters.show_job,
        "Show the progress of a redrive.",
        area="dead letters",
        answer=bodies.Redrive,
        errors=(errors.UnknownRedrive, *ROUTED),
    ),
    Operation(
        "pauseRedrive",
        "POST",
        _JOB + "/pause",
        deadletters.pause,
        "Pause a redrive.",
        area="dead letters",
        answer=bodies.Redrive,
        errors=_CHANGING,
    ),
    Operation(
        "resumeRedrive",
        "POST",
        _JOB + "/resume",
        deadletters.resume,
        "Resume a paused redrive.",
        area="dead letters",
        answer=bodies.Redrive,
        errors=_CHANGING,
    ),
    Operation(
        "cancelRedrive",
        "POST",
        _JOB + "/cancel",
        deadletters.cancel,
        "Cancel a redrive; messages not moved yet remain dead letters.",
        area="dead letters",
        answer=bodies.Redrive,
        errors=_CHANGING,
    ),
)
