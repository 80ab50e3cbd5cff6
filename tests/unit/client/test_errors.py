"""Every Kafka error code has a meaning here, and those of our model come back as themselves."""

from __future__ import annotations

import kafka.errors
import pytest

from goqueue.client.errors import (
    KAFKA_ERRORS,
    BrokerRefused,
    BrokerUnready,
    ErrorContext,
    check,
    error_of,
)
from goqueue.model import errors as model
from goqueue.wire.kafka.errors import CODES, ErrorCode

ABOUT = ErrorContext("orders", 3, "billing")
# Codes that stand for several of our errors: the client can only choose one of them.
AMBIGUOUS = {
    model.MalformedRequest,
    model.RequestTooLarge,
    model.UnknownPartition,
    model.InternalTopic,
    model.InvalidSettings,
    model.StorageFull,
    model.UnpacksTooLarge,
    model.LimitReached,
    model.AccessDenied,  # its code depends on what was refused; a client shows the broker's text
    # What may be missing or exist has one code each, whatever it is.
    model.UnknownUser,
    model.UnknownKey,
    model.UnknownRole,
    model.UserExists,
    model.KeyExists,
    model.QuotaExceeded,  # how long to wait is another field of the response
    model.AuthenticationRequired,
    model.UnknownCredential,
    # Policies: a client shows the broker's text.
    model.TenantSuspended,
    model.QuotaReached,
    model.StorageQuotaReached,
    # Errors of other front ends, which Kafka has no codes for.
    model.NoOwner,
    model.UpgradeInProgress,
    model.InvalidTenantName,
    model.UnknownTenant,
    model.TenantExists,
    model.TenantInUse,
    model.InvalidQuota,
    model.UnknownMessage,
    model.DeadLettering,
    model.TopicDeletionDisabled,
    model.NotCompacted,
    model.InvalidAttribute,
    model.GroupKindMismatch,
    model.InvalidGroupSettings,
    model.InvalidSchema,
    model.SchemaRefused,
    model.SchemaMismatch,
    model.QueueExists,
    model.UnknownQueue,
    model.QueueDeletedRecently,
    model.PurgeInProgress,
    model.DeduplicationFull,
    model.LeaseTooLong,
    model.InvalidReceipt,
    model.StaleReceipt,
    model.CorruptDeliveryState,
    model.CorruptJourney,
    model.UnknownSchedule,
    model.ScheduleReleased,
    model.UnknownRedrive,
    model.UnknownReport,
    model.RedriveActive,
    model.RedriveEnded,
    model.InvalidAcl,
    model.InvalidRole,
    model.InFlightQuotaReached,
    # Between the nodes of a cluster; a client that meets one shows the broker's text.
    model.NotController,
    model.UnknownNode,
    model.NodeConflict,
    model.StaleIncarnation,
    model.NodeInUse,
    model.QuorumAtRisk,
    model.ForeignCluster,
    model.StalePartitionVersion,
    model.IneligibleReplica,
    model.NoReassignment,
    model.ElectionNotNeeded,
    model.PreferredLeaderNotAvailable,
    model.NoEligibleLeader,
}


# These pass, and only the broker's text says so: their codes are those of errors that do not.
PASSING_BY_TEXT = {model.TooManyFailures, model.InFlightQuotaReached}
# No request of the Kafka protocol is answered with them.
NOT_OVER_KAFKA = {model.MetricsDisabled}


def test_the_table_has_every_code_up_to_the_last() -> None:
    assert set(KAFKA_ERRORS) == {-1, *range(1, 134)}


def test_names_and_numbers_agree_with_another_library() -> None:
    theirs = {
        error.errno: error
        for error in vars(kafka.errors).values()
        if isinstance(error, type)
        and issubclass(error, kafka.errors.BrokerResponseError)
        and isinstance(error.errno, int)
        and error.errno > 0
    }
    assert len(theirs) > 80
    assert theirs.keys() <= KAFKA_ERRORS.keys()


def test_the_broker_and_the_client_number_errors_alike() -> None:
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            assert KAFKA_ERRORS[code].name.startswith(code.name)


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_an_error_of_the_model_survives_the_wire(kind: type[model.GoQueueError]) -> None:
    row = KAFKA_ERRORS[CODES[kind]]
    if kind in PASSING_BY_TEXT or kind in NOT_OVER_KAFKA:
        assert not row.is_retryable
    elif kind in AMBIGUOUS:
        assert row.is_retryable == kind.retryable
    else:
        assert row.kind is kind


@pytest.mark.parametrize("row", KAFKA_ERRORS.values(), ids=lambda row: row.name)
def test_every_code_makes_an_error_with_a_sentence(row: object) -> None:
    number = next(number for number, each in KAFKA_ERRORS.items() if each is row)
    error = error_of(number, None, ABOUT)
    assert isinstance(error, model.GoQueueError)
    assert str(error).endswith(".")
    assert error.retryable == KAFKA_ERRORS[number].is_retryable


def test_the_brokers_own_words_come_first() -> None:
    assert str(error_of(44, "No topics on Sundays.")) == "No topics on Sundays."
    assert str(error_of(44)) == "The broker answered policy violation."


def test_a_code_of_the_future_is_refused_by_number() -> None:
    error = error_of(999)
    assert isinstance(error, BrokerRefused)
    assert "999" in str(error)


def test_an_error_without_a_class_says_whether_it_passes() -> None:
    assert isinstance(error_of(5), BrokerUnready)
    assert isinstance(error_of(33), BrokerRefused)


@pytest.mark.parametrize("number", [29, 30, 31, 53])
def test_a_lacking_permission_has_a_remedy(number: int) -> None:
    error = error_of(number, "Not for you.", ABOUT)
    assert isinstance(error, model.AccessDenied)
    assert str(error).startswith("Not for you: ")
    assert "request it" in str(error)


def test_a_missing_partition_is_not_called_a_missing_topic() -> None:
    assert isinstance(error_of(3, None, ErrorContext("orders", 9)), model.UnknownPartition)
    assert isinstance(error_of(3, None, ErrorContext("orders")), model.UnknownTopic)


def test_a_topic_name_is_refused_for_its_letters_or_for_its_owner() -> None:
    assert isinstance(error_of(17, None, ErrorContext("a b")), model.InvalidTopicName)
    assert isinstance(error_of(17, None, ErrorContext("__consumer_offsets")), model.InternalTopic)


def test_no_error_raises_nothing() -> None:
    check(0)
    with pytest.raises(model.TopicExists, match="orders"):
        check(36, None, ABOUT)
