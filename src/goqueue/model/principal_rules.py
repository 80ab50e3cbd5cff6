"""Rules that turn the subject of a certificate into the name of a user, in Kafka's syntax.

A rule is `RULE:pattern/replacement/`, with `L` or `U` at its end for lower or upper case, or
`DEFAULT`, the whole subject. Rules are separated by commas, and the first that matches applies. In
a pattern and a replacement, `\\/` stands for a slash, and `$1` for the first group.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

RULES_MAX = 100
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


class PrincipalRule(NamedTuple):
    """How subjects that match a pattern are renamed. Without a pattern: not at all."""

    pattern: str = ""
    replacement: str = ""
    case: str = ""  # "L", "U", or as it is

    @property
    def is_default(self) -> bool:
        return not self.pattern

    def __str__(self) -> str:
        if self.is_default:
            return "DEFAULT"
        return f"RULE:{self.pattern}/{self.replacement}/{self.case}"

    def apply(self, subject: str) -> str | None:
        """Return the name for a subject; None if the rule does not match all of it."""
        if self.is_default:
            return subject
        match = _compiled(self.pattern).fullmatch(subject)
        if match is None:
            return None
        name = _REFERENCE.sub(lambda found: _expanded(found, match), self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def read_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Parse rules; raise ValueError if one is not valid."""
    rules: list[PrincipalRule] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 100]!r} is not a rule")
        if len(rules) >= RULES_MAX:
            raise ValueError(f"there are more than {RULES_MAX} rules")
        rules.append(_read(found))
        at = found.end()
    return tuple(rules)


def name_of(subject: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """Return the name that the first matching rule gives; None if none matches."""
    if not rules:
        return subject
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name
    return None


def _read(found: re.Match[str]) -> PrincipalRule:
    if found["default"]:
        return PrincipalRule()
    rule = PrincipalRule(found["pattern"], found["replacement"], found["case"])
    if not rule.pattern:
        raise ValueError("a rule has no pattern")
    _compiled(rule.pattern)
    return rule


@lru_cache(maxsize=RULES_MAX)
def _compiled(pattern: str) -> Any:
    # Imported here, because only certificates with rules need it. Subjects are chosen by clients,
    # so the time to match them must be linear.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.replace(r"\/", "/"), options)
    except re2.error as error:
        raise ValueError(f"the pattern {pattern[:100]!r} is not valid: {error}") from error


def _expanded(found: re.Match[str], match: Any) -> str:
    """The text of a group, or an escaped character; an unknown group stands for itself."""
    if found[1] is not None:
        return found[1]
    number = int(found[2])
    if number > match.re.groups:
        return found[0]
    return match.group(number) or ""
