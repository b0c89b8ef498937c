"""zbroker/server/listener/zap.py: who is informed that a key may come in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from zbroker.clock import SystemClock
from zbroker.errors import ConfigError
from zbroker.server.listener import zap
from zbroker.server.listener.zap import ENDPOINT, TURN_MAX, SelfTestCase, ZapHandler, answer, prove

KNOWN = bytes(range(32))
NAME = z85.encode(KNOWN).decode()
QUESTION = [b"rid", b"", b"1.0", b"7", b"zbroker", b"10.0.0.1", b"", b"CURVE", KNOWN]


def allowed(key: str) -> bool:
    return key == NAME


def test_a_known_key_is_reported_as_the_user() -> None:
    assert answer(QUESTION, allowed) == [b"", b"1.0", b"7", b"200", b"", NAME.encode(), b""]


def changed(at: int, value: bytes) -> list[bytes]:
    return [*QUESTION[:at], value, *QUESTION[at + 1 :]]


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (changed(8, bytes(32)), b"400"),
        (changed(2, b"1.1"), b"500"),
        (changed(2, b""), b"500"),
        (changed(4, b""), b"500"),
        (changed(4, b"global"), b"500"),
        (changed(7, b"NULL"), b"500"),
        (changed(7, b"PLAIN"), b"500"),
        (changed(7, b"curve"), b"500"),
        (changed(8, b""), b"500"),
        (changed(8, KNOWN[:31]), b"500"),
        (changed(8, KNOWN + b"\0"), b"500"),
        (changed(8, NAME.encode()), b"500"),
        ([*QUESTION, b""], b"500"),
        (QUESTION[:8], b"500"),
        (QUESTION[:4], b"500"),
    ],
)
def test_anything_else_is_refused(question: list[bytes], status: bytes) -> None:
    reply = answer(question, allowed)
    assert reply is not None
    assert (reply[2], reply[3], reply[5]) == (b"7", status, b"")


@pytest.mark.parametrize("count", range(4))
def test_what_has_no_request_cannot_be_answered(count: int) -> None:
    assert answer(QUESTION[:count], allowed) is None


def test_without_a_delimiter_there_is_no_answer() -> None:
    assert answer(changed(1, b"x"), allowed) is None


FRAMES = st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(QUESTION)), max_size=12)


@given(FRAMES)
def test_whatever_is_asked_only_the_question_itself_gets_a_200(frames: list[bytes]) -> None:
    reply = answer(frames, allowed)
    if reply is not None and reply[3] == b"200":
        assert frames[1:3] == QUESTION[1:3]
        assert (frames[4], frames[7], frames[8]) == (b"zbroker", b"CURVE", KNOWN)
        assert len(frames) == len(QUESTION)


@given(st.integers(1, 8), st.binary(max_size=40))
def test_a_question_with_one_other_part_gets_a_200_only_where_it_says_nothing(
    at: int, value: bytes
) -> None:
    reply = answer(changed(at, value), allowed)
    same = value == QUESTION[at]
    free = at in (3, 5, 6)  # request, address, identity
    assert (reply is not None and reply[3] == b"200") == (same or free)


# -- on its socket --------------------------------------------------------------------------------


class Bench:
    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.zap = ZapHandler(self.context, allowed)
        self.asker = self.context.socket(zmq.DEALER)
        self.asker.setsockopt(zmq.LINGER, 0)
        self.asker.connect(ENDPOINT)

    def ask(self, question: list[bytes]) -> bytes | None:
        self.asker.send_multipart(question[1:])
        self.zap.turn()
        return self.asker.recv_multipart()[3] if self.asker.poll(0) else None


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.context.destroy(linger=0)


def test_what_is_malformed_is_counted(bench: Bench) -> None:
    assert [bench.ask(each) for each in (QUESTION, changed(8, bytes(32)))] == [b"200", b"400"]
    assert bench.zap.malformed == 0
    assert [bench.ask(each) for each in (changed(4, b"x"), QUESTION[:3])] == [b"500", None]
    assert bench.zap.malformed == 2


def test_a_guest_comes_in_as_long_as_it_is_one(bench: Bench) -> None:
    other = changed(8, bytes(32))
    bench.zap.guest = z85.encode(bytes(32)).decode()
    assert bench.ask(other) == b"200"
    bench.zap.guest = ""
    assert bench.ask(other) == b"400"


def test_a_turn_answers_so_many_at_most(bench: Bench) -> None:
    for _ in range(2 * TURN_MAX):
        bench.asker.send_multipart(QUESTION[1:])
    bench.zap.turn()
    replies = 0
    while bench.asker.poll(0):
        bench.asker.recv_multipart()
        replies += 1
    assert replies == TURN_MAX


class Place:
    """Where a listener may be; what is there without one lets everybody in, or says nothing."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.bind("tcp://127.0.0.1:*")
        self.endpoint = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.poller = zmq.Poller()
        self.poller.register(self.router, zmq.POLLIN)

    def prove(self, *cases: SelfTestCase) -> None:
        prove(self.context, self.endpoint, [*cases], self.poller.poll, SystemClock())


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.context.destroy(linger=0)


def test_who_may_come_in_does(place: Place) -> None:
    place.prove(SelfTestCase("anybody", None, enters=True))


def test_who_comes_in_without_leave_is_noticed(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"does not serve: a stranger came in") as caught:
        place.prove(
            SelfTestCase("a friend", None, enters=True),
            SelfTestCase("a stranger", None, enters=False),
        )
    assert caught.value.code == "bad_config"


def test_a_listener_that_says_nothing_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zap, "SELF_TEST_MS", 100)
    place.router.unbind(place.endpoint)
    place.endpoint = "tcp://127.0.0.1:1"
    with pytest.raises(ConfigError, match="a friend got no answer"):
        place.prove(SelfTestCase("a friend", None, enters=True))


def test_nothing_of_a_trial_is_left(place: Place) -> None:
    """Or the context would not end."""
    place.prove(SelfTestCase("anybody", None, enters=True))
    place.router.close(0)
    place.context.term()
