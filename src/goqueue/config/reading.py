"""Reads the settings of a node from flags, the environment and a YAML file, and prints them.

All sources are read once, at start, and all problems are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goqueue.config.consistency import contradictions
from goqueue.config.export_kinds import standard_values
from goqueue.config.settings import SECTIONS, SETTINGS, VARIABLE_PREFIX, Settings
from goqueue.model.errors import InvalidSettings

FILE_VARIABLE = "GOQUEUE_CONFIG"


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Settings:
    """Read all sources and return the settings, or raise InvalidSettings with every problem.

    `file` defaults to the value of GOQUEUE_CONFIG in `environ`. The keys of `overrides` are flags
    as the user typed them (`--fsync`), or `section.name` for values given by `--set`.
    """
    reading = _Reading()
    environ = environ or {}
    if file is None and environ.get(FILE_VARIABLE):
        file = Path(environ[FILE_VARIABLE])
    layers = [
        reading.from_flags(overrides or {}),
        reading.from_environment(environ),
        reading.from_file(file) if file else {},
        reading.from_standard_variables(environ),
    ]
    settings = reading.settle(layers)
    if reading.problems:
        raise InvalidSettings(reading.problems)
    return settings


def render(settings: Settings) -> str:
    """The settings as a YAML file, with the source of each value in a comment."""
    lines: list[str] = []
    for section in SECTIONS:
        lines += ["", f"{section}:"] if lines else [f"{section}:"]
        for setting in SETTINGS.values():
            if setting.section == section:
                value = getattr(getattr(settings, section), setting.name)
                source = settings.sources.get(setting.path, "default")
                text = _yaml_scalar(setting.about.kind.show(value))
                lines.append(f"  {setting.name}: {text}  # {source}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Given:
    text: str
    source: str


_Layer = dict[str, _Given]


@dataclass(slots=True)
class _Reading:
    """Collects the values of all sources, and every problem with them."""

    problems: list[str] = field(default_factory=list)

    def from_flags(self, overrides: Mapping[str, str]) -> _Layer:
        by_flag = {setting.about.flag: setting.path for setting in SETTINGS.values()}
        layer: _Layer = {}
        for typed, text in overrides.items():
            is_set = not typed.startswith("--")
            source = f"flag --set {typed}" if is_set else f"flag {typed}"
            path = typed if is_set else by_flag.get(typed, typed)
            if path not in SETTINGS:
                self.problems.append(f"{path}: no such setting{_hint(path, SETTINGS)} ({source})")
            else:
                self._add(layer, path, _Given(text, source))
        return layer

    def from_environment(self, environ: Mapping[str, str]) -> _Layer:
        names = {name: path for path, row in SETTINGS.items() for name in row.variables}
        layer: _Layer = {}
        for name, text in environ.items():
            if not text:  # shells and compose files pass unset variables as empty ones
                continue
            if name in names:
                self._add(layer, names[name], _Given(text, f"environment {name}"))
            elif name.startswith(VARIABLE_PREFIX) and name != FILE_VARIABLE:
                # Report only names that resemble a setting. Other GOQUEUE_ variables may be
                # legitimate: Kubernetes sets GOQUEUE_PORT for a service named goqueue.
                hint = _hint(name, names, cutoff=0.85)
                if hint:
                    self.problems.append(f"{name}: no such setting{hint} (environment)")
        return layer

    def from_standard_variables(self, environ: Mapping[str, str]) -> _Layer:
        """Read variables that other programs read too; they give way to what names a setting."""
        return {
            path: _Given(text, f"environment {variable}")
            for path, (text, variable) in standard_values(environ).items()
        }

    def from_file(self, file: Path) -> _Layer:
        # Imported here, because only a node with a settings file needs it.
        import yaml

        try:
            root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
            self.problems.append(f"file {file}: cannot be read: {reason}")
            return {}
        layer: _Layer = {}
        for section, node, source in self._entries(root, file, "the file"):
            if section not in SECTIONS:
                hint = _hint(section, SECTIONS)
                self.problems.append(f"{section}: no such section{hint} ({source})")
                continue
            for name, value, source in self._entries(node, file, f"section {section}"):
                self._from_yaml(layer, f"{section}.{name}", value, source)
        return layer

    def settle(self, layers: Iterable[_Layer]) -> Settings:
        """Take each setting from the first layer that has it, and check their combination."""
        ranked = list(layers)
        values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
        sources = {}
        for path, setting in SETTINGS.items():
            given = next((layer[path] for layer in ranked if path in layer), None)
            if given is None:
                continue
            try:
                values[setting.section][setting.name] = setting.about.kind.read(given.text)
                sources[path] = given.source
            except ValueError as error:
                self.problems.append(f"{path}: {error} ({given.source})")
        sections: dict[str, Any] = {
            name: section(**values[name]) for name, section in SECTIONS.items()
        }
        settings = Settings(**sections, sources=sources)
        self.problems += contradictions(settings)
        return settings

    def _entries(self, node: Any, file: Path, what: str) -> Iterator[tuple[str, Any, str]]:
        """Yield key, value and location of each entry of a YAML mapping; report anything else."""
        if node is None or _is_null(node):
            return
        if node.id != "mapping":
            place = f"file {file} line {node.start_mark.line + 1}"
            self.problems.append(f"{what}: expected `name: value` lines ({place})")
            return
        seen = set()
        for key, value in node.value:
            place = f"file {file} line {key.start_mark.line + 1}"
            if key.id != "scalar":
                self.problems.append(f"{what}: a name must be a single word ({place})")
                continue
            if key.value in seen:
                self.problems.append(f"{key.value}: given twice in {what} ({place})")
            seen.add(key.value)
            yield key.value, value, place

    def _from_yaml(self, layer: _Layer, path: str, value: Any, source: str) -> None:
        if path not in SETTINGS:
            self.problems.append(f"{path}: no such setting{_hint(path, SETTINGS)} ({source})")
        elif value.id != "scalar":
            self.problems.append(f"{path}: expected a single value ({source})")
        else:
            layer[path] = _Given("" if _is_null(value) else value.value, source)

    def _add(self, layer: _Layer, path: str, given: _Given) -> None:
        other = layer.setdefault(path, given)
        if other.text != given.text:
            self.problems.append(
                f"{path}: {other.source} says {other.text!r}, {given.source} says {given.text!r}"
            )


def _is_null(node: Any) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _hint(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    # Imported here, because only a misspelt name needs it.
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _yaml_scalar(text: str) -> str:
    is_plain = text == "-1" or re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._/-]*", text)
    return text if is_plain else "'" + text.replace("'", "''") + "'"
