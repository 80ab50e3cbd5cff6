"""The routes of journeys; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import READING, ROUTED, Operation
from goqueue.wire.http.bodies import journeys as bodies
from goqueue.wire.http.handlers import journeys

_ERRORS = (
    errors.UnknownTopic,
    errors.UnknownPartition,
    errors.InvalidRequest,
    errors.NotLeader,
    *ROUTED,
    *READING,
)

JOURNEYS = (
    Operation(
        "getJourney",
        "GET",
        "/v1/journeys/{message_id}",
        journeys.get,
        "What happened to a message, and to those it came from and became, in order.",
        area="journeys",
        request=bodies.GetJourney,
        answer=bodies.Journey,
        errors=(errors.UnknownMessage, errors.UnknownSchedule, *_ERRORS),
        is_waiting=True,
    ),
    Operation(
        "listJourneys",
        "GET",
        "/v1/journeys",
        journeys.list_all,
        "Find journeys by topic, group, outcome, time, key or trace id; the oldest first. Messages "
        "that are still scheduled are not among them; `/v1/schedules` lists these.",
        area="journeys",
        request=bodies.ListJourneys,
        answer=bodies.Journeys,
        errors=(errors.UnknownMessage, errors.OffsetOutOfRange, *_ERRORS),
        is_waiting=True,
    ),
    Operation(
        "countJourneys",
        "GET",
        "/v1/journeys/stats",
        journeys.stats,
        "Count the messages of a topic by what happened to them.",
        area="journeys",
        request=bodies.JourneyStatistics,
        answer=bodies.JourneyStats,
        errors=_ERRORS,
        is_waiting=True,
    ),
    Operation(
        "readJourneyEvents",
        "GET",
        "/v1/journeys/events",
        journeys.events,
        "Read what happens to messages as it is recorded.",
        area="journeys",
        request=bodies.ReadEvents,
        answer=bodies.JourneyEvents,
        errors=_ERRORS,
        is_waiting=True,
    ),
    Operation(
        "followJourneyEvents",
        "GET",
        "/v1/journeys/follow",
        journeys.follow,
        "Follow what happens to messages, as server-sent events.",
        area="journeys",
        request=bodies.FollowEvents,
        answer=bodies.JourneyEvent,
        errors=_ERRORS,
        is_stream=True,
    ),
)
