"""Deletes versions and subjects, and changes settings and modes: returns the entries for it.

A first deletion only marks: the id can still be read, and the version can come back. A second one
is permanent. Nothing is deleted while another schema refers to it.
"""

from __future__ import annotations

from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.schemas.catalog import Version
from goqueue.schemas.facts import (
    Change,
    ConfigFact,
    ModeFact,
    config_key,
    mode_key,
    state,
    version_key,
)
from goqueue.schemas.names import (
    CONTEXT_EVERYWHERE,
    Subject,
    check_subject,
    is_same_tenant,
    plain_context,
)
from goqueue.schemas.registry import (
    LATEST,
    Registry,
    check_metadata_size,
    not_permitted,
    unknown_subject,
    unknown_version,
)
from goqueue.schemas.scopes import Config, Mode


def delete_version(
    registry: Registry, subject: Subject, number: int, *, permanent: bool
) -> tuple[int, list[Change]]:
    """Mark a version as deleted, or delete a marked one; return the version and the entries."""
    versions = registry.catalog.versions(subject)
    if not versions:
        raise unknown_subject(subject)
    version = _chosen(registry, subject, number, permanent=permanent)
    if version is None:
        raise unknown_version(number)
    if not permanent and version.is_deleted:
        raise SchemaRefused(
            SchemaRefusal.VERSION_DELETED,
            f"Subject '{subject}' Version {version.number} was soft deleted.Set permanent=true to "
            "delete permanently",
        )
    _check_writable(registry, subject)
    _check_unreferenced(registry, version, permanent=permanent)
    if not permanent:
        return version.number, [state(version.to_fact(is_deleted=True))]
    if not version.is_deleted:
        raise SchemaRefused(
            SchemaRefusal.VERSION_NOT_DELETED,
            f"Subject '{subject}' Version {version.number} was not deleted first before being "
            "permanently deleted",
        )
    changes = [_gone(version)]
    if len(versions) == 1:
        changes += _settings_gone(registry, subject)
    return version.number, changes


def delete_subject(
    registry: Registry, subject: Subject, *, permanent: bool
) -> tuple[list[int], list[Change]]:
    """The same for all versions of a subject; return their numbers and the entries."""
    versions = registry.catalog.versions(subject)
    if not versions:
        raise unknown_subject(subject)
    _check_writable(registry, subject)
    live = [one for one in versions if not one.is_deleted]
    if permanent and live:
        raise SchemaRefused(
            SchemaRefusal.SUBJECT_NOT_DELETED,
            f"Subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and not live:
        raise SchemaRefused(
            SchemaRefusal.SUBJECT_DELETED,
            f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently",
        )
    chosen = versions if permanent else live
    for version in chosen:
        _check_unreferenced(registry, version, permanent=permanent, besides=subject)
    numbers = [one.number for one in chosen]
    if not permanent:
        return numbers, [state(one.to_fact(is_deleted=True)) for one in chosen]
    changes = [_gone(one) for one in reversed(chosen)]
    return numbers, changes + _settings_gone(registry, subject)


def set_config(registry: Registry, subject: Subject, config: Config) -> list[Change]:
    """Set the settings of a subject, a context or the registry."""
    check_subject(subject, is_for_settings=True)
    _check_writable(registry, subject)
    if not registry.scopes.has_config(subject):
        registry.scopes.check_room()
    additions = config.additions
    fact = ConfigFact(
        subject=str(subject),
        level=config.level,
        normalize=config.normalize,
        group=config.group,
        alias=config.alias,
        default_metadata=additions.default_metadata,
        override_metadata=additions.override_metadata,
        default_rule_set=additions.default_rule_set,
        override_rule_set=additions.override_rule_set,
    )
    check_metadata_size(fact.default_metadata, fact.override_metadata)
    check_metadata_size(fact.default_rule_set, fact.override_rule_set)
    return [state(fact)]


def delete_config(registry: Registry, subject: Subject) -> tuple[Config, list[Change]]:
    """Delete settings; return what they were, and the entries."""
    before = registry.scopes.own_config(subject)
    if before is None:
        raise unknown_subject(subject)
    _check_writable(registry, subject)
    known = registry.scopes.has_config(subject)
    return before, [Change(config_key(str(subject)), None)] if known else []


def set_mode(registry: Registry, subject: Subject, mode: Mode, *, force: bool) -> list[Change]:
    """Set the mode of a subject, a context or the registry."""
    check_subject(subject, is_for_settings=True)
    changes: list[Change] = []
    if mode is Mode.IMPORT and registry.scopes.mode(subject) is not Mode.IMPORT and not force:
        changes += _emptied(registry, subject)
    if not registry.scopes.has_mode(subject):
        registry.scopes.check_room()
    return [*changes, state(ModeFact(subject=str(subject), mode=mode))]


def delete_mode(
    registry: Registry, subject: Subject, *, recursive: bool
) -> tuple[Mode | None, list[Change]]:
    """Delete a mode, and with `recursive` those of a context's subjects."""
    before = registry.scopes.own_mode(subject)
    if before is None and not recursive:
        raise unknown_subject(subject)
    changes = [Change(mode_key(str(subject)), None)] if registry.scopes.has_mode(subject) else []
    if recursive and not subject.name:
        within = registry.scopes.modes_within(subject.context)
        changes += [Change(mode_key(name), None) for name in within]
    return before, changes


def _chosen(
    registry: Registry, subject: Subject, number: int, *, permanent: bool
) -> Version | None:
    if number != LATEST:
        return registry.catalog.version(subject, number)
    versions = registry.catalog.versions(subject)
    live = [one for one in versions if permanent or not one.is_deleted]
    return live[-1] if live else None


def _check_writable(registry: Registry, subject: Subject) -> None:
    if registry.scopes.mode(subject).is_read_only:
        raise not_permitted(f"Subject {subject} is in read-only mode.")


def _check_unreferenced(
    registry: Registry, version: Version, *, permanent: bool, besides: Subject | None = None
) -> None:
    found = registry.referrers(version, with_deleted=permanent)
    others = [one for one in found if one.subject != besides]
    if others:
        other = others[0]
        raise SchemaRefused(
            SchemaRefusal.REFERENCED,
            f"One or more references exist to the schema {version.subject} version "
            f"{version.number}, one of them from {other.subject} version {other.number}.",
        )


def _emptied(registry: Registry, subject: Subject) -> list[Change]:
    """Delete soft-deleted versions before an import; refuse if there are others."""
    changes = []
    for name in registry.catalog.subjects():
        if not _is_within(name, subject):
            continue
        if registry.has_subject(name, with_deleted=False):
            raise not_permitted(f"Cannot import since subject {name} exists; delete it, or force.")
        for version in registry.catalog.versions(name):
            _check_unreferenced(registry, version, permanent=True, besides=name)
            changes.append(_gone(version))
    return changes


def _is_within(name: Subject, scope: Subject) -> bool:
    if scope.name:
        return name == scope
    if plain_context(scope.context) == CONTEXT_EVERYWHERE:
        return is_same_tenant(name.context, scope.context)
    return name.context == scope.context


def _gone(version: Version) -> Change:
    return Change(version_key(str(version.subject), version.number), None)


def _settings_gone(registry: Registry, subject: Subject) -> list[Change]:
    changes = []
    if registry.scopes.has_mode(subject):
        changes.append(Change(mode_key(str(subject)), None))
    if registry.scopes.has_config(subject):
        changes.append(Change(config_key(str(subject)), None))
    return changes
