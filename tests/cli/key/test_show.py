"""`zbroker-admin key show` prints a public key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zbroker.access import keys
from zbroker.cli.admin_main import main


def show(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["key", "show", *arguments], prog_name="zbroker-admin")


@pytest.mark.parametrize("name", ["a", "a.key", "a.key_secret"])
def test_every_name_of_a_pair_shows_the_public_key(tmp_path: Path, name: str) -> None:
    made = keys.make(tmp_path / "a")
    assert show(str(tmp_path / name)).output == made.public + "\n"


def test_json_has_it_under_a_key(tmp_path: Path) -> None:
    made = keys.make(tmp_path / "a")
    assert json.loads(show(str(tmp_path / "a"), "--json").stdout) == {"public": made.public}


def test_what_is_no_key_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.key").write_text("nothing")
    result = show(str(tmp_path / "a"))
    assert result.exit_code == 78
    assert "has no public-key" in result.stderr
