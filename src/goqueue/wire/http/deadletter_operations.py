"""The routes of dead letters; a part of the one table in `operations`."""

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
        "List the dead letters of a topic that were not brought back.",
        area="dead letters",
        request=bodies.ListDeadLetters,
        answer=bodies.DeadLetters,
        errors=(errors.UnknownTopic, errors.StorageFailed, *ROUTED),
    ),
    Operation(
        "startRedrive",
        "POST",
        _REDRIVES,
        deadletters.start,
        "Bring dead letters back to where they came from, or show what would be.",
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
        "Show how far a redrive is.",
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
        "Let a paused redrive go on.",
        area="dead letters",
        answer=bodies.Redrive,
        errors=_CHANGING,
    ),
    Operation(
        "cancelRedrive",
        "POST",
        _JOB + "/cancel",
        deadletters.cancel,
        "End a redrive; what it has not brought back stays dead.",
        area="dead letters",
        answer=bodies.Redrive,
        errors=_CHANGING,
    ),
)
