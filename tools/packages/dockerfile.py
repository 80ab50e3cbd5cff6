"""Reads a Dockerfile: its stages, and what a container of one runs as."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Instruction:
    name: str
    text: str
    line: int

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def flags(self) -> list[str]:
        return [word for word in self.words if word.startswith("--")]

    @property
    def arguments(self) -> list[str]:
        return [word for word in self.words if not word.startswith("--")]

    def as_list(self) -> list[str]:
        """The exec form of a command; a shell form is an error."""
        start = self.text.index("[")
        found: list[str] = json.loads(self.text[start:])
        return found


@dataclass(slots=True)
class Stage:
    """One `FROM` with what follows it. The stage that it is based on comes first."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def last(self, name: str) -> Instruction:
        return [one for one in self.instructions if one.name == name][-1]

    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in self.instructions:
            if one.name == "ENV":
                found |= dict(word.split("=", 1) for word in one.words)
        return found


def stages(text: str) -> dict[str, Stage]:
    """Stages by name, the last without one under "", each with the instructions it inherits."""
    found: dict[str, Stage] = {}
    current: Stage | None = None
    for one in instructions(text):
        if one.name == "FROM":
            words = one.arguments
            name = words[2] if len(words) == 3 else ""
            inherited = found[words[0]].instructions if words[0] in found else []
            current = found[name] = Stage(words[0], name, [*inherited])
        elif current is not None:
            current.instructions.append(one)
    return found


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a file, with continued lines joined and comments left out."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first or number
        joined += line.rstrip("\\").strip() + " "
        if line.rstrip().endswith("\\"):
            continue
        name, _, rest = joined.strip().partition(" ")
        yield Instruction(name.upper(), rest.strip(), first)
        joined, first = "", 0


def complaints(text: str) -> list[str]:
    """What is against the rules for images, those of hadolint as far as they matter here."""
    return [
        f"line {one.line}: {complaint}"
        for one in instructions(text)
        for complaint in _complaints_about(one, text)
    ]


def _complaints_about(one: Instruction, text: str) -> Iterator[str]:
    if one.name == "ADD":
        yield "COPY instead of ADD"
    if one.name == "MAINTAINER":
        yield "a label instead of MAINTAINER"
    if one.name == "WORKDIR" and not one.text.startswith("/"):
        yield "WORKDIR must be an absolute path"
    if one.name in ("ENTRYPOINT", "CMD") and not one.text.startswith("["):
        yield f"{one.name} in exec form, or signals do not reach the program"
    if one.name == "FROM":
        yield from _about_base(one.arguments[0], text)
    if one.name == "RUN":
        yield from _about_run(one.text)


def _about_base(base: str, text: str) -> Iterator[str]:
    names = re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE | re.IGNORECASE)
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.MULTILINE))
    image = re.sub(r"\$\{(\w+)\}", lambda found: defaults.get(found[1], ""), base)
    if image not in names and (":" not in image or image.endswith(":latest")):
        yield f"the base {image} has no tag"


def _about_run(text: str) -> Iterator[str]:
    for command in re.split(r"&&|;|\|\|", text):
        words = shlex.split(command)
        if words[:1] == ["cd"]:
            yield "WORKDIR instead of cd"
        if words[:1] == ["sudo"]:
            yield "no sudo: USER says who runs it"
        if words[:2] == ["apt-get", "install"]:
            for option in ("--yes", "--no-install-recommends"):
                if option not in words:
                    yield f"apt-get install without {option}"
            if "rm -rf /var/lib/apt/lists/*" not in text:
                yield "apt-get leaves its lists behind"
        if words[:2] == ["apt-get", "upgrade"] or words[:1] == ["apt"]:
            yield f"{' '.join(words[:2])} is not for images"
        if len(words) > 1 and words[0].endswith("pip") and words[1] == "install":
            if "--no-cache-dir" not in words:
                yield "pip install without --no-cache-dir"
            if "-r" in words and "--require-hashes" not in words:
                yield "pip install from a file without --require-hashes"
