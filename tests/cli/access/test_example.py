"""`zbroker-admin access example` prints a file that can be used."""

from __future__ import annotations

from click.testing import CliRunner

from zbroker.access.format import EXAMPLE
from zbroker.cli.admin_main import main


def test_the_example_is_printed() -> None:
    assert CliRunner().invoke(main, ["access", "example"]).stdout == EXAMPLE
