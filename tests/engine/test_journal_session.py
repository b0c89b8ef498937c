"""zbroker/engine/journal_session.py: when it says Hello, and to which journal it belongs."""

from __future__ import annotations

from zbroker.engine.effects import JOURNAL, WATERMARKS, Follow, Reconnect, Say
from zbroker.engine.journal_session import WELCOME_WAIT_MS, JournalSession
from zbroker.engine.news_need import FOLLOW_MS
from zbroker.wire.internal import Hello, Welcome

MINE, OLD, NEW = 70, 7, 8


def session() -> JournalSession:
    return JournalSession(MINE, lambda number: Hello("queues", MINE, number=number))


def hello(number: int) -> list[Reconnect | Say]:
    return [Reconnect(JOURNAL), Say(JOURNAL, Hello("queues", MINE, number=number))]


def welcome(incarnation: int, echo: int = MINE) -> Welcome:
    return Welcome(incarnation, echo, 1, 1, 1 << 20, "sync", 1, 1, 1)


def test_hello_is_said_on_a_new_socket_until_a_journal_answers() -> None:
    one = session()
    assert one.tick(5) == hello(1)
    assert one.tick(5 + WELCOME_WAIT_MS - 1) == []
    assert one.next_wake_ms() == 5 + WELCOME_WAIT_MS
    assert one.tick(5 + WELCOME_WAIT_MS) == hello(2)
    assert one.welcome(welcome(OLD)) == [Reconnect(WATERMARKS)]
    assert one.welcomed_by == OLD
    assert one.next_wake_ms() is None
    assert one.tick(10**9) == []


def test_each_wait_for_an_answer_is_longer_until_one_comes() -> None:
    one, now_ms, waits = session(), 0, []
    for _ in range(6):
        assert one.tick(now_ms)
        waits.append((one.next_wake_ms() or 0) - now_ms)
        now_ms += waits[-1]
    assert waits == [n * WELCOME_WAIT_MS for n in (1, 2, 4, 8, 8, 8)]
    one.welcome(welcome(OLD))
    one.watermarks(NEW, now_ms)
    assert one.next_wake_ms() == now_ms + WELCOME_WAIT_MS


def test_a_welcome_to_the_process_before_this_one_counts_for_nothing() -> None:
    one = session()
    one.tick(0)
    assert one.welcome(welcome(OLD, echo=MINE - 1)) is None
    assert one.welcomed_by == 0
    assert one.tick(WELCOME_WAIT_MS) == hello(2)


def test_watermarks_of_another_journal_end_the_session_at_once() -> None:
    one = session()
    one.tick(0)
    assert one.watermarks(NEW, 1) == [], "no journal listens yet: the Hello may have reached it"
    one.welcome(welcome(OLD))
    assert one.watermarks(OLD, 2) == []
    assert one.watermarks(NEW, 3) == hello(2)
    assert one.welcomed_by == 0
    assert one.watermarks(NEW, 4) == [], "it was said"


def test_a_journal_that_knows_us_no_more_is_greeted_again() -> None:
    one = session()
    one.tick(0)
    one.welcome(welcome(OLD))
    assert one.over(3) == hello(2)
    assert one.over(4) == [], "it was said"
    assert one.welcome(welcome(OLD)) == [Reconnect(WATERMARKS)]
    assert one.welcomed_by == OLD


def test_the_same_journal_may_welcome_twice() -> None:
    one = session()
    one.tick(0)
    one.welcome(welcome(OLD))
    assert one.welcome(welcome(OLD)) == [], "nothing old can wait in the subscription"
    assert one.welcome(welcome(NEW)) == [Reconnect(WATERMARKS)]


def test_commits_are_followed_from_the_first_need_until_a_while_after_the_last() -> None:
    one = session()
    assert one.follow(0, needed=False) == []
    assert one.follow(1, needed=True) == [Follow(True)]
    assert one.follow(5, needed=True) == []
    assert one.follow(4 + FOLLOW_MS, needed=False) == []
    assert one.follow(5 + FOLLOW_MS, needed=False) == [Follow(False)]
    assert one.follow(6 + FOLLOW_MS, needed=False) == []
    assert one.follow(7 + FOLLOW_MS, needed=True) == [Follow(True)]
