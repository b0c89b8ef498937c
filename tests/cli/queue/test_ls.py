"""`zbroker-admin queue ls` tells what queues hold."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from tests.cli.queue.rows import ROW, run

FOUND = {"persisted": 100, "queues": [ROW, ROW | {"name": "all", "topic": "o.*", "regex": True}]}
ALL = "GET /queues"


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert json.loads(run(fake.data, "ls", "--json").stdout) == FOUND


def test_each_queue_is_a_line(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    first, second = run(fake.data, "ls").stdout.splitlines()
    assert first == (
        "name=work kind=work topic=orders state=ready depth=5 ready=2 leased=3 delayed=0 "
        "elsewhere=1 oldest_s=3.5 consumers=1 active=- full=- entered_s=1.5 delivered_s=1.0 "
        "acked_s=0.5 dead=2 bytes=2048"
    )
    assert "topic=/o.*/ " in second


def test_without_any_it_says_how_to_make_one(fake: FakeAdmin) -> None:
    fake.answers[ALL] = {"persisted": 1, "queues": []}
    assert "queue create" in run(fake.data, "ls").stdout


def test_a_process_that_does_not_answer_is_an_error(fake: FakeAdmin) -> None:
    fake.answers[ALL] = (503, {"code": "not_ready", "reason": "it starts", "hint": ""})
    result = run(fake.data, "ls")
    assert (result.exit_code, "it starts" in result.stderr) == (1, True)


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert run(maker.directory.parent, "ls").exit_code == 3
