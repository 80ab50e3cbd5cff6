"""The schema registry: settings, modes, contexts, and information about the server."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from goqueue.broker.gate.areas.schemas import Config, ConfigChange, Subject, read_level, read_mode
from goqueue.model.errors import SchemaRefusal, SchemaRefused

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
# The fields of a body and of a change.
_ADDITIONS = {
    "defaultMetadata": "default_metadata",
    "overrideMetadata": "override_metadata",
    "defaultRuleSet": "default_rule_set",
    "overrideRuleSet": "override_rule_set",
}


async def show_config(front: FrontEnd, call: Call, given: Given) -> Tree:
    config = await front.gate.schemas.show_config(
        call.session,
        subject=_subject(call, given),
        with_inherited=given.flag("defaultToGlobal"),
    )
    return _shown(config, "compatibilityLevel")


async def set_config(front: FrontEnd, call: Call, given: Given) -> Tree:
    body: ConfigBody = given.body
    for name in _ELSEWHERE:
        if getattr(body, name) not in (None, False):
            raise SchemaRefused(
                SchemaRefusal.NOT_PERMITTED, f"This registry has no setting {name}; remove it."
            )
    level, alias = body.compatibility, body.alias
    change = ConfigChange(
        level=read_level(level) if isinstance(level, str) else level,
        normalize=body.normalize,
        group=body.compatibilityGroup,
        alias=None if alias == "" else alias,
        **{ours: getattr(body, theirs) for theirs, ours in _ADDITIONS.items()},
    )
    config = await front.gate.schemas.set_config(
        call.session, subject=_subject(call, given), change=change
    )
    return _shown(config, "compatibility")


async def delete_config(front: FrontEnd, call: Call, given: Given) -> Tree:
    config = await front.gate.schemas.delete_config(call.session, subject=_subject(call, given))
    return _shown(config, "compatibilityLevel")


async def show_mode(front: FrontEnd, call: Call, given: Given) -> Tree:
    mode = await front.gate.schemas.show_mode(
        call.session,
        subject=_subject(call, given),
        with_inherited=given.flag("defaultToGlobal"),
    )
    return {"mode": mode}


async def set_mode(front: FrontEnd, call: Call, given: Given) -> Tree:
    mode = await front.gate.schemas.set_mode(
        call.session,
        subject=_subject(call, given),
        mode=read_mode(given.body.mode),
        force=given.flag("force"),
    )
    return {"mode": mode}


async def delete_mode(front: FrontEnd, call: Call, given: Given) -> Tree:
    mode = await front.gate.schemas.delete_mode(
        call.session, subject=_subject(call, given), recursive=given.flag("recursive")
    )
    return {} if mode is None else {"mode": mode}


async def list_contexts(front: FrontEnd, call: Call, given: Given) -> list[str]:
    offset, limit = given.stretch(most=CONTEXTS_LISTED_MAX)
    found = await front.gate.schemas.list_contexts(
        call.session, prefix=given.text("contextPrefix"), offset=offset, limit=limit
    )
    return list(found)


def show_root(front: FrontEnd, call: Call, given: Given) -> Tree:
    return {}


def show_cluster(front: FrontEnd, call: Call, given: Given) -> Tree:
    cluster_id = front.gate.node.identity(call.session).cluster_id
    clusters = {"kafka-cluster": cluster_id, "schema-registry-cluster": "goqueue"}
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
