"""Bad frames from outside: each is answered with its published code, counted, and harms no one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from zbroker.client import connect
from zbroker.errors import CODES
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

WAIT_MS = 30_000
KEPT: list[zmq.Socket[bytes]] = []  # of the test that runs: closed with its context
#: a block of a zstd frame: 128 KiB of one byte (RFC 8878, 3.1.1.2)
ZEROS = (1 << 20 | 1 << 1).to_bytes(3, "little") + b"\0"
LAST_ZEROS = (1 << 20 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
#: a zstd frame that announces 1 GiB and holds next to nothing, made without making so much
BOMB = b"\x28\xb5\x2f\xfd\x80\x58" + (1 << 30).to_bytes(4, "little") + ZEROS * 8_191 + LAST_ZEROS


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        before = running.pids
        yield running
        assert running.pids == before, "no process died"


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A context whose sockets live until the end of the test."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    KEPT.clear()
    yield made
    made.destroy(linger=0)


class Listener:
    """A DEALER without a library."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], url: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        KEPT.append(self.socket)
        self.socket.connect(url)

    def ask(self, *frames: bytes) -> dict[str, Any]:
        self.socket.send_multipart(list(frames))
        return self.answer()

    def say(self, command: dict[str, Any], *frames: bytes) -> dict[str, Any]:
        return self.ask(msgpack.packb(command), *frames)

    def answer(self) -> dict[str, Any]:
        assert self.socket.poll(WAIT_MS), "no answer"
        answer: dict[str, Any] = msgpack.unpackb(self.socket.recv_multipart()[0])
        return answer

    def logon(self, name: str) -> dict[str, Any]:
        hello = self.say(
            {
                "cmd": "logon",
                "cid": "1",
                "client": name,
                "instance": os.urandom(4).hex(),
                "version": 1,
            }
        )
        assert hello["type"] == "processed", hello
        return hello


GARBAGE = [
    ((b"\xc1\xff\x00",), "bad_frame"),
    ((b"",), "bad_frame"),
    ((os.urandom(200) + b"\xc1",), "bad_frame"),
    ((b"\x91" * 10_000,), "bad_frame"),
    ((msgpack.packb([1, 2]),), "bad_frame"),
    ((msgpack.packb({"cid": "9"}),), "bad_field"),
    ((msgpack.packb({"cmd": "sing", "cid": "9"}),), "bad_command"),
    ((msgpack.packb({"cmd": 5}),), "bad_field"),
    ((bytes(70_000),), "too_large"),
    ((b"a",) * 9, "bad_frame"),
]


@pytest.mark.parametrize("listener", ["ingest", "delivery"])
@pytest.mark.parametrize(("frames", "code"), GARBAGE)
def test_garbage_is_answered_with_its_code(
    broker: LocalBroker,
    context: zmq.Context[zmq.Socket[bytes]],
    listener: str,
    frames: tuple[bytes, ...],
    code: str,
) -> None:
    url = (
        broker.url
        if listener == "ingest"
        else Listener(context, broker.url).logon("finder")["endpoints"]["delivery"]
    )
    answer = Listener(context, url).ask(*frames)
    assert (answer["cmd"], answer["code"]) == ("error", code)
    assert answer["code"] in CODES
    assert answer["reason"]


PUBLISHES = [
    ({"cmd": "publish", "seq": 1, "topic": "t"}, (b"x",), "not_logged_on"),
    ({"cmd": "flush"}, (), "not_logged_on"),
    ({"cmd": "publish", "seq": "1", "topic": "t"}, (b"x",), "bad_field"),
    ({"cmd": "publish", "seq": 0, "topic": "t"}, (b"x",), "bad_field"),
    ({"cmd": "publish", "topic": "t"}, (b"x",), "bad_field"),
]


@pytest.mark.parametrize(("command", "frames", "code"), PUBLISHES)
def test_a_publish_that_is_wrong_before_the_logon_has_its_code(
    broker: LocalBroker,
    context: zmq.Context[zmq.Socket[bytes]],
    command: dict[str, Any],
    frames: tuple[bytes, ...],
    code: str,
) -> None:
    assert Listener(context, broker.url).say(command, *frames)["code"] == code


BODIES = [
    ({"topic": "t", "count": 3}, msgpack.packb([b"a", b"b"]), "bad_frame"),
    ({"topic": "t", "count": 2}, b"\xdd\xff\xff\xff\xff", "bad_frame"),
    ({"topic": "t", "count": 1}, msgpack.packb(["text"]), "bad_frame"),
    ({"topic": "t", "count": 1, "codec": "zstd"}, BOMB, "too_large"),
    ({"topic": "t", "crc": 1}, b"x", "bad_frame"),
    ({"topic": "\x00"}, b"x", "bad_topic"),
    ({"topic": "t"}, bytes((16 << 20) + 1), "too_large"),
    ({}, b"x", "bad_field"),
]


def end_of(broker: LocalBroker) -> int:
    with connect(broker.url) as client:
        return client.ranges().persisted


@pytest.mark.parametrize(("keys", "body", "code"), BODIES)
def test_a_body_that_lies_is_refused_and_nothing_of_it_is_stored(
    broker: LocalBroker,
    context: zmq.Context[zmq.Socket[bytes]],
    keys: dict[str, Any],
    body: bytes,
    code: str,
) -> None:
    listener = Listener(context, broker.url)
    seq = listener.logon("liar")["seq"] + 1
    before = end_of(broker)
    answer = listener.say({"cmd": "publish", "seq": seq, **keys}, body)
    assert (answer["code"], answer["seq"]) == (code, seq)
    assert end_of(broker) == before


def test_nothing_grows_under_bombs(
    broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    listener = Listener(context, broker.url)
    seq = listener.logon("bomber")["seq"] + 1
    ingest = psutil.Process(broker.pids["ingest"])
    command = {"cmd": "publish", "seq": seq, "topic": "t", "count": 1, "codec": "zstd"}
    listener.say(command, BOMB)
    before = ingest.memory_info().rss
    for _ in range(50):
        assert listener.say(command, BOMB)["code"] == "too_large"
    assert ingest.memory_info().rss - before < 32 << 20


def test_a_frame_over_the_limit_ends_the_connection(
    broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    listener = Listener(context, broker.url)
    seq = listener.logon("huge")["seq"] + 1
    monitor = listener.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    KEPT.append(monitor)
    listener.socket.send_multipart(
        [msgpack.packb({"cmd": "publish", "seq": seq, "topic": "t"}), bytes(20 << 20)]
    )
    assert monitor.poll(WAIT_MS), "documented: libzmq closes the connection"
    assert Listener(context, broker.url).logon("next")["type"] == "processed"
    listener.socket.disable_monitor()


@pytest.mark.seed("002-21")
@pytest.mark.seed("002-22")
def test_two_clients_with_one_name_are_an_error(
    broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    first, second = Listener(context, broker.url), Listener(context, broker.url)
    first.logon("twin")
    answer = second.say(
        {"cmd": "logon", "cid": "2", "client": "twin", "instance": "other", "version": 1}
    )
    assert (answer["code"], answer["cid"]) == ("name_in_use", "2")
    first.socket.close(linger=0)
    assert second.logon("twin")


def test_a_chosen_routing_id_is_refused(
    broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    listener = Listener(context, "tcp://127.0.0.1:1")
    socket = listener.socket
    socket.disconnect("tcp://127.0.0.1:1")
    socket.setsockopt(zmq.ROUTING_ID, b"victim")
    socket.connect(broker.url)
    socket.send(msgpack.packb({"cmd": "logon", "client": "x", "instance": "y"}))
    assert socket.poll(WAIT_MS)
    assert msgpack.unpackb(socket.recv())["code"] == "bad_field"


SUBSCRIBES = [
    ({"topic": "t", "bookmark": "nonsense"}, "bad_bookmark"),
    ({"topic": "t", "bookmark": "20139999T000000Z"}, "bad_bookmark"),
    ({"topic": "t", "bookmark": "1|2|"}, "bookmark_not_found"),
    ({"topic": "t(", "regex": True}, "bad_filter"),
    ({"topic": "t", "filter": "/a = "}, "bad_filter"),
    ({"topic": "t", "options": {"rate": "fast"}}, "bad_field"),
    ({"topic": "t", "options": {"speed": 2}}, "bad_field"),
    ({"topic": "t", "credit": -1}, "bad_field"),
    ({"topic": 5}, "bad_field"),
]


@pytest.mark.parametrize(("keys", "code"), SUBSCRIBES)
def test_a_subscribe_that_is_wrong_has_its_code(
    broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]], keys: dict[str, Any], code: str
) -> None:
    hello = Listener(context, broker.url).logon("reader")
    listener = Listener(context, hello["endpoints"]["delivery"])
    assert (
        listener.say({"cmd": "logon", "cid": "1", "token": hello["token"]})["type"] == "processed"
    )
    answer = listener.say({"cmd": "subscribe", "cid": "2", "sid": "s", **keys})
    assert (answer["cmd"], answer["code"]) == ("error", code)


@pytest.mark.parametrize("token", ["", "abc", "abc.def", "x" * 3_000])
def test_a_made_up_token_opens_no_listener(
    broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]], token: str
) -> None:
    hello = Listener(context, broker.url).logon("reader")
    answer = Listener(context, hello["endpoints"]["delivery"]).say({"cmd": "logon", "token": token})
    assert answer["code"] in ("auth_failed", "bad_field")


def test_errors_are_counted(broker: LocalBroker, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    Listener(context, broker.url).ask(b"\xc1")
    processes = {process["room"]: process for process in broker.status()["processes"]}
    assert processes["ingest"]["state"] == "ready"
