"""The routes of backups; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import READING, ROUTED, Operation
from goqueue.wire.http.backups import handlers
from goqueue.wire.http.bodies import backups as bodies

BACKUPS = (
    Operation(
        "takeBackupCut",
        "POST",
        "/v1/admin/backups/cuts",
        handlers.cut,
        "Take a consistent cut of the cluster, for a backup.",
        area="backups",
        request=bodies.TakeCut,
        answer=bodies.BackupCut,
        errors=(errors.UnknownTopic, errors.CoordinatorLoading, *ROUTED),
    ),
    Operation(
        "readBackupBatches",
        "GET",
        "/v1/admin/backups/logs/{topic_id}/{partition}",
        handlers.read,
        "Read batches of a partition as they are stored, up to a cut.",
        area="backups",
        request=bodies.ReadBatches,
        answer=bytes,
        media_types=(bodies.PIECE_TYPE,),
        errors=(
            errors.UnknownTopicId,
            errors.UnknownPartition,
            errors.OffsetOutOfRange,
            errors.CorruptBatch,
            *ROUTED,
            *READING,
        ),
    ),
)
