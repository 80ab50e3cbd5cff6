"""The schema registry: settings, modes, contexts, and what the server says of itself."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from msgspec import UnsetType

from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.schemas.names import Subject
from goqueue.schemas.scopes import Config, read_level, read_mode

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.bodies.registry import ConfigBody
    from goqueue.wire.http.front_end import FrontEnd
    from goqueue.wire.http.registry_dialect import Given

CONTEXTS_LISTED_MAX = 20_000

Tree = dict[str, Any]

_ELSEWHERE = (
    "aliasForDeks",
    "compatibilityPolicy",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
)
# The fields of a body and of `Additions`.
_ADDITIONS = {
    "defaultMetadata": "default_metadata",
    "overrideMetadata": "override_metadata",
    "defaultRuleSet": "default_rule_set",
    "overrideRuleSet": "override_rule_set",
}


async def show_config(front: FrontEnd, call: Call, given: Given) -> Tree:
    subject, in_scope = _subject(call, given), given.flag("defaultToGlobal")
    config = await front.broker.schemas.look(
        lambda one: one.scopes.config(subject) if in_scope else one.scopes.own_config(subject)
    )
    if config is None:
        raise SchemaRefused(
            SchemaRefusal.NO_CONFIG,
            f"Subject '{subject}' does not have subject-level compatibility configured",
        )
    return _shown(config, "compatibilityLevel")


async def set_config(front: FrontEnd, call: Call, given: Given) -> Tree:
    body: ConfigBody = given.body
    for name in _ELSEWHERE:
        if getattr(body, name) not in (None, False):
            raise SchemaRefused(
                SchemaRefusal.NOT_PERMITTED, f"This registry has no setting {name}; leave it out."
            )
    level = body.compatibility
    wanted = read_level(level) if isinstance(level, str) else level

    def update(config: Config) -> Config:
        if not isinstance(wanted, UnsetType):
            config = replace(config, level=wanted)
        if not isinstance(body.normalize, UnsetType):
            config = replace(config, normalize=body.normalize)
        if not isinstance(body.compatibilityGroup, UnsetType):
            config = replace(config, group=body.compatibilityGroup)
        if not isinstance(body.alias, UnsetType):
            config = replace(config, alias=body.alias or None)
        given = {ours: getattr(body, theirs) for theirs, ours in _ADDITIONS.items()}
        added = {name: value for name, value in given.items() if not isinstance(value, UnsetType)}
        return replace(config, additions=replace(config.additions, **added)) if added else config

    config = await front.broker.schemas.set_config(_subject(call, given), update)
    return _shown(config, "compatibility")


async def delete_config(front: FrontEnd, call: Call, given: Given) -> Tree:
    config = await front.broker.schemas.delete_config(_subject(call, given))
    return _shown(config, "compatibilityLevel")


async def show_mode(front: FrontEnd, call: Call, given: Given) -> Tree:
    subject, in_scope = _subject(call, given), given.flag("defaultToGlobal")
    mode = await front.broker.schemas.look(
        lambda one: one.scopes.mode(subject) if in_scope else one.scopes.own_mode(subject)
    )
    if mode is None:
        raise SchemaRefused(
            SchemaRefusal.NO_MODE,
            f"Subject '{subject}' does not have subject-level mode configured",
        )
    return {"mode": mode}


async def set_mode(front: FrontEnd, call: Call, given: Given) -> Tree:
    mode = read_mode(given.body.mode)
    subject = _subject(call, given)
    return {"mode": await front.broker.schemas.set_mode(subject, mode, force=given.flag("force"))}


async def delete_mode(front: FrontEnd, call: Call, given: Given) -> Tree:
    subject, recursive = _subject(call, given), given.flag("recursive")
    mode = await front.broker.schemas.delete_mode(subject, recursive=recursive)
    return {} if mode is None else {"mode": mode}


async def list_contexts(front: FrontEnd, call: Call, given: Given) -> list[str]:
    prefix = given.text("contextPrefix")
    found = await front.broker.schemas.look(lambda registry: registry.catalog.contexts())
    return given.page([one for one in found if one.startswith(prefix)], most=CONTEXTS_LISTED_MAX)


def show_root(front: FrontEnd, call: Call, given: Given) -> Tree:
    return {}


def show_cluster(front: FrontEnd, call: Call, given: Given) -> Tree:
    clusters = {"kafka-cluster": front.broker.cluster_id, "schema-registry-cluster": "goqueue"}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


def show_server_version(front: FrontEnd, call: Call, given: Given) -> Tree:
    return {"version": f"GoQueue {version('goqueue')}", "commitId": ""}


def _subject(call: Call, given: Given) -> Subject:
    """The subject of the path; without one, the context or the registry as a whole."""
    return given.subject(call) if "subject" in call.parameters else Subject(given.context, "")


def _shown(config: Config, level_name: str) -> Tree:
    tree: Tree = {}
    if config.level is not None:
        tree[level_name] = config.level
    if config.normalize is not None:
        tree["normalize"] = config.normalize
    if config.group is not None:
        tree["compatibilityGroup"] = config.group
    if config.alias is not None:
        tree["alias"] = config.alias
    additions = {theirs: getattr(config.additions, ours) for theirs, ours in _ADDITIONS.items()}
    return tree | {name: value for name, value in additions.items() if value is not None}
