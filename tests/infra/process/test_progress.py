"""Progress is for a person who waits: never in a pipe, never for what is quick."""

from __future__ import annotations

import io

from infra.process import progress as module
from infra.process.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_sees_nothing(monkeypatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    err = io.StringIO()
    with progress("compact", stream=err) as step:
        step("table 1", 1, 2)
    assert err.getvalue() == ""


def test_what_is_quick_says_nothing() -> None:
    err = Terminal()
    with progress("compact", stream=err) as step:
        step("table 1", 1, 2)
    assert err.getvalue().strip() == ""


def test_what_takes_long_says_what_it_does(monkeypatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    with progress("compact", stream=err) as step:
        step("table [bold]silver.event", 1, 2)
        while "silver.event" not in err.getvalue():
            pass
    assert "compact: table [bold]silver.event" in err.getvalue()
