"""`zbroker-admin queue takeover`: what an instance owns that is away is offered by another one."""

from __future__ import annotations

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import done, run

PATH = "/queues/work/takeover"
ID = "10b714bc24174273"


@pytest.fixture
def linked(fake: FakeAdmin) -> FakeAdmin:
    """An instance with a link to `a`; of `b` it does not know the id."""
    fake.answers["GET /replication"] = {
        "links": [{"name": "b", "instance": ""}, {"name": "a", "instance": ID}]
    }
    fake.answers[f"POST {PATH}"] = done(3)
    return fake


def test_the_instance_is_named_as_in_the_config(linked: FakeAdmin) -> None:
    result = run(linked.data, "takeover", "work", "--from", "a", "--yes")
    assert result.stdout == "work: 3 messages taken over\n"
    body = {"instance": ID, "called": "a", "may_duplicate": False}
    assert linked.reported == [(PATH, body)]


def test_an_instance_without_a_link_is_named_by_its_id(linked: FakeAdmin) -> None:
    other = "0" * 15 + "7"
    run(linked.data, "takeover", "work", "--from", other, "--yes", "--may-duplicate")
    assert linked.reported == [(PATH, {"instance": other, "called": "", "may_duplicate": True})]


def test_a_dry_run_says_how_many(linked: FakeAdmin) -> None:
    result = run(linked.data, "takeover", "work", "--from", "a", "--dry-run")
    assert result.stdout == "work: 3 messages would be taken over (dry run)\n"
    assert linked.reported[0][1]["dry_run"]


def test_without_a_terminal_it_wants_yes(linked: FakeAdmin) -> None:
    result = run(linked.data, "takeover", "work", "--from", "a")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert linked.reported == []


@pytest.mark.parametrize("owner", ["b", "c"])
def test_an_instance_whose_id_is_not_known_is_not_found(linked: FakeAdmin, owner: str) -> None:
    result = run(linked.data, "takeover", "work", "--from", owner, "--yes")
    assert result.exit_code == 3
    assert linked.reported == []
