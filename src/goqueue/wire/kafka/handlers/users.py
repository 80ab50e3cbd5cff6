"""DescribeUserScramCredentials and AlterUserScramCredentials: passwords of users."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.users import SaltedPassword, ScramInfo
from goqueue.model.credentials import ScramMechanism
from goqueue.model.errors import GoQueueError
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from goqueue.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_MECHANISMS = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}
_NUMBERS = {mechanism: number for number, mechanism in _MECHANISMS.items()}
_Alteration = ScramCredentialDeletion | ScramCredentialUpsertion
_Problem = tuple[ErrorCode, str]


def describe_user_scram_credentials(
    front: FrontEnd, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe some users, or all that have a password."""
    names = [one.name for one in request.users or ()]
    try:
        found = front.gate.users.scram_verifiers(call.session, users=tuple(names) or None)
    except GoQueueError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=code_of(error), error_message=str(error)
        )
    counts = Counter(names)
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[_described(name, found.get(name), counts[name]) for name in counts or found],
    )


def _described(
    name: str, found: tuple[ScramInfo, ...] | None, count: int
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            name, ErrorCode.DUPLICATE_RESOURCE, f"The request names user {name!r} twice."
        )
    if found is None:
        return DescribeUserScramCredentialsResult(
            name, ErrorCode.RESOURCE_NOT_FOUND, f"There is no user {name!r} with a password."
        )
    infos = [CredentialInfo(_NUMBERS[one.mechanism], one.iterations) for one in found]
    return DescribeUserScramCredentialsResult(name, error_message=None, credential_infos=infos)


async def alter_user_scram_credentials(
    front: FrontEnd, call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change users one by one; all changes of a user are made, or none."""
    by_user: dict[str, list[_Alteration]] = {}
    alterations: list[_Alteration] = [*request.deletions, *request.upsertions]
    for one in alterations:
        by_user.setdefault(one.name, []).append(one)
    results = []
    for name, changes in by_user.items():
        problem = _problem(name, changes) or await _alter(front, call, name, changes)
        code, text = problem or (ErrorCode.NONE, None)
        results.append(AlterUserScramCredentialsResult(name, code, text))
    return AlterUserScramCredentialsResponse(results=results)


def _problem(name: str, changes: list[_Alteration]) -> _Problem | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The user name is empty."
    if any(one.mechanism not in _MECHANISMS for one in changes):
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "The SCRAM mechanism is unknown."
    if len({one.mechanism for one in changes}) < len(changes):
        text = f"The request changes a credential of user {name!r} twice."
        return ErrorCode.DUPLICATE_RESOURCE, text
    return None


async def _alter(
    front: FrontEnd, call: Call, name: str, changes: list[_Alteration]
) -> _Problem | None:
    removed = tuple(
        _MECHANISMS[one.mechanism] for one in changes if isinstance(one, ScramCredentialDeletion)
    )
    changed = tuple(_salted(one) for one in changes if isinstance(one, ScramCredentialUpsertion))
    try:
        await front.gate.users.alter_scram_verifiers(
            call.session, user=name, changed=changed, removed=removed
        )
    except GoQueueError as error:
        return code_of(error), str(error)
    return None


def _salted(given: ScramCredentialUpsertion) -> SaltedPassword:
    return SaltedPassword(
        _MECHANISMS[given.mechanism],
        given.iterations,
        bytes(given.salt),
        bytes(given.salted_password),
    )
