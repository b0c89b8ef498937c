"""Messages of exchanges: where a batch says that they go, and from when on a binding counts."""

from __future__ import annotations

from array import array
from typing import Any

from msgspec import Raw, msgpack

from tests.ingest.rig import JOURNAL, MINE, WELCOME, Rig, item, made
from zbroker.config import RecordConfig
from zbroker.engine.contract import Now
from zbroker.engine.effects import Say
from zbroker.engine.events import Commands
from zbroker.exchanges import BindingRow, DeclaredQueue, Exchange, ExchangeRow, Row
from zbroker.exchanges.exchange import Binding, BoundQueue
from zbroker.exchanges.route_column import QUEUES_MAX, decode
from zbroker.ingest.contract import IngestSettings, PublishLimits
from zbroker.ingest.core import IngestCore
from zbroker.log.queue_records import QueueDeclaration, Version
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows, ExchangesUsed

A = b"\0aaaa"
LIMITS = PublishLimits(1 << 20, 1 << 20, 1 << 20, 10)
LIFE, FIRST = QueueDeclaration(5, 9, 1), Version(1, 9, 1)


def queue(name: str) -> BoundQueue:
    return BoundQueue(name, LIFE)


def exchange(name: str, kind: str = "topic", **more: Any) -> list[Row]:
    return [ExchangeRow(name, LIFE, FIRST, Exchange(name, kind, **more))]


def bound(name: str, to: str, key: str = "", **arguments: Any) -> list[Row]:
    binding = Binding(name, LIFE, to, LIFE, key, arguments)
    return [DeclaredQueue(to, LIFE), BindingRow(binding, FIRST)]


class Bench(Rig):
    """A core that knows some exchanges, and one client."""

    def __init__(self, *rows: list[Row], recording: Recording | None = None) -> None:
        super().__init__(made(LIMITS, recording))
        self.seq = 0
        self.to_journal: list[Any] = []
        self.tell(*rows)
        self.turn(item(A, m.Logon("p", "x", "1"), None))

    def tell(self, *rows: list[Row], position: int = 50, whole: bool = True) -> None:
        packed = [Raw(msgpack.encode(row)) for each in rows for row in each]
        self.hear(ExchangeRows(0, len(packed), position, packed, whole))

    def said(self, say: Say) -> list[Any]:
        if isinstance(say.message, AskExchanges | ExchangesUsed):
            self.to_journal.append(say.message)
            return []
        return super().said(say)

    def one(self, topic: str, key: str | None = None, **more: Any) -> Any:
        self.seq += 1
        data = None if key is None else key.encode()
        return item(A, m.Publish(self.seq, topic, key=data, **more), b"x")

    def many(self, topics: list[str], index: list[int], keys: list[str | None]) -> Any:
        body = bodies.pack([b"x"] * len(keys))
        column = bodies.pack([None if key is None else key.encode() for key in keys])  # type: ignore[misc]
        columns = m.Columns(index=array("H", index).tobytes(), keys=column)
        self.seq += len(keys)
        first = self.seq - len(keys) + 1
        return item(A, m.Publish(first, topics=topics, count=len(keys), columns=columns), body)

    def routes(self) -> list[list[list[str]]]:
        """Of each batch that went to the journal, of each message."""
        found = []
        for _, entry, _ in self.appended:
            if entry.routes:
                routes = decode(entry.routes, entry.count)
                places = range(entry.count)
                found.append([[each.name for each in routes.queues_of(at)] for at in places])
            else:
                found.append([])
        self.appended.clear()
        return found


EVENTS = [exchange("events"), bound("events", "bills", "order.#"), bound("events", "audit", "#")]


def test_a_batch_says_where_its_messages_go() -> None:
    bench = Bench(*EVENTS)
    bench.turn(bench.one("events", "order.1"), bench.one("events", "x"), bench.one("events"))
    assert bench.routes() == [[["audit", "bills"], ["audit"], ["audit"]]]


def test_messages_of_ordinary_topics_say_nothing() -> None:
    bench = Bench(*EVENTS)
    bench.turn(bench.one("orders", "order.1"), bench.one("trades"))
    assert bench.routes() == [[]]
    bench.turn(bench.one("orders"), bench.one("events", "order.1"), bench.one("orders"))
    assert bench.routes() == [[[], ["audit", "bills"], []]]


def test_packed_messages_are_routed_one_by_one() -> None:
    bench = Bench(*EVENTS, exchange("other", "direct"), bound("other", "work", "k"))
    bench.turn(bench.many(["events", "t", "other"], [0, 1, 2, 2, 0], ["x", "k", "k", None, "y"]))
    assert bench.routes() == [[["audit"], [], ["work"], [], ["audit"]]]
    assert bench.core.stats()["unroutable"] == 2
    bench.turn(bench.many(["a", "b"], [0, 1], ["x", "k"]))
    assert bench.routes() == [[]]


def test_headers_decide_where_they_do() -> None:
    bench = Bench(exchange("h", "headers"), bound("h", "eu", **{"x-match": "all", "region": "eu"}))
    headers = {"region": Raw(msgpack.encode("eu"))}
    bench.turn(bench.one("h", headers=headers), bench.one("h", "k"), bench.one("h"))
    assert bench.routes() == [[["eu"], [], []]]
    body, column = bodies.pack([b"x", b"y"]), msgpack.encode([None, {"region": "eu"}])
    publish = m.Publish(4, "h", count=2, columns=m.Columns(headers=column))
    bench.turn(item(A, publish, body))
    assert bench.routes() == [[[], ["eu"]]]


def test_headers_decide_of_what_goes_to_an_alternate() -> None:
    rows = [exchange("e", "direct", alternate="h"), exchange("h", "headers")]
    bench = Bench(*rows, bound("h", "rest", **{"x-match": "any", "n": 1}))
    bench.turn(bench.one("e", "none", headers={"n": Raw(b"\1")}))
    assert bench.routes() == [[["rest"]]]


def test_clients_do_not_publish_to_an_internal_exchange() -> None:
    bench = Bench(exchange("e", internal=True))
    [error] = bench.turn(bench.one("e"))
    assert isinstance(error, m.Error)
    assert (error.code, bench.routes()) == ("bad_field", [])
    [error] = bench.turn(bench.many(["t", "e"], [0, 1], ["a", "b"]))
    assert isinstance(error, m.Error)
    assert (error.code, bench.routes()) == ("bad_field", [])


def test_a_batch_names_so_many_queues_at_most() -> None:
    """Single messages go in another batch, packed ones are refused as they came."""
    most = [bound("e", f"q{number}", "many") for number in range(QUEUES_MAX)]
    bench = Bench(exchange("e", "direct"), bound("e", "more", "one"), *most)
    bench.turn(bench.one("e", "many"), bench.one("e", "many"), bench.one("e", "one"))
    assert [len(batch) for batch in bench.routes()] == [2, 1]
    [error] = bench.turn(bench.many(["e", "t"], [0, 0], ["many", "one"]))
    assert isinstance(error, m.Error)
    assert (error.code, bench.routes()) == ("too_many", [])


def test_a_part_of_a_batch_that_is_recorded_has_its_routes() -> None:
    bench = Bench(*EVENTS, recording=Recording([RecordConfig("events")]))
    bench.turn(bench.many(["events", "live"], [0, 1, 1, 0], ["order.1", "x", "x", "x"]))
    assert bench.routes() == [[["audit", "bills"]], [["audit"]]]
    bench.turn(bench.many(["live", "other"], [0, 1], ["x", "x"]))
    assert bench.routes() == []


# -- from when on ---------------------------------------------------------------------------------


def test_rows_are_asked_for_before_any_session_is() -> None:
    core = IngestCore(IngestSettings(LIMITS, MINE))
    core.tick(Now(0, 1), drained=True)
    assert not core.handle(Commands([item(A, m.Logon("p", "x", "1"), None)]), Now(0, 1))
    effects = core.handle(WELCOME, Now(0, 1))
    said = [effect.message for effect in effects if isinstance(effect, Say)]
    assert [type(message) for message in said] == [AskExchanges, i.Open]


def test_nothing_is_taken_before_they_are_here() -> None:
    """It cannot happen: a session is opened after the answer. If it did, nothing would be lost."""
    core = IngestCore(IngestSettings(LIMITS, MINE))
    core.tick(Now(0, 1), drained=True)
    core.handle(WELCOME, Now(0, 1))
    rig = Rig(core)
    rig.turn(item(A, m.Logon("p", "x", "1"), None))
    [error] = rig.turn(item(A, m.Publish(1, "orders"), b"x"))
    assert isinstance(error, m.Error)
    assert error.code == "not_ready"


def test_the_journal_hears_what_is_used() -> None:
    bench = Bench(*EVENTS)
    assert bench.to_journal == [ExchangesUsed(JOURNAL, 50)]
    marks = i.Watermarks(JOURNAL, 9, 1, 1, 1, 1, 1, 1, exchanges=6)
    bench.hear(marks)
    bench.hear(marks)
    assert bench.to_journal[1:] == [AskExchanges(0, JOURNAL, 5)]
    bench.tell(bound("events", "new", "x"), position=60, whole=False)
    assert bench.to_journal[2:] == [ExchangesUsed(JOURNAL, 60)]
    bench.turn(bench.one("events", "x"))
    assert bench.routes() == [[["audit", "new"]]]


def test_what_a_journal_has_lost_does_not_count() -> None:
    bench = Bench(*EVENTS)
    bench.hear(i.Watermarks(JOURNAL + 1, 9, 1, 1, 1, 1, 1, 1))
    bench.hear(i.Welcome(JOURNAL + 1, MINE, 9, 1, 1 << 20, "disk", 1, 1, 1))
    assert bench.to_journal[-1] == AskExchanges(0, JOURNAL + 1)
    bench.tell(exchange("events"))
    assert bench.to_journal[-1] == ExchangesUsed(JOURNAL + 1, 50)
    bench.turn(bench.one("events", "order.1"))
    assert bench.routes() == [[[]]]
