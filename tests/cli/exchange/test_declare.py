"""`zbroker-admin exchange declare` makes an exchange."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run

PLAIN = {
    "exchange": "events", "kind": "direct", "alternate": "", "auto_delete": False,
    "internal": False, "dry_run": False,
}  # fmt: skip


def declare(fake: FakeAdmin, *options: str, changed: bool = True) -> Any:
    dry_run = "--dry-run" in options
    answer = {"exchange": "events", "dry_run": dry_run, "changed": changed}
    fake.answers["POST /exchanges"] = answer
    return run(fake.data, "exchange", "declare", "events", *options)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ([], {}),
        (
            ["--kind", "topic", "--alternate", "lost", "--auto-delete", "--internal"],
            {"kind": "topic", "alternate": "lost", "auto_delete": True, "internal": True},
        ),
    ],
)
def test_the_instance_is_asked_for_it(
    fake: FakeAdmin, options: list[str], more: dict[str, Any]
) -> None:
    assert declare(fake, *options).stdout == "events: made\n"
    assert fake.reported == [("/exchanges", PLAIN | more)]


def test_what_is_there_is_reported_so(fake: FakeAdmin) -> None:
    assert declare(fake, changed=False).stdout == "events: it is there already\n"


def test_a_dry_run_is_reported_so(fake: FakeAdmin) -> None:
    assert declare(fake, "--dry-run").stdout == "events: it can be made (dry run)\n"
    assert fake.reported[0][1]["dry_run"]


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    assert json.loads(declare(fake, "--json").stdout)["changed"] is True


def test_an_unknown_kind_is_wrong_usage(fake: FakeAdmin) -> None:
    assert declare(fake, "--kind", "none").exit_code == 2
