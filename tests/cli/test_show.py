"""zbroker/cli/show.py: how answers look."""

from __future__ import annotations

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
    columns = (show.number("serial"), show.Column("why"), show.byte_size("bytes"))
    row = {"serial": 3, "why": 'it is "old"', "bytes": 2048}
    assert show.line(columns, row) == 'serial=3 why="it is \\"old\\"" bytes=2048'


def test_a_table_for_a_person_has_units(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    show.table((show.number("serial"), show.byte_size("bytes")), [{"serial": 3, "bytes": 2048}])
    assert "2 KiB" in capsys.readouterr().out
