"""`zbroker-admin context show` shows one context."""

from __future__ import annotations

import pytest

from tests.cli.context.running import context, document
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login

FULL = Context("tcp://h:1", "", "", Login("/k", "/s", "ann", "/p"))


def test_every_key_is_shown() -> None:
    contexts.save("far", FULL)
    assert document("show", "far") == {
        "context": "far", "url": "tcp://h:1", "data_dir": "", "config": "", "in_use": False,
        "credentials": {"key": "/k", "server": "/s", "user": "ann", "password_file": "/p"},
    }  # fmt: skip
    assert "password_file /p" in context("show", "far").stdout


def test_by_default_it_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert context("show").exit_code == 3
    contexts.save("far", FULL)
    contexts.save("here", Context(data_dir="/d"))
    contexts.use("here")
    assert document("show")["context"] == "here"
    monkeypatch.setenv(contexts.ENVIRONMENT, "far")
    assert document("show")["context"] == "far"
