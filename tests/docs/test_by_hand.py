"""The client of docs/howto/by_hand.py: what it sends, and what it makes of faults."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest
import zmq

from tests.docs.pages import ROOT
from tests.process.secured import Secured
from tests.process.storm_instance import Instance
from zbroker.local import LocalBroker

COUNT: Final = 3_000
T: Final = 60.0


@pytest.fixture(name="by_hand")
def by_hand_fixture() -> Iterator[ModuleType]:
    """The program, freshly loaded. Shorter heartbeats would make it fail on a busy machine."""
    spec = spec_from_file_location("by_hand", ROOT / "docs/howto/by_hand.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["by_hand"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    made: list[Any] = []
    connect = module.Connection.__init__
    module.Connection.__init__ = lambda one, *given: (made.append(one), connect(one, *given))[1]
    yield module
    for connection in made:
        connection.close()  # of programs that a test leaves in the middle
    del sys.modules["by_hand"]


class Sends:
    """Counts what a program publishes, and loses some of it."""

    def __init__(self, by_hand: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: Counter[int] = Counter()  # by sequence
        self.lose: set[int] = set()
        send = by_hand.Connection.send

        def counted(connection: Any, command: dict[str, Any], *body: bytes) -> None:
            if command["cmd"] == "publish":
                self.of[command["seq"]] += 1
                if command["seq"] in self.lose:
                    self.lose.remove(command["seq"])
                    return
            send(connection, command, *body)

        monkeypatch.setattr(by_hand.Connection, "send", counted)


@pytest.fixture
def sends(by_hand: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Sends:
    return Sends(by_hand, monkeypatch)


class Reader(threading.Thread):
    """Something that iterates in a thread, until it has so many different messages."""

    def __init__(self, read: Callable[[Callable[[int], bool]], None], count: int) -> None:
        super().__init__(daemon=True)
        self.numbers: list[int] = []
        self._read, self._different, self._count = read, set[int](), count
        self.start()

    def run(self) -> None:
        self._read(self._take)

    def _take(self, number: int) -> bool:
        """False: that was all."""
        self.numbers.append(number)
        self._different.add(number)
        return len(self._different) < self._count

    def wait(self) -> list[int]:
        self.join(T)
        assert not self.is_alive(), f"{len(self._different)} of {self._count} after {T} s"
        return self.numbers


def subscriber(by_hand: ModuleType, url: str) -> Reader:
    def read(take: Callable[[int], bool]) -> None:
        for message in by_hand.Subscriber(by_hand.identity(url, "reader"), "orders"):
            if not take(int(message.payload)):
                break

    return Reader(read, COUNT)


def consumer(by_hand: ModuleType, url: str) -> Reader:
    def read(take: Callable[[int], bool]) -> None:
        work = by_hand.Consumer(by_hand.identity(url, "worker"), "work")
        for message in work:
            work.ack(message)
            if not take(int(message.payload)):
                break
        work.close()

    return Reader(read, COUNT)


@pytest.mark.process
def test_a_lost_frame_costs_one_round(by_hand: ModuleType, sends: Sends) -> None:
    sends.lose = {10, 700}
    with LocalBroker() as broker:
        publisher = by_hand.Publisher(by_hand.identity(broker.url, "by-hand"))
        for number in range(COUNT):
            publisher.publish("orders", b"%d" % number)
        publisher.close()
        found = list(by_hand.Subscriber(by_hand.identity(broker.url, "r"), "orders", until="now"))
    assert [int(message.payload) for message in found] == list(range(COUNT))
    assert max(sends.of.values()) == 2


@pytest.mark.process
def test_a_lost_frame_and_a_killed_broker_lose_and_double_nothing(
    by_hand: ModuleType, sends: Sends, tmp_path: Path
) -> None:
    """All of its processes are killed, and it comes back, while messages are in flight."""
    instance = Instance(tmp_path / "a")
    try:
        definition = {"topic": "orders", "lease": "5s"}
        instance.broker.ask("/queues/work/create", {"definition": definition})
        readers = subscriber(by_hand, instance.url), consumer(by_hand, instance.url)
        publisher = by_hand.Publisher(by_hand.identity(instance.url, "by-hand"))
        sends.lose = {10}
        for number in range(COUNT // 2):
            publisher.publish("orders", b"%d" % number)
        publisher.flush()
        restart = threading.Thread(target=instance.restart, daemon=True)
        restart.start()
        for number in range(COUNT // 2, COUNT):
            publisher.publish("orders", b"%d" % number)
        publisher.close()
        restart.join(T)
        assert readers[0].wait() == list(range(COUNT))
        assert set(readers[1].wait()) == set(range(COUNT))
        assert [int(message.data) for message in instance.messages()] == list(range(COUNT))
        assert max(sends.of.values()) == 2
        assert publisher.refused == []
        row = next(q for q in instance.broker.ask("/queues")["queues"] if q["name"] == "work")
        assert row["depth"] == 0
    finally:
        instance.close()


@pytest.mark.process
def test_keys_are_read_from_the_files_of_the_broker(by_hand: ModuleType, tmp_path: Path) -> None:
    with Secured(tmp_path / "s", {"pricer": ["everything"]}, "").broker as broker:
        keys = (
            by_hand.read_key(str(tmp_path / "s/server.key")),
            by_hand.read_key(str(tmp_path / "s/pricer.key_secret")),
            by_hand.read_key(str(tmp_path / "s/pricer.key_secret"), "secret"),
        )
        who = by_hand.identity(broker.url, "pricer", keys)
        publisher = by_hand.Publisher(who)
        publisher.publish("prices", b"1")
        publisher.close()
        (found,) = by_hand.Subscriber(who, "prices", until="now")
        assert found.payload == b"1"


# -- against a broker that says what a test wants -------------------------------------------------


class Scripted(threading.Thread):
    """A ROUTER that holds what follows `prev`, and refuses once what `refuse` names."""

    def __init__(self, refuse: dict[int, str], window: int = 0) -> None:
        """window: if it is given, nothing is acknowledged."""
        super().__init__(daemon=True)
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.linger = 0
        self.url = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.refuse, self.window, self.acks = refuse, window or 1 << 20, not window
        self.held: list[int] = [0]
        self.overfull = False
        self.stopped = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopped.is_set():
            if self.socket.poll(20):
                rid, header, *body = self.socket.recv_multipart()
                for said in self.answers(msgspec.msgpack.decode(header), *body):
                    self.socket.send_multipart([rid, msgspec.msgpack.encode(said)])
        self.socket.close()

    def answers(self, asked: dict[str, Any], *body: bytes) -> Iterator[dict[str, Any]]:
        held = self.held[-1]
        if asked["cmd"] == "logon":
            yield {
                "cmd": "ack", "type": "processed", "cid": asked["cid"], "seq": held, "acked": held,
                "window_bytes": self.window,
            }  # fmt: skip
        elif asked["cmd"] == "publish":
            said = {"cmd": "error", "seq": asked["seq"], "reason": "", "hint": ""}
            code = self.refuse.pop(asked["seq"], "")
            if code or asked["prev"] > held:
                yield {**said, "code": code or "sequence_gap", "high": held}
            else:
                if asked["seq"] > held:
                    self.held.append(asked["seq"])
                if self.acks:
                    yield {"cmd": "ack", "type": "persisted", "seq": self.held[-1]}
        elif asked["cmd"] in ("flush", "logoff"):
            yield {"cmd": "ack", "type": "persisted", "cid": asked["cid"], "seq": held}

    def close(self) -> None:
        self.stopped.set()
        self.join(T)


@pytest.mark.parametrize(
    "code", ["disk_full", "not_ready", "window_full", "sequence_gap", "bad_topic", "not_entitled"]
)
def test_a_refusal_costs_one_round(by_hand: ModuleType, sends: Sends, code: str) -> None:
    broker = Scripted({5: code, 40: code})
    try:
        publisher = by_hand.Publisher(by_hand.identity(broker.url, "by-hand"))
        for _ in range(100):
            publisher.publish("t", b"x")
        publisher.flush()
    finally:
        broker.close()
    final = [5, 40] if code in ("bad_topic", "not_entitled") else []
    assert [sequence for sequence, _ in publisher.refused] == final
    assert broker.held == [n for n in range(101) if n not in final]
    assert max(sends.of.values()) <= 2


def test_a_broker_that_lacks_what_it_acknowledged_is_an_error(by_hand: ModuleType) -> None:
    broker = Scripted({})
    try:
        publisher = by_hand.Publisher(by_hand.identity(broker.url, "by-hand"))
        publisher.publish("t", b"1")
        publisher.flush()
        broker.held = [0]
        publisher.publish("t", b"2")
        with pytest.raises(by_hand.Refused, match="an old copy"):
            publisher.flush()
    finally:
        broker.close()


def test_a_name_that_published_elsewhere_is_an_error(by_hand: ModuleType) -> None:
    broker = Scripted({})
    try:
        publisher = by_hand.Publisher(by_hand.identity(broker.url, "by-hand"))
        broker.held.append(7)
        with pytest.raises(by_hand.Refused, match="another program"):
            publisher._connect()
    finally:
        broker.close()


def test_the_window_is_kept(by_hand: ModuleType, sends: Sends) -> None:
    """Nothing is acknowledged: what is in flight stays below the window."""
    broker = Scripted({}, window=1_000)
    try:
        publisher = by_hand.Publisher(by_hand.identity(broker.url, "by-hand"))
        for _ in range(9):
            publisher.publish("t", bytes(92))
        assert publisher.in_flight == 900
        publisher.publish("t", bytes(192))
        assert list(publisher.unsent) == [10]
        assert sends.of.total() == 9
    finally:
        broker.close()


def test_the_crc_is_that_of_the_castagnoli_polynomial(by_hand: ModuleType) -> None:
    assert by_hand.crc32c(b"123456789") == 0xE3069283


def test_a_batch_that_was_changed_is_noticed(by_hand: ModuleType) -> None:
    said = {"cmd": "msg", "topic": "t", "publisher": 1, "seq": 1, "position": 1, "crc": 1}
    with pytest.raises(by_hand.Refused, match="bad_checksum"):
        list(by_hand.messages_of(said, b"\x91\xc4\x01a"))


def test_only_the_messages_that_count_are_handed_out(by_hand: ModuleType) -> None:
    said = {
        "cmd": "msg", "topics": ["a", "b"], "publisher": 1, "seq": 8, "position": 20, "skip": 1,
        "take": 2, "columns": {"index": b"\0\0\1\0\0\0\1\0"},
    }  # fmt: skip
    body = msgspec.msgpack.encode([b"1", b"2", b"3", b"4"])
    found = [(m.topic, m.payload, m.sequence, m.position) for m in by_hand.messages_of(said, body)]
    assert found == [("b", b"2", 8, 20), ("a", b"3", 9, 21)]
