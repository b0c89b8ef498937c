"""How far a long work is, on stderr if that is a terminal; silent otherwise.

with progress.bar(rate="bytes") as step:
    step("copying", done, total)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from zbroker.cli.terminal import raw

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Step = Callable[[str, int, int], None]  # the step, the amount done, the whole amount


def silent(_what: str, _done: int, _total: int) -> None:
    """A step without a display."""


@contextmanager
def bar(rate: Literal["", "bytes", "messages"] = "") -> Iterator[Step]:
    """A bar per `what`, with a rate in this unit; it is gone when the work is done."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: dict[str, list[ProgressColumn]] = {
        "": [TaskProgressColumn()],
        "bytes": [DownloadColumn(binary_units=True), TransferSpeedColumn()],
        "messages": [MofNCompleteColumn(), TextColumn("{task.fields[speed]}")],
    }
    shown = [TextColumn("{task.description}"), BarColumn(), *columns[rate], TimeRemainingColumn()]
    # else rich would send what is printed meanwhile to its own console, past a pipe on stdout
    through = sys.stdout.isatty()
    with Progress(
        *shown, console=Console(file=raw(sys.stderr)), transient=True, redirect_stdout=through
    ) as drawn:
        yield _Bars(drawn)


class _Bars:
    """One task of rich per `what`."""

    def __init__(self, drawn: Progress) -> None:
        self._drawn = drawn
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._drawn.add_task(what, total=total, speed="")
        task = self._tasks[what]
        per_s = self._drawn.tasks[list(self._tasks).index(what)].speed
        speed = f"{per_s:,.0f}/s" if per_s else ""
        self._drawn.update(task, completed=done, total=total, speed=speed)
