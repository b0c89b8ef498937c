"""When a process hears each mark of the replication process."""

from __future__ import annotations

from zbroker.engine.effects import FollowMark
from zbroker.engine.news_need import FOLLOW_MS
from zbroker.engine.replicated_mark import ReplicatedMark


def test_it_is_followed_while_something_waits_and_for_a_while_after() -> None:
    mark = ReplicatedMark(on=True)
    assert mark.follow(1, needed=False) == []
    assert mark.follow(2, needed=True) == [FollowMark(True)]
    assert mark.follow(3, needed=True) == []
    assert mark.follow(2 + FOLLOW_MS, needed=False) == []
    assert mark.follow(3 + FOLLOW_MS, needed=False) == [FollowMark(False)]


def test_it_is_never_followed_where_no_destination_is_waited_for() -> None:
    assert ReplicatedMark(on=False).follow(1, needed=True) == []
