"""`zbroker-admin context add` keeps how an instance is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.context.running import context, document
from zbroker.cli.admin_main import main
from zbroker.control import contexts


def test_a_place_is_kept_under_its_name(tmp_path: Path) -> None:
    result = context("add", "here", "--data-dir", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout == f"here: kept in {contexts.directory() / 'here.toml'}\n"
    assert contexts.load("here") == contexts.Context(data_dir=str(tmp_path))
    assert contexts.current() == ""


def test_it_is_used_at_once_if_that_is_wanted() -> None:
    assert document("add", "far", "--url", "tcp://h:1", "--use") == {
        "context": "far", "file": str(contexts.directory() / "far.toml"), "in_use": True,
    }  # fmt: skip
    assert contexts.current() == "far"


def test_what_is_before_the_command_counts_too() -> None:
    arguments = ["--url", "tcp://h:1", "--key", "/k", "--server-key", "/s", "context", "add", "far"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert contexts.load("far") == contexts.Context("tcp://h:1", "", "", contexts.Login("/k", "/s"))


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--url", "tcp://h:1", "--data-dir", "/d"],
        ["--url", "tcp://h:1", "--key", "/k"],
        ["--url", "tcp://h:1", "--server-key", "/s"],
    ],
)
def test_what_cannot_be_used_is_wrong_usage(wrong: list[str]) -> None:
    assert context("add", "far", *wrong).exit_code == 2
    assert contexts.names() == []


def test_another_one_of_that_name_is_replaced_by_force_only() -> None:
    context("add", "far", "--url", "tcp://h:1")
    assert context("add", "far", "--url", "tcp://h:2").exit_code == 1
    assert contexts.load("far").url == "tcp://h:1"
    assert context("add", "far", "--url", "tcp://h:2", "--force").exit_code == 0
    assert contexts.load("far").url == "tcp://h:2"


def test_a_name_with_a_path_is_refused() -> None:
    result = context("add", "../x", "--url", "tcp://h:1")
    assert result.exit_code == 1
    assert "bad_field" in result.stderr
