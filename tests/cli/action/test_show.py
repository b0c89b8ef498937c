"""`zbroker-admin action show` shows one action."""

from __future__ import annotations

import json

from tests.cli.action.test_ls import ACTIONS
from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker, admin, run, segments


def test_one_is_shown(fake: FakeAdmin) -> None:
    fake.answers["GET /actions/2"] = ACTIONS[1]
    assert json.loads(admin(fake.data, "--json", "action", "show", "2").stdout) == ACTIONS[1]
    assert "why      old" in admin(fake.data, "action", "show", "2").stdout.splitlines()


def test_one_that_is_not_there_is_not_found(fake: FakeAdmin, maker: Maker) -> None:
    assert admin(fake.data, "action", "show", "9").exit_code == 3


def test_without_an_instance_the_file_tells(maker: Maker) -> None:
    segments(maker, 3)
    assert run(maker, "archive", "--through", "1").exit_code == 0
    data = maker.directory.parent
    assert json.loads(admin(data, "--json", "action", "show", "1").stdout)["result"] == "done"
    assert admin(data, "action", "show", "2").exit_code == 3
