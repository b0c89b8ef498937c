"""zbroker/cli/show.py: how answers look."""

from __future__ import annotations

from importlib import import_module

import pytest

from zbroker.cli import show


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"),
     (5 << 30, "5 GiB"), (1010, "0.986 KiB"), (3 << 50, "3072 TiB")],
)  # fmt: skip
def test_sizes_have_three_digits_and_a_unit(count: int, text: str) -> None:
    assert show.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), ([], "-"), (True, "yes"), (False, "no"), (0, "0"), ([1, 2], "1,2"),
     ({"a": 1, "b": None}, "a:1,b:-"), ("x y", "x y")],
)  # fmt: skip
def test_every_value_is_one_word_or_text(value: object, text: str) -> None:
    assert show.plain(value) == text


def test_a_row_for_a_pipe_quotes_what_has_blanks() -> None:
    columns = show.columns("serial why bytes", sizes="bytes")
    row = {"serial": 3, "why": 'it is "old"', "bytes": 2048}
    assert show.line(columns, row) == 'serial=3 why="it is \\"old\\"" bytes=2048'


def test_a_table_for_a_person_has_units(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    show.table(show.columns("serial bytes", sizes="bytes"), [{"serial": 3, "bytes": 2048}])
    assert "2 KiB" in capsys.readouterr().out


def test_a_narrow_terminal_gets_the_columns_that_matter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    columns = show.columns("name:0 why:3 state lag:0")
    row = {"name": "a-name-of-16-chr", "why": "because of this", "state": "ready", "lag": 7}
    show.table(columns, [row])
    reported = capsys.readouterr()
    assert max(map(len, reported.out.splitlines())) <= 40
    assert "a-name-of-16-chr" in reported.out
    assert "ready" in reported.out
    assert "because" not in reported.out
    assert reported.err == "not shown, for the width: why; --json has all\n"


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (200, [0, 1, 2, 3]),
        (22, [0, 1, 3]),  # no one misses an empty column
        (16, [0, 3]),
        (3, [0, 3]),  # rank 0 is folded, not left out
    ],
)
def test_columns_go_by_rank(width: int, kept: list[int]) -> None:
    columns = show.columns("a:0 b:2 none d:0")
    assert show.fitting(columns, [["xxx", "yyy", "-", "1"]], width) == kept


def test_columns_of_numbers_are_set_to_the_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    rows = [{"lag": 7, "topic": "a", "on": True}, {"lag": None, "topic": "bcdefg", "on": False}]
    show.table(show.columns("lag topic on"), rows)
    cells = [row.split("│")[1:-1] for row in capsys.readouterr().out.splitlines() if "│" in row]
    assert cells == [["   7 ", " a      ", " yes "], ["   - ", " bcdefg ", " no  "]]


#: what a person sees first of each list; it has to be there on 80 columns
ESSENTIAL = {
    "queue.queries": ("name", "depth", "state", "consumers", "dead"),
    "subscription": ("client", "topic", "lag", "state"),
    "client": ("client", "door", "address", "messages"),
    "journal.info": ("serial", "first", "end", "bytes"),
    "topic": ("topic", "messages", "bytes"),
    "action": ("id", "action", "result"),
}


TEXTS = {
    "name", "kind", "topic", "state", "client", "sid", "filter", "options", "since", "worker",
    "principal", "door", "address", "room", "place", "packed", "first_time", "last_time", "open",
    "recorded", "time", "action", "by", "serials", "result", "why", "reason",
}  # fmt: skip


@pytest.mark.parametrize("what", ESSENTIAL)
def test_a_list_fits_80_columns(what: str) -> None:
    columns = import_module(f"zbroker.cli.{what}").COLUMNS
    samples = {"time": "20261122T201500.123456Z", "address": "192.168.100.200:50312"}
    cells = [
        samples.get(column.key, "orders.europe" if column.key in TEXTS else "1,234,567")
        for column in columns
    ]
    kept = [columns[at].key for at in show.fitting(columns, [cells], 80)]
    widths = [
        max(len(cells[at]), len(show.heading(columns[at])))
        for at, column in enumerate(columns)
        if column.key in kept
    ]
    assert sum(widths) + show.BORDER * len(kept) + 1 <= 80
    assert [key for key in ESSENTIAL[what] if key not in kept] == []
