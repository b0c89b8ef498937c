"""`zbroker-admin context use`, and what it does to other commands."""

from __future__ import annotations

import json

from click.testing import CliRunner

from tests.cli.admins import FakeAdmin
from tests.cli.context.running import context, document
from zbroker.cli.admin_main import main
from zbroker.control import contexts


def state(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--json", "status"])
    assert result.exit_code == 0, result.stderr
    return str(json.loads(result.stdout)["state"])


def test_commands_go_to_the_one_in_use(fake: FakeAdmin) -> None:
    context("add", "here", "--data-dir", str(fake.data))
    assert context("use", "here").stdout == "here is in use\n"
    assert state() == "ready"


def test_commands_go_to_one_that_is_named(fake: FakeAdmin) -> None:
    context("add", "here", "--data-dir", str(fake.data))
    assert state("--context", "here") == "ready"


def test_an_unknown_one_is_not_found_and_changes_nothing() -> None:
    contexts.save("here", contexts.Context())
    contexts.use("here")
    assert context("use", "there").exit_code == 3
    assert contexts.current() == "here"


def test_none_is_used_if_that_is_wanted() -> None:
    contexts.save("here", contexts.Context())
    contexts.use("here")
    assert context("use", "--none").exit_code == 0
    assert contexts.current() == ""


def test_a_name_and_none_exclude_each_other() -> None:
    assert context("use").exit_code == 2
    assert context("use", "here", "--none").exit_code == 2


def test_a_broken_one_can_be_left(fake: FakeAdmin) -> None:
    contexts.save("bad", contexts.Context()).write_text("broken")
    contexts.save("here", contexts.Context(data_dir=str(fake.data)))
    (contexts.directory().parent / "context").write_text("bad\n")
    assert CliRunner().invoke(main, ["status"]).exit_code == 78
    assert context("use", "here").exit_code == 0
    assert state() == "ready"


def test_json_says_which_one_is_in_use() -> None:
    contexts.save("here", contexts.Context())
    assert document("use", "here") == {"context": "here"}
    assert document("use", "--none") == {"context": None}
