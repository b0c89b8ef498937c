"""ingest's link to delivery: granted bytes, hellos, silence."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zbroker.engine.effects import Reconnect, Say
from zbroker.ingest.links import HELLO_WAIT_MS, SILENCE_MS, LinkEffect, LiveLink
from zbroker.limits import BEAT_MS
from zbroker.wire import internal as i

MINE, DELIVERY = 5, 21
LINKS = ("live", "live-2", "live-3")
BEAT = [Say("live", i.Live(DELIVERY, []))]


def entry(count: int = 1) -> i.Entry:
    return i.Entry(1, 1, 1, count, None, 0, None, ["u"])


def grant(taken: int = 0, incarnation: int = DELIVERY, echo: int = MINE) -> i.LiveCredit:
    return i.LiveCredit(incarnation, echo, taken, 100)


def linked() -> LiveLink:
    link = LiveLink(MINE)
    hello(link, 0)
    link.on_grant(grant())
    assert link.tick(1) == []
    return link


def hello(link: LiveLink, now_ms: int) -> None:
    reconnect, said = link.tick(now_ms)
    assert reconnect == Reconnect("live")
    assert isinstance(said, Say)
    assert said.message == i.Hello("ingest", MINE, [])


def test_hello_is_said_again_on_a_new_socket_until_it_is_answered() -> None:
    link = LiveLink(MINE)
    hello(link, 0)
    assert link.tick(HELLO_WAIT_MS - 1) == []
    hello(link, HELLO_WAIT_MS)
    link.on_grant(grant())
    assert link.up
    assert link.tick(HELLO_WAIT_MS) == []


def test_what_is_granted_is_sent_in_one_message() -> None:
    link = linked()
    link.take(entry(), bytes(60))
    link.take(entry(2), bytes(40))
    link.take(entry(3), bytes(1))
    [live] = link.flush()
    assert isinstance(live, Say)
    assert live.message == i.Live(DELIVERY, [entry(), entry(2)])
    assert (link.passed, link.dropped) == (3, 3)
    assert link.flush() == []
    link.on_grant(grant(taken=60))
    link.take(entry(), bytes(60))
    assert link.passed == 4
    link.check()


def test_another_delivery_is_greeted_and_what_was_taken_for_the_old_one_is_dropped() -> None:
    link = linked()
    link.take(entry(4), b"x")
    link.on_grant(grant(incarnation=22))
    assert (link.up, link.dropped) == (False, 4)
    assert link.flush() == []
    hello(link, 2)
    link.on_grant(grant(incarnation=22))
    link.take(entry(), b"x")
    [live] = link.flush()
    assert isinstance(live, Say)
    assert isinstance(live.message, i.Live)
    assert live.message.incarnation == 22


def test_a_delivery_that_does_not_know_us_is_greeted() -> None:
    link = linked()
    link.on_grant(grant(echo=0))
    hello(link, 2)


def test_silence_is_taken_for_death() -> None:
    link = linked()
    assert link.tick(SILENCE_MS + 1) == BEAT
    hello(link, SILENCE_MS + 2)
    link.take(entry(), b"x")
    assert link.dropped == 1


def test_a_delivery_that_grants_nothing_wants_nothing() -> None:
    link = LiveLink(MINE)
    hello(link, 0)
    link.on_grant(i.LiveCredit(DELIVERY, MINE, 0, 0))
    link.take(entry(2), b"x")
    assert (link.flush(), link.passed, link.dropped) == ([], 2, 0)
    link.on_grant(grant())
    link.take(entry(), b"x")
    assert len(link.flush()) == 1


def pair() -> LiveLink:
    """Two workers, both up; delivery of the second is one higher."""
    link = LiveLink(MINE, LINKS[:2])
    assert [effect.link for effect in link.tick(0)] == ["live", "live", "live-2", "live-2"]
    for worker in (0, 1):
        link.on_grant(grant(incarnation=DELIVERY + worker), worker)
    return link


def sent(link: LiveLink) -> list[tuple[int, int]]:
    """(worker, messages) of what goes out."""
    found = []
    for effect in link.flush():
        assert isinstance(effect, Say)
        assert isinstance(effect.message, i.Live)
        worker = LINKS.index(effect.link)
        assert effect.message.incarnation == DELIVERY + worker
        found.append((worker, sum(one.count for one in effect.message.entries)))
    return found


def test_every_worker_gets_it_and_it_counts_once() -> None:
    link = pair()
    link.take(entry(3), b"x")
    assert (sent(link), link.passed, link.dropped) == ([(0, 3), (1, 3)], 3, 0)


def test_each_worker_has_a_credit_of_its_own() -> None:
    link = pair()
    link.take(entry(), bytes(100))
    link.on_grant(grant(taken=100), 0)
    link.take(entry(), bytes(50))
    assert (sent(link), link.passed, link.dropped) == ([(0, 2), (1, 1)], 2, 1)


def test_a_worker_that_wants_nothing_gets_nothing() -> None:
    link = pair()
    link.on_grant(i.LiveCredit(DELIVERY, MINE, 0, 0), 0)
    link.take(entry(), b"x")
    assert (sent(link), link.passed, link.dropped) == ([(1, 1)], 1, 0)


def test_a_dead_worker_holds_no_one_up() -> None:
    link = pair()
    link.tick(1)
    for now_ms in range(BEAT_MS, SILENCE_MS + BEAT_MS, BEAT_MS):
        link.on_grant(grant(), 0)
        link.tick(now_ms)
    link.on_grant(grant(), 0)
    effects = link.tick(SILENCE_MS + BEAT_MS)
    assert Reconnect("live-2") in effects
    assert Reconnect("live") not in effects
    link.take(entry(), b"x")
    assert (link.up, sent(link), link.passed, link.dropped) == (True, [(0, 1)], 1, 1)
    link.on_grant(grant(incarnation=DELIVERY + 1), 1)
    link.take(entry(), b"x")
    assert sent(link) == [(0, 1), (1, 1)]
    link.check()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 60)),
        st.tuples(st.just("grant"), st.integers(0, 2), st.integers(0, 1), st.integers(0, 100)),
        st.tuples(st.just("tick"), st.integers(1, SILENCE_MS)),
        st.tuples(st.just("flush")),
    ),
    max_size=40,
)


@given(EVENTS)
def test_several_workers_are_as_many_links_of_one(events: list[tuple[Any, ...]]) -> None:
    """What one worker grants or does not hear changes nothing for the others."""
    link, alone = LiveLink(MINE, LINKS), [LiveLink(MINE, [link]) for link in LINKS]
    now_ms, used = 0, 0
    for event in events:
        sent: list[LinkEffect] = []
        wanted: list[list[LinkEffect]] = [[], [], []]
        match event:
            case "take", size:
                for one in (link, *alone):
                    one.take(entry(), bytes(size))
                used += size
            case "grant", worker, restarts, credit:
                reported = i.LiveCredit(DELIVERY + restarts, MINE, min(used, credit), credit)
                link.on_grant(reported, worker)
                alone[worker].on_grant(reported)
            case "tick", later_ms:
                now_ms += later_ms
                sent, wanted = link.tick(now_ms), [one.tick(now_ms) for one in alone]
            case _:
                sent, wanted = link.flush(), [one.flush() for one in alone]
        for worker in range(3):
            got = [effect for effect in sent if effect.link == LINKS[worker]]
            assert got == wanted[worker]
        assert link.dropped == sum(one.dropped for one in alone)
    messages = sum(event[0] == "take" for event in events)
    assert link.passed <= messages <= link.passed + link.dropped, "each was passed on or counted"


def test_grants_on_the_beat_keep_the_link_up() -> None:
    link = linked()
    for now_ms in range(BEAT_MS, 5 * SILENCE_MS, BEAT_MS):
        link.on_grant(grant())
        assert link.tick(now_ms) == BEAT
        assert link.tick(now_ms + 1) == []
    link.check()
