"""Every board, in the order of a tour."""

from __future__ import annotations

from tools.monitoring.boards import clients, cluster, groups, node, overview, tenants, topics
from tools.monitoring.boards.board import Board, Panel, Query, Section, Variable
from tools.monitoring.boards.model import model, model_text

BOARDS = (
    overview.BOARD,
    topics.BOARD,
    groups.BOARD,
    cluster.BOARD,
    tenants.BOARD,
    clients.BOARD,
    node.BOARD,
)

__all__ = ["BOARDS", "Board", "Panel", "Query", "Section", "Variable", "model", "model_text"]
