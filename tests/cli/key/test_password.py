"""`zbroker-admin key password` prints the hash of a password."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from zbroker.access.passwords import verify
from zbroker.cli.admin_main import main


def password(given: str, *arguments: str) -> Result:
    arguments = ("key", "password", *arguments)
    return CliRunner().invoke(main, arguments, input=given, prog_name="zbroker-admin")


def test_it_is_asked_for_twice() -> None:
    result = password("pw 1\npw 1\n")
    assert result.exit_code == 0
    assert verify("pw 1", result.stdout.strip())
    assert "pw 1" not in result.output


def test_two_different_ones_are_asked_for_again() -> None:
    result = password("a\nb\nc\nc\n")
    assert verify("c", result.stdout.strip())


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_of_stdin_is_one(end: str) -> None:
    assert verify(" pw ", password(" pw " + end, "--stdin").stdout.strip())


def test_an_empty_one_is_refused() -> None:
    result = password("\n", "--stdin")
    assert result.exit_code == 2
    assert "1 to 1024 bytes" in result.stderr
