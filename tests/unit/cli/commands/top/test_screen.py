"""The screen: what keys do, and frames that fit into any terminal."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from goqueue.cli.commands.top.measured import Measured
from goqueue.cli.commands.top.screen import NAMES, Screen, Size, Status, Style
from goqueue.client.errors import Unreachable
from tests.unit.cli.commands.top.figures import ONE, TWO, measured
from tests.unit.cli.commands.top.test_views import BUSY

NORMAL = Size(80, 24)
STATUS = Status(2.0, "12:00:00")
GROUP = "goqueue_group_lag_seconds"


def lags(**groups: float) -> Measured:
    lines = [f'{GROUP}{{group="{name}",topic="t"}} {lag}' for name, lag in groups.items()]
    return measured({}, {ONE: "\n".join(lines)})


def shown(screen: Screen, figures: Measured, size: Size = NORMAL) -> list[str]:
    return [line.text for line in screen.frame(figures, STATUS, size)]


def names(screen: Screen, figures: Measured, size: Size = NORMAL) -> list[str]:
    """The first words of the rows."""
    return [line.split()[0] for line in shown(screen, figures, size)[3:-1] if line.strip()]


@pytest.mark.parametrize("view", NAMES)
@pytest.mark.parametrize("size", [NORMAL, Size(200, 50), Size(40, 10), Size(20, 5), Size(1, 1)])
def test_frames_fit_into_the_terminal(view: str, size: Size) -> None:
    wide = (
        'goqueue_queue_ready_messages{group="注文を処理するグループ",topic="' + "t" * 249 + '"} 1'
    )
    figures = measured({ONE: ""}, {ONE: BUSY + wide}, failures={TWO: Unreachable("x" * 300)})
    frame = Screen(view).frame(figures, Status(2.0, trouble="y" * 300), size)
    assert len(frame) == size.lines
    assert max(cell_len(line.text) for line in frame) <= size.columns


def test_all_figures_of_a_node_and_a_queue_are_seen_at_80_columns() -> None:
    figures = measured({ONE: ""}, {ONE: BUSY}, failures={TWO: Unreachable("down")})
    assert shown(Screen("queues"), figures)[2].split()[-1] == "DEAD/S"
    assert "FREE" in shown(Screen("nodes"), figures)[2]
    assert any("Longest lag" in line and "12 s" in line for line in shown(Screen(), figures))


def test_numbers_and_tab_choose_the_view() -> None:
    screen = Screen()
    for number, name in enumerate(NAMES, 1):
        assert screen.press(str(number))
        assert screen.view == name
    screen.press("tab")
    assert screen.view == NAMES[0]
    screen.press("shift-tab")
    assert screen.view == NAMES[-1]


@pytest.mark.parametrize("key", ["q", "Q", "ctrl-c", "ctrl-d"])
def test_these_keys_end_the_view(key: str) -> None:
    assert not Screen().press(key)


@pytest.mark.parametrize("key", ["x", "6", "0", "12", "up", "home", ">", "r", " "])
def test_other_keys_do_no_harm_in_any_view(key: str) -> None:
    for view in NAMES:
        screen = Screen(view)
        assert screen.press(key)
        assert screen.frame(None, STATUS, NORMAL)


def test_the_largest_lag_is_first_until_the_order_is_reversed() -> None:
    screen, figures = Screen("groups"), lags(a=5, b=50, c=0.5)
    assert names(screen, figures) == ["b", "a", "c"]
    screen.press("r")
    assert names(screen, figures) == ["c", "a", "b"]


def test_another_column_is_sorted_by_its_own_sense() -> None:
    screen, figures = Screen("groups"), lags(b=5, a=50, c=0.5)
    for _ in range(3):
        screen.press("<")
    assert screen.sortings["groups"].column == "group"
    assert names(screen, figures) == ["a", "b", "c"]
    assert "GROUP↑" in shown(screen, figures)[2]


def test_each_view_remembers_its_order() -> None:
    screen = Screen("groups")
    screen.press(">")
    screen.press("4")
    screen.press("3")
    assert screen.sortings["groups"].column == "committed"


def test_rows_scroll_and_stop_at_the_end() -> None:
    screen, size = Screen("groups"), Size(80, 9)
    figures = lags(**{f"g{number:02}": 100 - number for number in range(12)})
    assert names(screen, figures, size) == ["g00", "g01", "g02", "g03", "g04"]
    screen.press("down")
    assert names(screen, figures, size)[0] == "g01"
    screen.press("page-down")
    assert names(screen, figures, size) == ["g07", "g08", "g09", "g10", "g11"]
    screen.press("home")
    assert names(screen, figures, size)[0] == "g00"


def test_internal_topics_are_shown_when_they_are_wanted() -> None:
    sizes = (
        'goqueue_storage_log_bytes{topic="__delivery"} 9\ngoqueue_storage_log_bytes{topic="t"} 1'
    )
    screen, figures = Screen("topics"), measured({}, {ONE: sizes})
    assert names(screen, figures) == ["t"]
    screen.press("i")
    assert sorted(names(screen, figures)) == ["__delivery", "t"]


def test_names_of_clients_cannot_command_the_terminal() -> None:
    lag = f'{GROUP}{{group="a\x1b[2J\x07b",topic="t"}} 1'
    text = "".join(shown(Screen("groups"), measured({}, {ONE: lag})))
    assert "\x1b" not in text
    assert "a\ufffd[2J\ufffdb" in text


def test_trouble_is_told_and_the_last_figures_stay() -> None:
    status = Status(2.0, trouble="No metrics of 127.0.0.1:8080")
    frame = Screen("groups").frame(lags(a=5), status, NORMAL)
    assert (frame[2].text, frame[2].style) == ("No metrics of 127.0.0.1:8080", Style.BAD)
    assert frame[4].text.startswith("a")


def test_before_the_first_figures_the_screen_says_so() -> None:
    assert Screen().frame(None, STATUS, NORMAL)[2].text == "Waiting for the first figures …"
