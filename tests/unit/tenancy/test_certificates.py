"""Names of users from the subjects of certificates, by rules as Kafka has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.config.listener_kinds import RULES_MAX, PrincipalRules
from goqueue.tenancy.certificates import name_of

read_rules = PrincipalRules().read

SUBJECT = "CN=Duke,OU=Java Software,O=Oracle,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", SUBJECT),
        ("DEFAULT", SUBJECT),
        (r"RULE:^CN=(.*?),OU=.*$/$1/", "Duke"),
        (r"RULE:^CN=(.*?),OU=.*$/$1/L", "duke"),
        (r"RULE:^CN=(.*?),OU=.*$/$1/U", "DUKE"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/L,DEFAULT", "duke@java software"),
        (r"RULE:^CN=other,.*$/x/, RULE:^CN=(\w+),.*$/first-$1/ , DEFAULT", "first-Duke"),
        (r"RULE:CN=Duke/x/,DEFAULT", SUBJECT),  # Only a part matches.
        (r"RULE:^.*CN=(\w*).*$/$1$2/", "Duke$2"),
        (r"RULE:^.*$/a\/b\$1/", "a/b$1"),
    ],
)
def test_the_first_rule_that_matches_names_the_user(rules: str, name: str) -> None:
    assert name_of(SUBJECT, read_rules(rules)) == name


def test_without_a_matching_rule_there_is_no_name() -> None:
    assert name_of(SUBJECT, read_rules("RULE:^CN=nobody$/x/")) is None


def test_a_slash_is_escaped_in_a_pattern() -> None:
    rules = read_rules(r"RULE:^CN=spiffe:\/\/(.*)$/$1/")
    assert name_of("CN=spiffe://host", rules) == "host"


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "RULE:",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "RULE:(/b/",
        "RULE://x/",
        "RULE:(?=a)/b/",  # RE2 has no look-ahead.
        "DEFAULT DEFAULT",
        ",DEFAULT",
        ",".join(["DEFAULT"] * (RULES_MAX + 1)),
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern"):
        read_rules(text)


@given(st.text(alphabet="DEFAULTRULE:/\\,$1LU()*.a ", max_size=60))
def test_any_text_is_read_or_refused_and_what_is_read_can_be_shown(text: str) -> None:
    try:
        rules = read_rules(text)
    except ValueError:
        return
    assert read_rules(",".join(map(str, rules))) == rules
    name_of(SUBJECT, rules)
