"""`zbroker-admin access check` says whether an access file can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zbroker.access.format import EXAMPLE
from zbroker.cli.admin_main import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(EXAMPLE)
    path.chmod(0o644)
    return path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["access", "check", *arguments], prog_name="zbroker-admin")


def test_each_principal_is_a_line(file: Path) -> None:
    result = check(str(file))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "principal=pricer keys=1 password=no roles=feed names=- may=publish",
        "principal=risk keys=1 password=no roles=reader names=- may=subscribe,replay",
        "principal=ann keys=1 password=yes roles=reader,operator names=- "
        "may=subscribe,replay,admin_read,admin_write",
        "principal=ben keys=1 password=yes roles=reader names=- may=subscribe,replay",
    ]
    assert result.stderr == ""


def test_json_has_stable_keys(file: Path) -> None:
    file.write_text(EXAMPLE + "[role.spare]\n[principal.x]\nkeys = []\nnames = ['x', 'y-*']\n")
    found = json.loads(check(str(file), "--json").stdout)
    assert found["principals"][-1] == {
        "principal": "x", "keys": 0, "password": False, "roles": [], "names": ["x", "y-*"],
        "may": [],
    }  # fmt: skip
    assert (found["roles"][-1], found["unused_roles"]) == ("spare", ["spare"])


def test_a_role_that_no_one_has_is_named(file: Path) -> None:
    file.write_text(EXAMPLE + "[role.spare]\n")
    assert check(str(file)).stderr == "no principal has the role 'spare'\n"


def test_a_broken_file_is_named_with_its_line(file: Path) -> None:
    file.write_text(EXAMPLE + "[principal.x]\nkey = []\n")
    result = check(str(file))
    assert result.exit_code == 78
    line = EXAMPLE.count("\n") + 2
    assert f"{file}:{line}: unknown key `principal.x.key`" in result.stderr


def test_a_file_that_others_can_write_is_refused(file: Path) -> None:
    file.chmod(0o664)
    result = check(str(file))
    assert result.exit_code == 78
    assert f"chmod go-w {file}" in result.stderr
