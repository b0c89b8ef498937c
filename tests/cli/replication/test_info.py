"""`zbroker-admin replication info` shows one link, what it means, and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import ALL, IN, OUT, links, run
from zbroker.cli.replication.explanation import explained


def test_json_has_the_links_with_that_name_and_their_meaning(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links(OUT, OUT | {"name": "c"}, IN)
    found = json.loads(run(fake.data, "info", "b", "--json").stdout)
    assert found["links"] == [OUT, IN]
    assert len(found["lines"]) == 3


def test_text_has_facts_and_then_what_they_mean(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links(OUT | {"stopped": {"a.1": "fork"}}, IN)
    lines = run(fake.data, "info", "b").stdout.splitlines()
    assert "lag              12" in lines
    assert "to               tcp://10.0.0.2:9104" in lines
    assert "stopped          a.1 (fork)" in lines
    assert lines[-1] == "from b: it sends its log, and messages from there are stored here"


def test_a_link_that_there_is_none_of_is_not_found(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links(OUT, IN)
    result = run(fake.data, "info", "x")
    assert (result.exit_code, "no link 'x'; there are: b" in result.stderr) == (3, True)
    fake.answers[ALL] = links()
    assert "[[destination]]" in run(fake.data, "info", "x").stderr


def test_no_name_is_wrong_usage(fake: FakeAdmin) -> None:
    assert run(fake.data, "info").exit_code == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lag": 0}, "it holds everything that it wants of this log"),
        ({}, "it lacks 12 positions of this log, from 5300 on; they are being sent"),
        ({"state": "down"}, "whether this host reaches tcp://10.0.0.2:9104"),
        ({"state": "down"}, "the log here is kept from position 5300 on"),
        ({"state": "greeting"}, "has not answered yet"),
        ({"state": "finding"}, "has to go on in this log"),
        ({"state": "paused", "paused": True}, "zbroker-admin replication resume b"),
        ({"paused": True}, "4096 bytes that were sent are awaited"),
        ({"topics": ["t"]}, "b gets these topics only: t. Staged batches go there message by"),
        ({"filter": "/n > 1"}, "of their messages those for which this is true: /n > 1"),
        ({"topics": ["t"], "filter": "/n"}, "these topics only: t; of their messages those"),
        ({"problem": "another protocol"}, "b refused the last Hello: another protocol"),
        ({"mode": "async"}, "messages are acknowledged before it has them"),
        ({}, "acknowledgements wait until 1 of such destinations have a message"),
        ({"downgraded": True}, "lagged for longer than its downgrade_after"),
        ({"downgraded": True, "by_hand": True}, "zbroker-admin replication upgrade b"),
        ({"stopped": {"a.1": "fork"}}, "(fork): the generation was closed without"),
        ({"stopped": {"a.1": "gap"}}, "zbroker-admin journal verify"),
        ({"stopped": {"a.1": "disk_full"}}, "replication.record_refused"),
    ],
)
def test_what_a_link_is_like_has_a_line(more: dict[str, Any], words: str) -> None:
    assert any(words in line for line in explained(OUT | more, 1))


@pytest.mark.parametrize("state", ["opening", "receiving"])
def test_a_source_has_a_line(state: str) -> None:
    (line,) = explained(IN | {"state": state}, None)
    assert line.startswith("from b: ")
