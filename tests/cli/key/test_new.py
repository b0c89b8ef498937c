"""`zbroker-admin key new` makes a key pair."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from click.testing import CliRunner, Result

from zbroker.access import keys
from zbroker.cli.admin_main import main


def new(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["key", "new", *arguments], prog_name="zbroker-admin")


def test_the_public_key_is_printed(tmp_path: Path) -> None:
    result = new(str(tmp_path / "broker"))
    assert result.exit_code == 0
    assert result.stdout == keys.load_public(tmp_path / "broker.key") + "\n"
    secret = keys.load_secret(tmp_path / "broker.key_secret").secret
    assert secret not in result.output
    assert stat.S_IMODE((tmp_path / "broker.key_secret").stat().st_mode) == 0o600


def test_json_names_the_files(tmp_path: Path) -> None:
    result = new(str(tmp_path / "broker.key"), "--json")
    assert json.loads(result.stdout) == {
        "public": keys.load_public(tmp_path / "broker.key"),
        "public_file": str(tmp_path / "broker.key"),
        "secret_file": str(tmp_path / "broker.key_secret"),
    }


def test_keys_are_kept_unless_forced(tmp_path: Path) -> None:
    first = new(str(tmp_path / "broker"))
    again = new(str(tmp_path / "broker"))
    assert again.exit_code == 1
    assert "there already (--force" in again.stderr
    assert keys.load_public(tmp_path / "broker.key") == first.stdout.strip()
    forced = new(str(tmp_path / "broker"), "--force")
    assert forced.exit_code == 0
    assert (
        keys.load_public(tmp_path / "broker.key") == forced.stdout.strip() != first.stdout.strip()
    )


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = new(str(tmp_path / "none" / "broker"))
    assert result.exit_code == 78
    assert "No such file or directory" in result.stderr
