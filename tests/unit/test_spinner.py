"""Ctrl-C says what it stopped, wherever it falls within a wait that is on the screen."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace, TracebackType

import pytest

from memory_anchor.front.cli import spinner
from memory_anchor.front.cli.output import Ticker
from memory_anchor.front.cli.spinner import Spinner


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spinner, "current", None)
    monkeypatch.setattr(Ticker, "last", "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(spinner, "sys", SimpleNamespace(stderr=Terminal()))


def test_ctrl_c_while_the_line_is_first_drawn_names_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule stop: the thread that draws may be ahead of the one that began it."""
    begin = threading.Thread.start

    def begins_and_is_interrupted(thread: threading.Thread) -> None:
        begin(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(Spinner, "_active", False)
    monkeypatch.setattr(threading.Thread, "start", begins_and_is_interrupted)
    with pytest.raises(KeyboardInterrupt), Spinner("erasing"):
        pass
    assert "stopped while erasing" in Ticker.stopped() and "run the same command again" in Ticker.stopped()


def test_ctrl_c_while_the_line_is_emptied_names_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule stop: the work may be done by then, and to say that it may be run again is still true."""

    class Emptied(Spinner):
        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            monkeypatch.setattr(threading.Thread, "join", interrupted)
            super().__exit__(kind, error, trace)

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Spinner, "_active", False)
    with pytest.raises(KeyboardInterrupt), Emptied("erasing"):
        pass
    assert "stopped while erasing" in Ticker.stopped()


def test_a_wait_that_ended_is_not_what_a_later_ctrl_c_stopped() -> None:
    """Rule stop: a word names what was under way, or nothing."""
    with Spinner("erasing"):
        with Spinner("opening your key"):
            assert "stopped while opening your key" in Ticker.stopped()
        assert "stopped while erasing" in Ticker.stopped()
    assert "erasing" not in Ticker.stopped()


def test_steps_that_ended_are_not_what_a_later_ctrl_c_stopped() -> None:
    """Rule stop: steps that Ctrl-C cut off are named, those that ended are not, and nothing is promised of either."""
    ticker = Ticker("restored")
    with pytest.raises(KeyboardInterrupt):
        try:
            ticker.at(5, 10)
            raise KeyboardInterrupt
        finally:
            ticker.end()
    assert Ticker.stopped() == "stopped at: restored 5 of 10; it is safe to run the same command again"
    ticker.end()
    with Spinner("erasing"):
        assert "stopped while erasing" in Ticker.stopped()
