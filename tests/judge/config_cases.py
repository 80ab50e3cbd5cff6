"""Which settings there are: every name that Kafka has is known here, or listed as absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goqueue.wire.kafka.messages import describe_configs
from tests.judge.asking import Ask
from tests.judge.cases import BROKER, DIFFERENCES, GROUP, TOPIC, case, create

_LIST = Path(__file__).with_name("absent_settings.txt")
# The settings of dead letters are Kafka's, but later than the release that is compared.
OWN = {
    "topic": {"errors.deadletterqueue.group.enable"},
    "group": {"errors.deadletterqueue.topic.name", "share.release.backoff"},
    "broker": {"goqueue.http.listener"},
}
_OWN_OF_TOPICS = ("goqueue.", "lane.", "message.ttl.", "schema.")


def absent() -> dict[str, set[str]]:
    """The settings that Kafka has and GoQueue has not, by kind."""
    found: dict[str, set[str]] = {}
    for line in _LIST.read_text().splitlines():
        if line.startswith("["):
            names = found.setdefault(line.strip("[]"), set())
        elif line and not line.startswith("#"):
            names.add(line)
    return found


def described(ask: Ask, kind: int, name: str) -> set[str]:
    resource = describe_configs.DescribeConfigsResource(kind, name, None)
    answer = ask("DescribeConfigs", describe_configs.DescribeConfigsRequest([resource]))
    return {one.name for one in answer.results[0].configs}


def every_name(ask: Ask, named: str) -> dict[str, set[str]]:
    create(ask, named)
    return {
        "group": described(ask, GROUP, named) - OWN["group"],
        "topic": {
            one
            for one in described(ask, TOPIC, named) - OWN["topic"]
            if not one.startswith(_OWN_OF_TOPICS)
        },
        "broker": described(ask, BROKER, "1") - OWN["broker"],
    }


@case
def names_of_settings(ask: Ask) -> Any:
    """All that are not listed as absent, so that a new one of Kafka is noticed."""
    lacking = absent()
    found = every_name(ask, "named")
    return {kind: sorted(names - lacking[kind]) for kind, names in found.items()}


@case
def settings_that_are_absent(ask: Ask) -> Any:
    lacking = absent()
    found = every_name(ask, "named-too")
    return {kind: sorted(names & lacking[kind]) for kind, names in found.items()}


DIFFERENCES["settings_that_are_absent"] = (
    "They are of what GoQueue does not have, or does in another way.",
    {"group": [], "topic": [], "broker": []},
)
