"""What the demo says on the terminal: chapters, progress bars, the table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.table import Table as RichTable

from zbroker.demo.check import CarrierTally

if TYPE_CHECKING:
    from zbroker.demo.aggregate import PartitionDone
    from zbroker.spark import LogRange

Advance = Callable[[int], None]
RIGHT, WRONG = "[green]✓[/]", "[bold red]✗[/]"


class Story:
    """Tells on `console`; keeps count of what went wrong."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._chapter = 0
        self.failures: list[str] = []

    def chapter(self, title: str, why: str) -> None:
        """The next step, and the reason for it."""
        self._chapter += 1
        self._console.print(f"\n[bold cyan]{self._chapter}  {escape(title)}[/]")
        self._console.print(f"   [dim]{escape(why)}[/]", soft_wrap=True)

    def say(self, text: str) -> None:
        """One fact."""
        self._console.print(f"   {escape(text)}", soft_wrap=True)

    def command(self, text: str) -> None:
        """Something to type; never wrapped, so that it can be copied."""
        self._console.print(f"   [bold]{escape(text)}[/]", soft_wrap=True)

    def verdict(self, text: str, difference: str) -> None:
        """A comparison that came out right, or else with what differs."""
        self._console.print(f"   {WRONG if difference else RIGHT} {escape(text)}", soft_wrap=True)
        if difference:
            self.failures.append(difference)
            self._console.print(f"     [red]{escape(difference)}[/]", soft_wrap=True)

    def fail(self) -> None:
        """The end of a demo in which something was not as it must be."""
        self._console.print(f"\n[bold red]{len(self.failures)} comparisons failed[/]")
        for failure in self.failures:
            self.say(failure)

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Advance]:
        """A progress bar; what it yields sets how far it has come."""
        what_text = TextColumn("   {task.description}")
        columns = (what_text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(what, total=total)
            yield lambda completed: progress.update(task, completed=completed)

    def partitions(self, ranges: Sequence[LogRange], done: Sequence[PartitionDone]) -> None:
        """What each partition did."""
        names = ("partition", "positions", "MB", "messages", "seconds", "process")
        table = RichTable(*(Column(name, justify="right") for name in names))
        for part, did in zip(ranges, done, strict=True):
            positions, size = f"{part.first:,} to {part.end - 1:,}", f"{part.bytes / 1e6:.1f}"
            counts = f"{did.messages:,}", f"{did.seconds:.2f}"
            table.add_row(str(did.partition), positions, size, *counts, str(did.pid))
        self._console.print(table)

    def carriers(
        self, replayed: dict[str, CarrierTally], expected: dict[str, CarrierTally]
    ) -> None:
        """The table of the comparison, carrier by carrier; each wrong one counts as a failure."""
        counts = ("flights", "minutes late, sum", "flights in table", "minutes late in table")
        table = RichTable("carrier", *(Column(name, justify="right") for name in counts), "same")
        nothing = CarrierTally(0, 0)
        for carrier in sorted(replayed.keys() | expected.keys()):
            got, want = replayed.get(carrier, nothing), expected.get(carrier, nothing)
            mark = RIGHT if got == want else WRONG
            table.add_row(carrier, *[f"{number:,}" for number in (*got, *want)], mark)
            if got != want:
                self.failures.append(f"carrier {carrier}: replayed {got}, the table has {want}")
        table.add_section()
        total = [
            f"{sum(tally[part] for tally in tallies.values()):,}"
            for tallies in (replayed, expected)
            for part in (0, 1)
        ]
        table.add_row("all", *total, RIGHT if replayed == expected else WRONG)
        self._console.print(table)

    def journal(self, directory: Path) -> None:
        """The place of the log, and the size of its files."""
        files = sorted(directory.glob("*.journal"))
        size = sum(file.stat().st_size for file in files)
        text = f"{len(files)} segments, {size / 1e6:,.0f} MB, written once, never changed."
        self.say(f"The journal is in {directory}: {text}")
