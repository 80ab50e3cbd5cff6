"""The boards of Grafana: valid, readable, and about metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from goqueue.metrics.catalogue import CATALOGUE
from tests.unit.monitoring.queries import metrics_of, series_of, unknown_in
from tools.monitoring.boards import BOARDS, Board, model, model_text
from tools.monitoring.boards.model import COLUMNS

EVERY = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
# What Grafana itself calls so.
BUILT_IN = {"__rate_interval", "__all"}


def panels(board: Board) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = model(board)["panels"]
    return found


def queries(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for target in panel.get("targets", []):
            yield target["expr"]


@EVERY
def test_queries_name_series_and_labels_of_the_catalogue(board: Board) -> None:
    assert {query: unknown for query in queries(board) if (unknown := unknown_in(query))} == {}


@EVERY
def test_queries_are_of_one_cluster(board: Board) -> None:
    for query in queries(board):
        assert query.count('job="$job"') >= len(re.findall(r"(?:goqueue|process)_\w+{", query))
        assert 'job="$job"' in query


@EVERY
def test_panels_have_ids_and_titles_of_their_own(board: Board) -> None:
    ids = [panel["id"] for panel in panels(board)]
    assert len(ids) == len(set(ids))
    for section in board.sections:
        titles = [panel.title for panel in section.panels]
        assert len(titles) == len(set(titles)), section.title


@EVERY
def test_panels_do_not_overlap(board: Board) -> None:
    places = [panel["gridPos"] for panel in panels(board)]
    assert all(0 <= place["x"] <= COLUMNS - place["w"] for place in places)
    for one, other in combinations(places, 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below, (one, other)


@EVERY
def test_the_data_source_and_the_cluster_are_chosen_at_the_head(board: Board) -> None:
    found = model(board)
    assert "__inputs" not in found
    assert [one["name"] for one in found["templating"]["list"]][:2] == ["datasource", "job"]
    sources = {
        target["datasource"]["uid"]
        for panel in panels(board)
        for target in panel.get("targets", [])
    }
    assert sources == {"${datasource}"}


@EVERY
def test_variables_are_declared_and_used(board: Board) -> None:
    declared = {one["name"] for one in model(board)["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", model_text(board))) - BUILT_IN
    assert used == declared


@EVERY
def test_variables_are_labels_of_series_that_exist(board: Board) -> None:
    for variable in board.variables:
        for series in variable.series:
            assert not unknown_in(f"sum by ({variable.name}) ({series})")


@EVERY
def test_legends_name_labels_that_the_query_keeps(board: Board) -> None:
    for panel in panels(board):
        for target in panel.get("targets", []):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert label in target["expr"] or label == "instance", target


def test_boards_have_names_of_their_own() -> None:
    found = [model(board) for board in BOARDS]
    assert len({one["uid"] for one in found}) == len({one["title"] for one in found}) == len(BOARDS)
    assert all(json.loads(model_text(board)) == model(board) for board in BOARDS)


def test_every_metric_of_the_normal_scrape_is_on_a_board() -> None:
    """What nobody looks at need not be exported; these are told otherwise."""
    shown = {name for board in BOARDS for query in queries(board) for name in metrics_of(query)}
    shown |= {name for board in BOARDS for one in board.variables for name in one.series}
    elsewhere = {
        "goqueue_node_start_time_seconds",  # process_start_time_seconds says nearly the same
        "process_virtual_memory_bytes",
        "goqueue_client_report_bytes_total",
    }
    missing = {
        metric.name
        for metric in CATALOGUE.values()
        if not metric.detail and not shown & set(series_of(metric))
    }
    assert missing <= elsewhere
