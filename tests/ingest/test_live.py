"""ingest's link to delivery: granted bytes, hellos, silence."""

from __future__ import annotations

from zbroker.ingest.live import HELLO_WAIT_MS, SILENCE_MS, LiveForward, LiveLink, LiveReconnect
from zbroker.limits import BEAT_MS
from zbroker.wire import internal as i

MINE, DELIVERY = 5, 21
BEAT = [LiveForward(i.Live(DELIVERY, []), [])]


def entry(count: int = 1) -> i.Entry:
    return i.Entry(1, 1, 1, count, None, 0, None, ["u"])


def grant(taken: int = 0, incarnation: int = DELIVERY, echo: int = MINE) -> i.Grant:
    return i.Grant(incarnation, echo, taken, 100)


def linked() -> LiveLink:
    link = LiveLink(MINE)
    hello(link, 0)
    link.on_grant(grant())
    assert link.tick(1) == []
    return link


def hello(link: LiveLink, now_ms: int) -> None:
    reconnect, said = link.tick(now_ms)
    assert reconnect == LiveReconnect()
    assert isinstance(said, LiveForward)
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
    assert isinstance(live, LiveForward)
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
    assert (link.up, link.passed, link.dropped) == (False, 0, 4)
    assert link.flush() == []
    hello(link, 2)
    link.on_grant(grant(incarnation=22))
    link.take(entry(), b"x")
    [live] = link.flush()
    assert isinstance(live, LiveForward)
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


def test_grants_on_the_beat_keep_the_link_up() -> None:
    link = linked()
    for now_ms in range(BEAT_MS, 5 * SILENCE_MS, BEAT_MS):
        link.on_grant(grant())
        assert link.tick(now_ms) == BEAT
        assert link.tick(now_ms + 1) == []
    link.check()
