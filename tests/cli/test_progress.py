"""zbroker/cli/progress.py: bars on a terminal, silence elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from zbroker.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("bytes") as step:
        step("copying", 1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("rate", ["", "bytes", "messages"])
def test_a_terminal_gets_a_bar_for_each_piece_of_work(
    monkeypatch: pytest.MonkeyPatch, rate: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar(rate) as step:
        for done in range(101):
            step("copying", done, 100)
        step("checking", 1, 2)
    assert "copying" in terminal.getvalue()
    assert "checking" in terminal.getvalue()


def test_what_is_printed_meanwhile_stays_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich would send it to its own console, past the pipe."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar() as step:
        step("looking", 1, 2)
        sys.stdout.write("found\n")
    assert capsys.readouterr().out == "found\n"
    assert "found" not in terminal.getvalue()
