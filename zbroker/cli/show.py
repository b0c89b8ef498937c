"""How answers are shown: JSON with stable keys, tables on a terminal, plain lines otherwise.

A plain line is `key=value key=value`, so that pipes keep working when keys are added.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from zbroker.cli.terminal import raw, safe
from zbroker.control.target import Target

if TYPE_CHECKING:
    from rich.console import Console

BORDER: Final = 3  # what a column of a table takes beside its text
EMPTY_RANK: Final = 99
_STEPS: Final = ("B", "KiB", "MiB", "GiB", "TiB")

json_option = click.option(
    "--json", "json_here", is_flag=True, help="Answer in JSON with stable keys."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only say what would be done, and why."
)


def on_terminal() -> bool:
    """True if a person reads this."""
    return sys.stdout.isatty()


def as_json(document: Any) -> None:  # noqa: ANN401 - whatever has a form in JSON
    """The whole answer as one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def size(count: int) -> str:
    """Bytes for people: three digits and a unit."""
    number, step = float(count), 0
    while number >= 1000 and step < len(_STEPS) - 1:
        number, step = number / 1024, step + 1
    shown = f"{number:.0f}" if number >= 100 or step == 0 else f"{number:.3g}"
    return f"{shown} {_STEPS[step]}"


def plain(value: Any) -> str:  # noqa: ANN401 - a value of JSON
    """A value in one word; `-` where there is none."""
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(plain(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{plain(item)}" for key, item in value.items())
    return str(value)


class TableColumn(NamedTuple):
    """A column of a table: the key of its values; how a person is shown them."""

    key: str
    shown: Callable[[Any], str] = plain
    right: bool = False
    rank: int = 1

    def ranked(self, rank: int) -> TableColumn:
        """The same: of a narrow terminal's columns the highest rank goes first, 0 never."""
        return self._replace(rank=rank)


def text(key: str, rank: int = 1) -> TableColumn:
    """A column of words."""
    return TableColumn(key, plain, rank=rank)


def number(key: str, rank: int = 1) -> TableColumn:
    """A column of numbers."""
    return TableColumn(key, plain, right=True, rank=rank)


def byte_size(key: str, rank: int = 1) -> TableColumn:
    """A column of sizes: exact in plain text, with a unit for people."""
    shown: Callable[[Any], str] = lambda value: "-" if value is None else size(value)  # noqa: E731
    return TableColumn(key, shown, right=True, rank=rank)


def table(
    columns: Sequence[TableColumn], rows: Iterable[Mapping[str, Any]], title: str = ""
) -> None:
    """Rows as a table for a person, as `key=value` lines for a pipe.

    The table is as wide as the terminal: columns that do not fit are left out, and named below.
    """
    if not on_terminal():
        for row in rows:
            click.echo(line(columns, row))
        return
    from rich.table import Table
    from rich.text import Text

    drawn, screen = Table(title=title or None, title_justify="left"), console()
    cells = [[safe(column.shown(row.get(column.key))) for column in columns] for row in rows]
    kept = fitting(columns, cells, screen.width)
    for column in (columns[at] for at in kept):
        justify: Literal["right", "left"] = "right" if column.right else "left"
        drawn.add_column(heading(column), justify=justify, overflow="fold", no_wrap=column.right)
    for row_cells in cells:
        drawn.add_row(*(Text(row_cells[at]) for at in kept))
    screen.print(drawn)
    if len(kept) < len(columns):
        names = ", ".join(heading(columns[at]) for at in range(len(columns)) if at not in kept)
        warn(f"not shown, for the width: {names}; --json has all")


def console() -> Console:
    """The terminal, to be drawn on. Text of others goes through `safe` first."""
    from rich.console import Console

    return Console(file=raw(sys.stdout))


def heading(column: TableColumn) -> str:
    """The heading of a column."""
    return column.key.replace("_", " ")


def fitting(
    columns: Sequence[TableColumn], cells: Sequence[Sequence[str]], width: int
) -> list[int]:
    """The columns for a table of that width: empty ones are dropped first, then those of high rank.

    Those of rank 0 stay; if even they are too wide, their text is folded.
    """
    widths = [
        max([len(heading(column)), *(len(row[at]) for row in cells)])
        for at, column in enumerate(columns)
    ]
    ranks = [
        EMPTY_RANK if column.rank and all(row[at] == "-" for row in cells) else column.rank
        for at, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while sum(widths[at] + BORDER for at in kept) + 1 > width:
        last = max(kept, key=lambda at: (ranks[at], at))
        if not ranks[last]:
            break
        kept.remove(last)
    return kept


def line(columns: Sequence[TableColumn], row: Mapping[str, Any]) -> str:
    """One row for a pipe; a value with blanks is quoted."""
    return " ".join(f"{column.key}={_word(plain(row.get(column.key)))}" for column in columns)


def facts(found: Mapping[str, Any], sizes: Sequence[str] = ()) -> None:
    """One fact per line; `sizes` are keys whose values are bytes."""
    width = max(map(len, found), default=0)
    for key, value in found.items():
        exact = f" ({size(value)})" if key in sizes and value is not None and on_terminal() else ""
        click.echo(f"{key:{width}} {plain(value)}{exact}")


def wants_json(target: Target, json_here: bool) -> bool:
    """`--json` may come before the command or after it."""
    return json_here or target.as_json


def warn(text: str) -> None:
    """A line on stderr."""
    click.echo(text, err=True)


def _word(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if " " in text else text
