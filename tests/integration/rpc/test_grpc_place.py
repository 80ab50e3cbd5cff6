"""Where the server of the gRPC library listens: a folder that is closed to other users."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from goqueue.runtime.grpc_bridge import Place

PATH_BYTES_MAX = 107  # of the address of a socket


def reach(place: Place) -> None:
    """Listen there, as the library does, and connect."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
    ):
        server.bind(place.address)
        server.listen()
        client.connect(place.address)


def test_the_path_of_the_data_directory_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * PATH_BYTES_MAX)
    folder.mkdir()
    place = Place(folder)
    reach(place)
    [made] = folder.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    place.leave()
    assert list(folder.iterdir()) == []


def test_what_a_killed_node_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    reach(Place(tmp_path))
    again = Place(tmp_path)
    reach(again)
    again.leave()


def test_without_room_in_the_data_directory_it_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, temporary = tmp_path / "full", tmp_path / "tmp"
    full.write_text("a folder in which nothing can be made")
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    place = Place(full)
    reach(place)
    [made] = temporary.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    place.leave()
    assert list(temporary.iterdir()) == []
