"""Every command that takes a URL says in one line what is wrong with it: no traceback, no wait."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from zbroker.cli.admin_main import main as admin
from zbroker.cli.group import EX_ERROR
from zbroker.cli.main import main

WRONG = ["http://127.0.0.1:9105", "tcp://127.0.0.1", "ipc:///tmp/x", "tcp://h:99999", "::1"]
COMMANDS = [
    (main, ("sub", "{}", "t")),
    (main, ("pub", "{}", "t")),
    (main, ("consume", "{}", "work")),
    (main, ("bench", "{}")),
    (admin, ("--url", "{}", "status")),
    (admin, ("--url", "{}", "queue", "ls")),
    (admin, ("--url", "{}", "subscription", "ls")),
]


@pytest.mark.parametrize("url", WRONG)
@pytest.mark.parametrize(("program", "command"), COMMANDS, ids=[c[1][-1] for c in COMMANDS])
def test_a_wrong_url_is_one_line(program, command: tuple[str, ...], url: str) -> None:  # type: ignore[no-untyped-def]
    result = CliRunner().invoke(program, [part.format(url) for part in command], input="")
    assert result.exit_code == EX_ERROR
    assert len(result.stderr.splitlines()) == 1
    assert "bad_url: " in result.stderr
    assert "(write " in result.stderr
