"""How answers are shown: JSON with stable keys, tables on a terminal, plain lines otherwise.

A plain line is `key=value key=value`, so that pipes keep working when keys are added.
"""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from zbroker.cli.terminal import raw, safe
from zbroker.wire.bodies import text_or_base64

if TYPE_CHECKING:
    from rich.console import Console

    from zbroker.wire.bodies import Scalar

BORDER: Final = 3  # what a column of a table takes beside its text
EMPTY_RANK: Final = 99
_STEPS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


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
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(plain(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{plain(item)}" for key, item in value.items())
    return str(value)


class TableColumn(NamedTuple):
    """A column of a table: the key of its values; of a narrow terminal's columns the highest rank
    goes first, 0 never.

    is_size: its values are bytes, which a person is shown with a unit.
    """

    key: str
    rank: int = 1
    is_size: bool = False

    def shown(self, value: Any) -> str:  # noqa: ANN401 - a value of JSON
        """A value for a person."""
        return size(value) if self.is_size and value is not None else plain(value)


def columns(spec: str, sizes: str = "") -> tuple[TableColumn, ...]:
    """The columns of a table, such as "name:0 state lag:2": a key and its rank, 1 if it has none.

    sizes: the keys of those whose values are bytes.
    """
    parts = [part.partition(":") for part in spec.split()]
    return tuple(TableColumn(key, int(rank or 1), key in sizes.split()) for key, _, rank in parts)


def listing(
    in_json: bool,
    document: Mapping[str, Any],
    columns: Sequence[TableColumn],
    rows: Sequence[Mapping[str, Any]],
    empty: str,
    notes: Sequence[str] = (),
) -> None:
    """The document as JSON; or rows as a table or the sentence for an empty one, then the notes."""
    if in_json:
        as_json(document)
        return
    if rows:
        table(columns, rows)
    else:
        click.echo(empty)
    for note in notes:
        warn(note)


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

    drawn, screen, rows = Table(title=title or None, title_justify="left"), console(), list(rows)
    cells = [[safe(column.shown(row.get(column.key))) for column in columns] for row in rows]
    kept = fitting(columns, cells, screen.width)
    for column in (columns[at] for at in kept):
        values = (row.get(column.key) for row in rows)
        numbers = all(value is None or is_number(value) for value in values)
        justify: Literal["right", "left"] = "right" if numbers else "left"
        drawn.add_column(heading(column), justify=justify, overflow="fold", no_wrap=numbers)
    for row_cells in cells:
        drawn.add_row(*(Text(row_cells[at]) for at in kept))
    screen.print(drawn)
    if len(kept) < len(columns):
        names = ", ".join(heading(columns[at]) for at in range(len(columns)) if at not in kept)
        warn(f"not shown, for the width: {names}; --json has all")


def is_number(value: object) -> bool:
    """True for numbers; JSON's true and false are none, although Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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


def answer(
    in_json: bool,
    document: Mapping[str, Any],
    shown: str | Mapping[str, Any] | Callable[[], None] = "",
    *,
    sizes: Sequence[str] = (),
) -> None:
    """The document as JSON; or for people a text, other facts, or the facts of the document.

    shown: may also be what prints all that people get.
    """
    if in_json:
        as_json(document)
    elif callable(shown):
        shown()
    elif shown and isinstance(shown, str):
        click.echo(shown)
    else:
        facts(shown if isinstance(shown, Mapping) else document, sizes)


def warn(text: str) -> None:
    """A line on stderr."""
    click.echo(text, err=True)


def _word(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if " " in text else text


def extra_row(key: bytes | None, headers: Mapping[str, Scalar] | None) -> dict[str, Any]:
    """Key and headers under stable keys; what a message does not have is left out."""
    row: dict[str, Any] = {} if key is None else dict(text_or_base64(key, "key"))
    if headers:
        row["headers"] = {name: _plain(value) for name, value in headers.items()}
    return row


def _plain(value: Scalar) -> object:
    """Binary becomes an object, which no other header is; null replaces NaN and infinity."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
