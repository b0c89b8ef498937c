"""`zbroker-admin replication lag` is a number, and a verdict for monitoring."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from tests.cli.replication.rows import ALL, IN, OUT, links, run

FOUND = links(OUT, OUT | {"name": "c", "lag": 0}, IN, IN | {"name": "d"})


@pytest.fixture
def linked(fake: FakeAdmin) -> FakeAdmin:
    fake.answers[ALL] = FOUND
    return fake


def test_each_destination_is_a_line(linked: FakeAdmin) -> None:
    result = run(linked.data, "lag")
    assert (result.stdout, result.exit_code) == ("b 12\nc 0\n", 0)


def test_of_one_destination_there_is_the_number_alone(linked: FakeAdmin) -> None:
    assert run(linked.data, "lag", "b").stdout == "12\n"
    assert run(linked.data, "lag", "c").stdout == "0\n"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 0), (("--warning", "12"), 0), (("--warning", "11"), 1), (("--critical", "11"), 2),
        (("--warning", "0", "--critical", "12"), 1), (("c", "--critical", "0"), 0),
    ],
)  # fmt: skip
def test_the_exit_code_is_that_of_the_worst(
    linked: FakeAdmin, options: tuple[str, ...], code: int
) -> None:
    assert run(linked.data, "lag", *options).exit_code == code


def test_json_says_which_is_over(linked: FakeAdmin) -> None:
    found = json.loads(run(linked.data, "lag", "--warning", "5", "--json").stdout)
    assert found == {
        "state": "warning",
        "code": 1,
        "destinations": [
            {"name": "b", "lag": 12, "state": "warning", "code": 1},
            {"name": "c", "lag": 0, "state": "ok", "code": 0},
        ],
    }


def test_a_source_has_no_lag_here(linked: FakeAdmin) -> None:
    result = run(linked.data, "lag", "d")
    assert (result.exit_code, "there are: b, c" in result.stderr) == (3, True)


def test_without_destinations_it_says_where_they_come_from(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links()
    result = run(fake.data, "lag")
    assert (result.exit_code, "[[destination]]" in result.stdout) == (0, True)


def test_nothing_found_out_is_unknown(fake: FakeAdmin, maker: Maker) -> None:
    fake.answers[ALL] = (503, {"code": "not_ready", "reason": "it starts", "hint": ""})
    assert run(fake.data, "lag").exit_code == 3
    assert run(maker.directory, "lag").exit_code == 3
    assert run(fake.data, "lag", "--warning", "x").exit_code == 3
