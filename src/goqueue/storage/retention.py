"""Retention: which segments of a log have expired, by age or because the log is too large."""

from __future__ import annotations

from goqueue.storage.log import Log
from goqueue.storage.segment import Segment


def take_expired(log: Log, *, now_ms: int, until_offset: int) -> list[Segment]:
    """Take out the expired segments before `until_offset`; the caller removes their files."""
    settings, excess = log.settings, 0
    if settings.is_deleting and settings.retention_bytes >= 0:
        excess = log.size - settings.retention_bytes
    count = 0
    for segment in log.segments[:-1]:
        is_excess = excess >= segment.size > 0
        is_before_start = segment.end_offset <= log.start_offset
        is_expired = is_excess or is_before_start or _is_old(log, segment, now_ms)
        if segment.end_offset > until_offset or not is_expired:
            break
        excess -= segment.size
        count += 1
    return log.take_segments(count)


def is_active_expired(log: Log, now_ms: int) -> bool:
    """Return whether even the newest record has expired."""
    return log.active.size > 0 and _is_old(log, log.active, now_ms)


def is_roll_due(log: Log, now_ms: int) -> bool:
    """Return whether the newest segment is old enough to be closed even without a write."""
    settings, active = log.settings, log.active
    age_max = settings.segment_ms
    if settings.is_compacting:
        age_max = min(age_max, settings.compaction_lag_ms_max)
    return active.size > 0 and now_ms - active.created_ms >= age_max


def _is_old(log: Log, segment: Segment, now_ms: int) -> bool:
    settings = log.settings
    if not settings.is_deleting or settings.retention_ms < 0:
        return False
    newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
    return now_ms - newest_ms > settings.retention_ms
