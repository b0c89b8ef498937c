"""Whose messages of a replicated queue are: names, sentences, and what to do."""

from __future__ import annotations

import pytest

from zbroker.admin.owner_reports import LinkedInstance, document, linked, sentences
from zbroker.wire.queue_surveys import OwnedMessages
from zbroker.wire.replicas import ReplicationRow

SECOND_NS = 1_000_000_000
NOW_NS = 100 * SECOND_NS
TAKEOVER = "zbroker-admin queue takeover work --from "


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([ReplicationRow("a", "out", "sending", 0xA)], LinkedInstance("a", up=True)),
        ([ReplicationRow("a", "out", "down", 0xA)], LinkedInstance("a", up=False)),
        ([ReplicationRow("a", "in", "receiving", 0xA)], LinkedInstance("a", up=True)),
        ([ReplicationRow("a", "in", "opening", 0xA)], LinkedInstance("a", up=False)),
        (
            [
                ReplicationRow("a", "out", "down", 0xA),
                ReplicationRow("other", "in", "receiving", 0xA),
            ],
            LinkedInstance("a", up=True),
        ),
        (
            [
                ReplicationRow("x", "in", "receiving", 0xA),
                ReplicationRow("a", "out", "down", 0xA),
            ],
            LinkedInstance("a", up=True),
        ),
        ([ReplicationRow("a", "out", "down")], None),
    ],
)
def test_instances_are_known_by_their_links(
    rows: list[ReplicationRow], expected: LinkedInstance | None
) -> None:
    assert linked(rows).get(0xA) == expected


def test_an_owner_is_named_with_what_to_do() -> None:
    rows = [OwnedMessages(0xA, 3, 7, 40 * SECOND_NS), OwnedMessages(0xB, 1, 9)]
    known = {0xA: LinkedInstance("a", up=False), 0xB: LinkedInstance("b", up=True)}
    lines = sentences("work", rows, known, NOW_NS, single=False)
    assert lines[0] == (
        "3 messages belong to a (000000000000000a), the oldest here since 19700101T000040Z (1 min)"
    )
    assert lines[1].startswith("a is not connected")
    assert lines[1].endswith(TAKEOVER + "a")
    assert lines[2] == "1 message belongs to b (000000000000000b)"
    assert lines[3].startswith("b is connected")


def test_of_one_message_the_number_of_its_ownership_is_said() -> None:
    row = OwnedMessages(0xA, 1, 7, 40 * SECOND_NS, number=2)
    one, other = sentences("work", [row], {}, NOW_NS, single=True)
    assert one == (
        "it belongs to instance 000000000000000a, under ownership number 2, here since "
        "19700101T000040Z (1 min)"
    )
    assert other.startswith("no link")
    assert other.endswith(TAKEOVER + "000000000000000a")


def test_an_initial_owner_is_found_by_its_name() -> None:
    row = OwnedMessages(0, 1, 7, name="a")
    assert document(row, {}, NOW_NS)["instance"] == ""
    assert document(row, {}, NOW_NS)["up"] is None
    found = document(row, {0xA: LinkedInstance("a", up=True)}, NOW_NS)
    assert (found["instance"], found["name"], found["up"]) == ("000000000000000a", "a", True)
    assert (found["since"], found["since_s"]) == (None, None)
    assert sentences("work", [row], {}, NOW_NS, single=True)[0] == "it belongs to a"
