"""`zbroker-admin queue takeover`: what an instance owns that is away is offered by another one."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import ROW, done, run

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


@pytest.fixture
def many(linked: FakeAdmin) -> FakeAdmin:
    """Queues of which one refuses, one has messages of another one only, one has none at all."""
    rows = [("work", 3), ("once", 2), ("other", 1), ("mine", 0)]
    linked.answers["GET /queues"] = {
        "queues": [ROW | {"name": name, "elsewhere": count} for name, count in rows]
    }
    refused = {"code": "bad_queue", "reason": "it is at-most-once", "hint": ""}
    linked.answers["POST /queues/once/takeover"] = (400, refused)
    linked.answers["POST /queues/other/takeover"] = done(0)
    return linked


def test_all_queues_are_taken_over_each_by_itself(many: FakeAdmin) -> None:
    result = run(many.data, "takeover", "--all", "--from", "a", "--yes")
    assert result.stdout.splitlines() == [
        "work: 3 messages taken over", "once: refused: it is at-most-once"
    ]  # fmt: skip
    assert result.exit_code == 1
    paths = [path for path, _ in many.reported]
    assert paths == [PATH, "/queues/once/takeover", "/queues/other/takeover"]


def test_a_dry_run_of_all_says_what_would_be(many: FakeAdmin) -> None:
    result = run(many.data, "takeover", "--all", "--from", "a", "--dry-run", "--json")
    found = json.loads(result.stdout)
    assert [(one["queue"], one["count"], one["dry_run"]) for one in found["queues"]] == [
        ("work", 3, True)
    ]
    assert [one["queue"] for one in found["refused"]] == ["once"]
    assert all(body["dry_run"] for _, body in many.reported)


def test_where_it_owns_nothing_that_is_said(linked: FakeAdmin) -> None:
    linked.answers["GET /queues"] = {"queues": [ROW | {"elsewhere": 0}]}
    result = run(linked.data, "takeover", "--all", "--from", "a", "--yes")
    assert (result.stdout, result.exit_code) == ("it owns no message here\n", 0)


@pytest.mark.parametrize("names", [[], ["work", "--all"]])
def test_one_queue_or_all_are_named(linked: FakeAdmin, names: list[str]) -> None:
    assert run(linked.data, "takeover", *names, "--from", "a", "--yes").exit_code == 2
    assert linked.reported == []


def test_what_comes_later_is_taken_over_until_it_is_back_or_a_person_ends_it(
    linked: FakeAdmin,
) -> None:
    run(linked.data, "takeover", "work", "--from", "a", "--until-back", "--yes")
    result = run(linked.data, "takeover", "work", "--from", "a", "--end")
    assert result.stdout == "work: messages of a that come are taken over no more\n"
    [(_, began), (_, ended)] = linked.reported
    assert (began["until_back"], ended["end"]) == (True, True)


@pytest.mark.parametrize(
    "more", [["work", "--until-back", "--end"], ["--all", "--until-back"], ["--all", "--end"]]
)
def test_it_is_begun_or_ended_for_one_queue(linked: FakeAdmin, more: list[str]) -> None:
    assert run(linked.data, "takeover", *more, "--from", "a", "--yes").exit_code == 2
    assert linked.reported == []
