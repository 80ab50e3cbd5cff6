"""The protocol of Streams groups (KIP-1071), which is neither announced nor served."""

from __future__ import annotations

from typing import Any

from goqueue.wire.kafka.messages import api_versions, list_groups
from tests.judge.asking import Ask
from tests.judge.cases import DIFFERENCES, case, commit, create

STREAMS_KEYS = {88, 89}  # StreamsGroupHeartbeat and StreamsGroupDescribe


@case
def streams_groups_in_a_list(ask: Ask) -> Any:
    """There are none of this type."""
    create(ask, "streamed")
    commit(ask, "streamed-group", "streamed")
    found = []
    for types in (["streams"], ["Streams"], ["streams", "no.such.type"]):
        answer = ask("ListGroups", list_groups.ListGroupsRequest([], types))
        found.append([answer.error_code, len(answer.groups)])
    return found


@case
def requests_of_streams_groups(ask: Ask) -> Any:
    """Which of them are announced, and at which level the feature is."""
    request = api_versions.ApiVersionsRequest("judge", "1")
    answer = ask("ApiVersions", request, 4)
    keys = sorted(one.api_key for one in answer.api_keys if one.api_key in STREAMS_KEYS)
    levels = [one.max_version for one in answer.supported_features if one.name == "streams.version"]
    return [keys, levels]


DIFFERENCES["requests_of_streams_groups"] = (
    "Streams groups are not built; without these a client refuses group.protocol=streams itself.",
    [[], []],
)
