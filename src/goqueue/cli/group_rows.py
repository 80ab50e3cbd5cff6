"""The members of a group, as commands show them."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.cli.output import OutputForm, print_rows
from goqueue.client.groups import GroupDescription


def member_rows(found: GroupDescription) -> list[dict[str, object]]:
    return [
        {
            "member": each.id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": [str(partition) for partition in sorted(each.partitions)],
        }
        for each in found.members
    ]


def print_members(rows: Sequence[dict[str, object]]) -> None:
    """Print a table of members, with their partitions on one line."""
    print_rows([{**row, "partitions": joined(row["partitions"])} for row in rows], OutputForm.TABLE)


def joined(names: object) -> str:
    assert isinstance(names, list)
    return ", ".join(names) or "-"
