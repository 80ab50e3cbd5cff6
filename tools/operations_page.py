"""Writes the page of all operations, docs/operations.md, from the table of the gate."""

from __future__ import annotations

import inspect
import sys

from goqueue.broker.gate import Gate
from goqueue.broker.gate.operation import OPERATIONS, Operation, words_of

assert Gate is not None, "importing it fills the table"

INTRODUCTION = """\
# Operations

Written by `make docs-operations` from `src/goqueue/broker/gate/areas`; change it there.

Everything that a front end can ask of a broker, whatever its protocol
([ADR 47](adr/0047-one-gate.md)). *Action* and *resources* are what a client must be allowed, in the
words of Kafka's access control lists; a resource with an action of its own has that before it.
*Named by owner* stands for what only the method itself can name: it checks that, or leaves out of a
list what a client may not see. *Everybody* may know the rest. *Answered by* is the node that must
answer in a cluster; others pass the call on to it.
"""


def page() -> str:
    """The whole page."""
    areas: dict[str, list[Operation]] = {}
    for operation in OPERATIONS.values():
        areas.setdefault(operation.name.partition(".")[0], []).append(operation)
    return INTRODUCTION + "".join(_section(name, areas[name]) for name in sorted(areas))


def _section(area: str, operations: list[Operation]) -> str:
    head = [
        "| operation | what it does | action | resources | answered by |",
        "|---|---|---|---|---|",
    ]
    table = "\n".join([*head, *(_row(one) for one in operations)])
    return f"\n## {area}\n\n{table}\n"


def _row(operation: Operation) -> str:
    name = operation.name.partition(".")[2]
    does = (inspect.getdoc(operation.perform) or "").partition("\n\n")[0].replace("\n", " ")
    cells = (
        f"`{name}`",
        does.replace("|", "\\|"),
        operation.action,
        words_of(operation.resources),
        _answered_by(operation),
    )
    return f"| {' | '.join(cells)} |"


def _answered_by(operation: Operation) -> str:
    if operation.owner is not None:
        return words_of(operation.owner)
    if operation.merge is not None:
        return "all nodes together"
    return "any node, at once" if operation.is_immediate else "any node"


if __name__ == "__main__":
    sys.stdout.write(page())
