from __future__ import annotations

import random

import pytest

from tgi_deploy.diagnosis.window import LOST, LogWindow


def text(*lines):
    return "".join(f"{line}\n" for line in lines)


def seen(*windows):
    follower = LogWindow()
    return [line for window in windows for line in follower.advance(window)]


@pytest.mark.parametrize(
    ("windows", "lines"),
    [
        ([], []),
        (["", "", text("a")], ["a"]),
        ([text("a", "b"), text("a", "b")], ["a", "b"]),
        ([text("a", "b"), text("a", "b", "c")], ["a", "b", "c"]),
        ([text("a", "b", "c"), text("b", "c", "d")], ["a", "b", "c", "d"]),
        ([text("a", "b", "c"), text("c", "d", "e")], ["a", "b", "c", "d", "e"]),
        ([text("a", "b", "longer c"), text("ger c"[-3:], "d"), text("d")], ["a", "b", "longer c", LOST, "r c", "d"]),
        ([text("a", "b"), text("x", "y")], ["a", "b", LOST, "x", "y"]),
        ([text("a", "a"), text("a", "a", "a")], ["a", "a", "a"]),
        ([text("a", ""), text("x", "", "y")], ["a", "", LOST, "x", "", "y"]),
        ([text("a") + "hal", text("a", "half", "b")], ["a", "half", "b"]),
        ([text("a"), "", text("a", "b")], ["a", "b"]),
    ],
)
def test_windows_are_split_into_lines(windows, lines):
    assert seen(*windows) == lines


def test_any_sliding_window_gives_every_line_once():
    dice = random.Random(7)  # noqa: S311 -- it shall be repeatable
    whole = [f"{dice.choice(['wait', 'load', 'done'])} {dice.randint(0, 3)}" for _ in range(600)]
    for run in range(20):
        dice.seed(run)
        follower, shown, at = LogWindow(), [], 0
        while at < len(whole):
            at = min(len(whole), at + dice.randint(0, 12))
            shown.extend(follower.advance(text(*whole[max(0, at - 80) : at])))
        assert shown == whole
