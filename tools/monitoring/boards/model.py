"""Writes boards in the JSON model of Grafana 9 and newer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tools.monitoring.boards.board import OF_CLUSTER, Board, Panel, Query, Section, Variable

COLUMNS = 24
ROW_HEIGHT = 1
HEIGHTS = {"graph": 8, "number": 4, "table": 8}
SHAPES = {"graph": "timeseries", "number": "stat", "table": "table"}
SCHEMA_VERSION = 38
# Which data source is chosen at the head of the board, so that any folder can provision it.
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
REFRESH = "30s"


def model_text(board: Board) -> str:
    """The file of a board."""
    return json.dumps(model(board), indent=2, ensure_ascii=False) + "\n"


def model(board: Board) -> dict[str, Any]:
    return {
        "uid": f"goqueue-{board.name}",
        "title": board.title,
        "description": board.description,
        "tags": ["goqueue"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": REFRESH,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "links": [_links()],
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), *map(_variable, _variables(board))]},
        "panels": list(_panels(board.sections)),
    }


def _panels(sections: Sequence[Section]) -> Iterator[dict[str, Any]]:
    """The panels of all sections, from left to right in lines of 24 columns."""
    number, top = 0, 0
    for section in sections:
        number += 1
        yield _row(number, section.title, top)
        top += ROW_HEIGHT
        left, height = 0, 0
        for panel in section.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            number += 1
            yield _panel(number, panel, left=left, top=top)
            left, height = left + panel.width, max(height, HEIGHTS[panel.shape])
        top += height


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "panels": [],
        "gridPos": {"h": ROW_HEIGHT, "w": COLUMNS, "x": 0, "y": top},
    }


def _panel(number: int, panel: Panel, *, left: int, top: int) -> dict[str, Any]:
    height = HEIGHTS[panel.shape]
    return {
        "id": number,
        "type": SHAPES[panel.shape],
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"h": height, "w": panel.width, "x": left, "y": top},
        "targets": [
            _target(query, chr(ord("A") + index), panel)
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        **({"transformations": [_table()]} if panel.shape == "table" else {}),
    }


def _target(query: Query, letter: str, panel: Panel) -> dict[str, Any]:
    is_table = panel.shape == "table"
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "range": panel.shape == "graph",
        "instant": panel.shape != "graph",
        **({"format": "table"} if is_table else {}),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.shape == "number":
        found["noValue"] = "–"
        found["color"] = {"mode": "thresholds"}
        found["thresholds"] = {"mode": "absolute", "steps": _steps(panel.thresholds)}
    if panel.shape == "graph":
        found["custom"] = {
            "fillOpacity": 30 if panel.is_stacked else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none"},
        }
    return found


def _steps(thresholds: tuple[float, float] | None) -> list[dict[str, Any]]:
    if thresholds is None:
        return [{"color": "text", "value": None}]
    yellow, red = thresholds
    return [
        {"color": "green", "value": None},
        {"color": "yellow", "value": yellow},
        {"color": "red", "value": red},
    ]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.shape == "number":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    if panel.shape == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _table() -> dict[str, Any]:
    hidden = ("Time", "__name__", "job")
    return {"id": "organize", "options": {"excludeByName": dict.fromkeys(hidden, True)}}


def _variables(board: Board) -> list[Variable]:
    job = Variable(name="job", label="Cluster", series=["goqueue_build_info"], is_multiple=False)
    return [job, *board.variables]


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "current": {},
        "options": [],
        "regex": "",
    }


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({_selector(variable)}, {variable.name})"
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": variable.name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "hide": 0,
        "multi": variable.is_multiple,
        "includeAll": variable.is_multiple,
        "allValue": ".*" if variable.is_multiple else None,
        "current": {"text": ["All"], "value": ["$__all"]} if variable.is_multiple else {},
        "options": [],
        "regex": "",
    }


def _selector(variable: Variable) -> str:
    """The series that have the values; those of the chosen cluster, unless it is chosen here."""
    if variable.name == "job":
        return variable.series[0]
    return f'{{__name__=~"{"|".join(variable.series)}", {OF_CLUSTER}}}'


def _links() -> dict[str, Any]:
    """The other boards, with the same cluster and time."""
    return {
        "title": "GoQueue",
        "type": "dashboards",
        "tags": ["goqueue"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }
