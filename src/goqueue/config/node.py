"""The node itself: its identity, its data folder and what it reports about itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from goqueue.config.fields import choice, count, setting
from goqueue.config.kinds import INT32_MAX, Folder, Word

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The identity of this node and the location of its data."""

    id: int = count(
        1,
        "id of this broker, unique in its cluster",
        least=0,
        most=INT32_MAX,
        flag="--node-id",
    )
    cluster_id: str = setting(
        "", Word(64), "if empty, generated at the first start and stored with the data"
    )
    data_dir: Path = setting(
        Path("data"),
        Folder(),
        "where all data is stored; the default needs no root permissions",
        "--data-dir",
    )


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The log of the node itself."""

    level: LogLevel = choice(
        "info",
        get_args(LogLevel),
        "`info` logs starts, stops and problems, and nothing per request",
        "--log-level",
    )
    format: LogFormat = choice(
        "text", get_args(LogFormat), "`text` for people, `json` for log collectors"
    )
