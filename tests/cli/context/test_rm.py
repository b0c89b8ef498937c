"""`zbroker-admin context rm` forgets a context."""

from __future__ import annotations

from pathlib import Path

from tests.cli.context.running import context, document
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login


def test_it_is_forgotten_and_not_in_use_any_more(tmp_path: Path) -> None:
    key = tmp_path / "me.key_secret"
    key.touch()
    contexts.save("far", Context("tcp://h:1", "", "", Login(str(key), "/s")))
    contexts.use("far")
    assert context("rm", "far").stdout == "far: forgotten, and it is the one in use\n"
    assert (contexts.names(), contexts.current()) == ([], "")
    assert key.exists()


def test_a_dry_run_forgets_nothing() -> None:
    contexts.save("far", Context("tcp://h:1"))
    assert context("rm", "far", "--dry-run").stdout == "far: would be forgotten\n"
    assert contexts.names() == ["far"]
    assert context("rm", "none", "--dry-run").exit_code == 3


def test_a_broken_one_can_be_forgotten() -> None:
    contexts.save("bad", Context()).write_text("broken")
    assert context("rm", "bad").exit_code == 0
    assert contexts.names() == []


def test_one_that_is_not_there_is_not_found() -> None:
    assert context("rm", "none").exit_code == 3


def test_json_says_what_was_forgotten() -> None:
    contexts.save("far", Context("tcp://h:1"))
    assert document("rm", "far") == {"context": "far", "dry_run": False, "in_use": False}
