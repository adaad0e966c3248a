"""Progress of fits: a bar in a terminal or a notebook, plain lines in a file if asked for, else nothing."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from orbitgp.training.progress import Progress
from orbitgp.training.run import Engine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Halfway(Engine):
    def __init__(self, share: float) -> None:
        self.share = share

    def progress(self) -> float:
        return self.share


@pytest.fixture(autouse=True)
def drawn_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hundredth of a second, not twice a second."""
    wait = threading.Event.wait
    monkeypatch.setattr(threading.Event, "wait", lambda event, seconds=None: wait(event, seconds and seconds / 50))


RECORD = {"step": 20, "bound": 1234.5, "orbit": {"degrees": 17.2, "elements": 2.0}}


def test_shares_of_the_work() -> None:
    bar = Progress([30.0, 10.0])
    assert bar.fraction() == pytest.approx(0.0, abs=0.01)
    bar.begin(Halfway(0.5), "rotation")
    assert bar.fraction() == 15 / 40
    bar.end()
    assert bar.fraction() == pytest.approx(30 / 40, abs=0.01)
    bar.begin(Halfway(0.1))
    assert bar.fraction() == 31 / 40
    bar.begin(Halfway(0.0))  # more than were planned: as long as the longest
    assert bar.fraction() == 40 / 70


def test_workers_are_as_far_as_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a fit is done, nine tenths of it are the most."""
    bar, now = Progress([30.0, 10.0]), time.monotonic()
    for later, fraction in ((15.0, 15 / 40), (100.0, 27 / 40)):
        monkeypatch.setattr(time, "monotonic", lambda later=later: now + later)
        assert bar.fraction() == pytest.approx(fraction, abs=0.01)
    bar.end("rotation")
    monkeypatch.setattr(time, "monotonic", lambda: now + 104.0)
    assert bar.fraction() == pytest.approx(34 / 40, abs=0.01)
    bar.end("none")
    assert bar.fraction() == 1.0


def test_a_plain_line() -> None:
    bar = Progress([100.0], {"degrees": "°"})
    bar.bar.start_t = time.time() - 20
    bar.begin(Halfway(0.25), "rotation")
    assert str(bar) == "rotation: 25 %, 00:20, about 01:00 left, choosing a start"
    bar.record(RECORD)
    assert str(bar) == "rotation: 25 %, 00:20, about 01:00 left, bound 1,234, degrees ±17°"
    bar.begin(Halfway(0.0), "none")
    bar.seconds = [1.0, 1000.0]
    assert str(bar) == "none: 0 %, 00:20, 1 of 2 models done, choosing a start"


@pytest.mark.parametrize(("lines", "show", "said"), [(True, True, True), (False, True, False), (True, False, False)])
def test_outside_of_a_terminal(lines: bool, show: bool, said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress([1.0], lines=lines, show=show, every=0.0) as bar:
        bar.begin(Halfway(0.5), "rotation")
        time.sleep(0.1)
    err = capsys.readouterr().err
    assert (re.match("rotation: 50 %, 00:0., about 00:0. left, choosing a start\n", err) is not None) == said
    assert said or err == ""


def test_one_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with Progress([1.0, 1.0]) as bar:
        two_fits(bar)
    text = shown.getvalue()
    assert "\n" not in text
    assert re.search(r"\rrotation: 25 %\|\S+ +\| 00:0., about 00:0. left, 0 of 2 models done, bound 1,234", text)
    assert re.search(r"\rnone: 75 %\|", text)


def test_one_line_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown once and then updated, as a kernel does it by the identity of a display."""
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda data, raw: shown.append("updated " + data["text/plain"]))

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        shown.append("new " + data["text/plain"])
        return handle

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    with Progress([1.0, 1.0]) as bar:
        two_fits(bar)
    assert [text.partition(" ")[0] for text in shown] == ["new", *["updated"] * (len(shown) - 1)]
    assert any("rotation: 25 %|" in text for text in shown)
    assert "100 %|" in shown[-1]


def two_fits(bar: Progress) -> None:
    for name in ("rotation", "none"):
        bar.begin(Halfway(0.5), name)
        bar.record(RECORD)
        time.sleep(0.1)
