"""zbroker/ingest/full_queue_gate.py, through the core: what is refused while a queue is full."""

from __future__ import annotations

from typing import Any

from tests.ingest.rig import Rig, item, made
from tests.ingest.test_routing import EVENTS, LIFE, LIMITS, A, Bench, bound, exchange
from zbroker.config import RecordConfig
from zbroker.ingest.full_queue_gate import FORGET_MS
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire.full_queues import FullQueue, FullQueues

WORK = FullQueue("work", "orders", False, [], 3, 0)


def full(*rows: FullQueue, known: bool = True) -> FullQueues:
    return FullQueues(list(rows), known)


def bound_queue(name: str) -> FullQueue:
    return FullQueue(name, "", False, [tuple(LIFE)], 0, 1_000)


def codes(answers: list[Any]) -> list[str]:
    """Of the refusals."""
    return [answer.code for answer in answers if isinstance(answer, m.Error)]


def sequences(bench: Rig) -> list[int]:
    """The first one of each batch that went to the journal."""
    return [entry.seq for _, entry, _ in bench.appended]


def test_a_message_to_a_full_queue_is_refused_and_goes_nowhere() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    [error] = bench.turn(bench.one("orders", cid="7"))
    assert isinstance(error, m.Error)
    assert (error.code, error.seq, error.cid) == ("queue_full", 1, "7")
    assert error.reason == "queue 'work' is full (max_length 3); the message is not in the log"
    assert "later" in error.hint
    assert bench.appended == []
    assert bench.core.stats()["queue_full"] == 1


def test_a_batch_says_how_many_messages_are_not_in_the_log() -> None:
    bench = Bench()
    bench.hear(full(FullQueue("work", "orders", False, [], 3, 70)))
    [error] = bench.turn(bench.many(["t", "orders"], [0, 1, 0], [None] * 3))
    assert isinstance(error, m.Error)
    text = "queue 'work' is full (max_length 3, max_bytes 70); "
    assert error.reason == f"{text}the 3 messages of this batch are not in the log"
    assert (bench.appended, bench.core.stats()["queue_full"]) == ([], 3)


def test_what_goes_elsewhere_is_taken() -> None:
    bench = Bench()
    bench.hear(full(WORK, FullQueue("all", "de[.].*", True, [], 3, 0)))
    assert codes(bench.turn(bench.one("trades"), bench.one("de.1"), bench.one("en.1"))) == [
        "queue_full"
    ]
    assert sequences(bench) == [1, 3]


def test_later_messages_of_the_publisher_go_on() -> None:
    """The journal is given the sequence before the refused one, whoever leaves `prev` out."""
    bench = Bench()
    bench.turn(bench.one("trades"))
    bench.hear(full(WORK))
    bench.turn(bench.one("orders"), bench.one("trades"))
    assert [(entry.seq, entry.prev) for _, entry, _ in bench.appended] == [(1, 0), (3, 1)]


def test_single_messages_around_a_refused_one_are_taken() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    several = [bench.one("trades"), bench.one("trades"), bench.one("orders"), bench.one("trades")]
    assert codes(bench.turn(*several)) == ["queue_full"]
    assert [(entry.seq, entry.count) for _, entry, _ in bench.appended] == [(1, 2), (4, 1)]


def test_it_is_taken_as_soon_as_the_queue_is_not_full() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    assert codes(bench.turn(bench.one("orders"))) == ["queue_full"]
    bench.hear(full())
    assert codes(bench.turn(bench.one("orders"))) == []
    assert sequences(bench) == [2]


def test_the_newest_report_counts_alone() -> None:
    """As after a deletion, an alteration, or with another queues process."""
    bench = Bench()
    bench.hear(full(WORK))
    bench.hear(full(FullQueue("other", "trades", False, [], 1, 0)))
    assert codes(bench.turn(bench.one("orders"), bench.one("trades"))) == ["queue_full"]
    bench.hear(full(FullQueue("other", "trades", False, [], 2, 0)))
    [error] = bench.turn(bench.one("trades"))
    assert isinstance(error, m.Error)
    assert "max_length 2" in error.reason


# -- exchanges ------------------------------------------------------------------------------------


def test_what_is_routed_to_a_full_queue_is_refused() -> None:
    bench = Bench(*EVENTS)
    bench.hear(full(bound_queue("bills")))
    both, one = bench.one("events", "order.1"), bench.one("events", "x")
    [error] = bench.turn(both, one)
    assert isinstance(error, m.Error)
    assert (error.code, error.seq) == ("queue_full", 1)
    assert bench.routes() == [[["audit"]]]
    [error] = bench.turn(bench.many(["events", "t"], [1, 0], ["order.1", "order.1"]))
    assert isinstance(error, m.Error)
    assert codes([error]) == ["queue_full"]
    assert codes(bench.turn(bench.many(["events", "t"], [1, 0], ["order.1", "x"]))) == []


def test_another_queue_of_that_name_is_another_one() -> None:
    bench = Bench(*EVENTS)
    bench.hear(full(FullQueue("bills", "", False, [(LIFE.created_ns + 1, 9, 1)], 3, 0)))
    assert codes(bench.turn(bench.one("events", "order.1"))) == []


def test_a_queue_of_the_topic_of_an_exchange_refuses_too() -> None:
    bench = Bench(exchange("events"), bound("events", "audit", "#"))
    bench.hear(full(FullQueue("work", "events", False, [], 3, 0)))
    assert codes(bench.turn(bench.one("events", "x"))) == ["queue_full"]


# -- what may be in the log is not refused --------------------------------------------------------


def test_what_was_taken_before_is_taken_again() -> None:
    """The journal drops it: a refusal would say that it is not in the log."""
    bench = Bench()
    first = bench.one("orders")
    bench.turn(first)
    bench.hear(full(WORK))
    assert codes(bench.turn(first)) == []
    assert sequences(bench) == [1, 1]
    assert codes(bench.turn(bench.one("orders"))) == ["queue_full"]


def test_what_the_log_had_at_the_logon_is_taken_again() -> None:
    class Opening(Bench):
        def opened(self, asked: i.Open) -> i.Opened:
            return i.Opened(asked.cid, asked.name, 42, 101, 5, 5)

    bench = Opening()
    bench.hear(full(WORK))
    assert codes(bench.turn(item(A, m.Publish(5, "orders"), b"x"))) == []
    assert codes(bench.turn(item(A, m.Publish(6, "orders"), b"x"))) == ["queue_full"]


def test_what_another_instance_may_have_is_taken() -> None:
    """Its log may come here; a program that heard of a refusal would publish it once more."""
    bench = Bench()
    bench.hear(full(WORK))
    assert codes(bench.turn(bench.one("orders", resent=True))) == []
    assert codes(bench.turn(bench.one("orders"))) == ["queue_full"]


def test_a_refused_one_that_comes_again_with_its_number_is_judged_again() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    one = bench.one("orders")
    assert codes(bench.turn(one)) == ["queue_full"]
    assert codes(bench.turn(one)) == ["queue_full"]
    bench.hear(full())
    assert codes(bench.turn(one)) == []
    assert sequences(bench) == [1]


def test_what_was_on_its_way_is_settled_as_ever() -> None:
    bench = Bench()
    bench.turn(bench.one("orders", ack=["persisted"]))
    bench.hear(full(WORK))
    answers = bench.settle(i.ReceiptItem(1, 1, 1))
    assert [answer.seq for answer in answers if isinstance(answer, m.Ack)] == [1]


def test_a_staged_message_is_refused_where_it_is_staged() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    publish = m.Publish(1, "orders", count=1, stage="s")
    assert codes(bench.turn(item(A, publish, bodies.pack([b"x"])))) == ["queue_full"]


# -- what is not recorded -------------------------------------------------------------------------


def test_a_topic_that_is_not_recorded_enters_no_queue() -> None:
    bench = Bench(recording=Recording([RecordConfig("orders")]))
    bench.hear(full(FullQueue("all", ".*", True, [], 3, 0)))
    assert codes(bench.turn(bench.one("live"), bench.one("orders"))) == ["queue_full"]
    assert bench.core.stats()["messages"] == 1, "the one that enters none"


def test_a_chain_goes_on_without_the_refused_one() -> None:
    """As a client of the library does: what follows is sent again, after what was taken."""
    bench = Bench(recording=Recording([RecordConfig("orders|trades", regex=True)]))
    bench.hear(full(WORK))
    bench.turn(item(A, m.Publish(1, "trades", prev=0), b"x"))
    bench.turn(item(A, m.Publish(2, "orders", prev=1), b"x"))
    assert codes(bench.turn(item(A, m.Publish(3, "trades", prev=2), b"x"))) == ["sequence_gap"]
    assert codes(bench.turn(item(A, m.Publish(3, "trades", prev=1), b"x"))) == []
    assert [(entry.seq, entry.prev) for _, entry, _ in bench.appended] == [(1, 0), (3, 1)]
    assert codes(bench.turn(item(A, m.Publish(4, "orders", prev=3), b"x"))) == ["queue_full"]


# -- the queues process ---------------------------------------------------------------------------


def test_a_report_holds_for_a_while_without_the_process_that_made_it() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    bench.tick(FORGET_MS - 1)
    assert codes(bench.turn(bench.one("orders"))) == ["queue_full"]
    assert bench.core.next_wake_ms() == FORGET_MS
    bench.tick(FORGET_MS)
    assert codes(bench.turn(bench.one("orders"))) == []


def test_beats_of_the_process_hold_it_up() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    bench.tick(FORGET_MS - 1)
    bench.hear(full(WORK))
    bench.tick(FORGET_MS + 1)
    assert codes(bench.turn(bench.one("orders"))) == ["queue_full"]


def test_a_process_that_reads_its_queues_holds_up_what_the_one_before_said() -> None:
    bench = Bench()
    bench.hear(full(WORK))
    bench.tick(FORGET_MS - 1)
    bench.hear(full(known=False))
    bench.tick(FORGET_MS + 1)
    assert codes(bench.turn(bench.one("orders"))) == ["queue_full"]
    bench.hear(full())
    assert codes(bench.turn(bench.one("orders"))) == []


def test_without_a_report_all_is_taken() -> None:
    """As by an ingest process that has just begun, while there is no queues process."""
    bench = Rig(made(LIMITS))
    bench.turn(item(A, m.Logon("p", "x", "1"), None))
    bench.hear(full(known=False))
    assert codes(bench.turn(item(A, m.Publish(1, "orders"), b"x"))) == []


def test_nothing_wakes_it_while_no_queue_is_full() -> None:
    bench = Bench()
    before = bench.core.next_wake_ms()
    bench.hear(full())
    assert bench.core.next_wake_ms() == before
    assert "queue_full" not in bench.core.stats()
