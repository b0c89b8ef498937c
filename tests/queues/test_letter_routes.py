"""zbroker/queues/letter_routes.py: letters to exchanges go where bindings say, and not round."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import BROKER, Bench
from tests.queues.test_exchange_commands import bind, declare, life
from tests.queues.test_transaction_commands import attach, commit
from tests.queues.test_transaction_letters import rejected
from zbroker.config import QueueConfig
from zbroker.exchanges import BoundQueue, route_column
from zbroker.exchanges.route_column import Routes
from zbroker.log.format import COLUMN_ROUTES
from zbroker.log.queue_records import QueueDeclaration
from zbroker.queues import letter_routes
from zbroker.queues.effects import Inspect
from zbroker.queues.known_exchanges import KnownExchanges
from zbroker.queues.letter_routes import PASSED, RoutableLetter, passed_by, routed
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q

MANY = {"max_per_subscription": 1_000}


def bench(**settings: Any) -> Bench:
    """Queue "q" of topic "t", with its letters to the exchange "dlx"; queues that may be bound."""
    q_ = QueueConfig("q", topic="t", dead_letter="dlx", **MANY, **settings)
    at = Bench(q_, *(QueueConfig(name, bound=True) for name in ("bills", "audit")))
    at.logon()
    at.consume()
    return at


def routes(at: Bench) -> list[list[str]]:
    """Of each letter of the log the queues that it goes to; of those without a column: -."""
    found = []
    for batch in at.log:
        if batch.publisher == BROKER:
            data = dict(batch.extra).get(COLUMN_ROUTES)
            said = None if data is None else route_column.decode(data, batch.count)
            found += [
                ["-"] if said is None else [queue.name for queue in said.queues_of(number)]
                for number in range(batch.count)
            ]
    return found


def keys(at: Bench) -> list[bytes | None]:
    [batch] = [one for one in at.log if one.publisher == BROKER]
    assert batch.columns is not None
    return list(bodies.keys(batch.columns.keys, batch.count))


def test_a_letter_goes_to_the_queues_that_are_bound_for_its_key() -> None:
    at = bench()
    declare(at, "dlx", "direct")
    bind(at, "a", "bills", "dlx")
    bind(at, "b", "audit", "dlx")
    m = at.publish(b"1", b"2", b"3", keys=[b"a", b"b", b"c"])
    at.reject(*m)
    assert routes(at) == [["bills"], ["audit"], []]
    assert keys(at) == [b"a", b"b", b"c"]
    [position] = at.here("bills")
    assert at.payload(position) == b"1"
    assert len(at.here("audit")) == 1
    assert len(at.letters()) == 3, "what goes nowhere is in the topic"


def test_the_queue_may_say_the_key_of_its_letters() -> None:
    at = bench(dead_letter_key="dead.q")
    declare(at, "dlx")
    bind(at, "dead.*", "bills", "dlx")
    at.reject(*at.publish(b"1", keys=[b"a"]))
    assert (routes(at), keys(at)) == ([["bills"]], [b"dead.q"])


def test_headers_of_the_letter_are_looked_at() -> None:
    at = bench()
    declare(at, "dlx", "headers")
    binding = q.BindQueue("bills", "dlx", arguments={"zb-reason": "rejected", "a": 1})
    at.say(binding)
    at.reject(*at.publish(b"1", b"2", headers=[{"a": 1}, {"a": 2}]))
    assert routes(at) == [["bills"], []]


def test_what_no_binding_asks_for_goes_to_the_alternate() -> None:
    at = bench()
    declare(at, "rest", "fanout", internal=True)
    declare(at, "dlx", "direct", alternate="rest")
    bind(at, "a", "bills", "dlx")
    bind(at, "", "audit", "rest")
    at.reject(*at.publish(b"1", b"2", keys=[b"a", b"b"]))
    assert routes(at) == [["bills"], ["audit"]]


def test_a_topic_that_is_no_exchange_is_not_routed() -> None:
    at = bench()
    at.reject(*at.many(1))
    assert routes(at) == [["-"]]


def test_bindings_of_the_moment_count() -> None:
    at = bench()
    declare(at, "dlx", "fanout")
    m = at.many(3)
    at.reject(m[0])
    bind(at, "", "bills", "dlx")
    at.reject(m[1])
    at.say(q.UnbindQueue("bills", "dlx"))
    at.reject(m[2])
    assert routes(at) == [[], ["bills"], []]
    assert [at.payload(position) for position in at.here("bills")] == [b"1"]


def test_a_transaction_routes_its_letters_too() -> None:
    at = bench()
    declare(at, "dlx", "fanout")
    bind(at, "", "bills", "dlx")
    m = at.many(2)
    assert commit(at, attach(at).epoch, 1, rejects=[rejected(*m)]).rejected == 2
    assert routes(at) == [["bills"], ["bills"]]
    assert len(at.here("bills")) == 2


def test_letters_wait_until_the_exchanges_are_known() -> None:
    at = bench()
    declare(at, "dlx", "fanout")
    bind(at, "", "bills", "dlx")
    m = at.many(1)
    follower = at.manager.exchanges.follower
    follower.known = False
    at.reject(*m)
    assert (at.letters(), at.one().letters_read) == ([], 1)
    at.say(q.DeclareQueue("more", settings={"bound": True}))  # the journal says something new
    at.run()
    assert (routes(at), at.here()) == ([["bills"]], [])


@pytest.mark.parametrize("why", ["max_deliveries", "time_limit", "rejected"])
def test_a_letter_does_not_come_back_by_itself_to_the_queue_that_gave_it_up(why: str) -> None:
    settings = {"max_deliveries": {"max_deliveries": 1}, "time_limit": {"expiration": 1_000}}
    config = QueueConfig("q", bound=True, dead_letter="dlx", **MANY, **settings.get(why, {}))
    at = Bench(config, QueueConfig("bills", bound=True))
    at.logon()
    declare(at, "dlx", "fanout")
    bind(at, "", "q", "dlx")
    bind(at, "", "bills", "dlx")
    [position] = at.publish(b"1", topic="dlx", routes=[[life(at, "q")]])
    if why == "time_limit":
        at.pass_ms(2_000)
    else:
        at.consume()
        (at.reject if why == "rejected" else at.release)(position)
    assert routes(at)[:1] == [["bills", "q"] if why == "rejected" else ["bills"]]
    [(_, _, headers), *_] = at.letters()
    assert headers.get(PASSED) == (None if why == "rejected" else "q")


def test_a_longer_round_ends_at_the_first_queue_that_it_passed() -> None:
    one = QueueConfig("one", bound=True, dead_letter="to.two", expiration=1_000, **MANY)
    two = QueueConfig("two", bound=True, dead_letter="to.one", expiration=1_000, **MANY)
    at = Bench(one, two)
    at.logon()
    for name in ("one", "two"):
        declare(at, f"to.{name}", "fanout")
        bind(at, "", name, f"to.{name}")
    at.publish(b"1", topic="to.one", routes=[[life(at, "one")]])
    for _ in range(5):
        at.pass_ms(2_000_000)
    assert routes(at) == [["two"], []]
    assert [headers[PASSED] for *_, headers in at.letters()] == ["one", "one\ntwo"]


def test_a_consumer_that_rejects_lets_it_go_round_again() -> None:
    work = QueueConfig("work", bound=True, dead_letter="wait.in", **MANY)
    wait = QueueConfig("wait", bound=True, dead_letter="work.in", expiration=1_000, **MANY)
    at = Bench(work, wait)
    at.logon()
    at.consume("work")
    for name in ("work", "wait"):
        declare(at, f"{name}.in", "fanout")
        bind(at, "", name, f"{name}.in")
    at.publish(b"1", topic="work.in", routes=[[life(at, "work")]])
    for number in range(3):
        at.reject(at.here("work")[0])
        at.pass_ms(2_000_000)
        assert len(at.here("work")) == 1, number
    assert routes(at) == [["wait"], ["work"]] * 3


# -- the core -------------------------------------------------------------------------------------


def letter(topic: str = "dlx", passed: list[str] | None = None) -> RoutableLetter:
    return RoutableLetter(topic, b"1", None, {}, passed or [])


class Everywhere:
    """An exchange that sends each letter to queues of its own."""

    def __init__(self, queues: int) -> None:
        self._queues, self._asked = queues, 0

    def __contains__(self, name: str) -> bool:
        return name == "dlx"

    def asks_headers(self, _name: str) -> bool:
        return False

    def find(self, _name: str, many: list[Any], _headers: Any) -> list[frozenset[BoundQueue]]:
        found = []
        for _ in many:
            self._asked += 1
            found.append(frozenset(
                BoundQueue(f"q{self._asked}.{at}", QueueDeclaration(1, 1, 1))
                for at in range(self._queues)
            ))  # fmt: skip
        return found


def known(queues: int) -> KnownExchanges:
    exchanges: Any = KnownExchanges()
    exchanges.table.exchange = lambda name: name == "dlx" or None
    exchanges._router = Everywhere(queues)
    made: KnownExchanges = exchanges
    return made


def decoded(column: bytes, count: int) -> Routes:
    return route_column.decode(column, count)


def test_letters_to_too_many_queues_go_in_several_batches() -> None:
    parts = routed([letter() for _ in range(5)], known(400))
    assert [len(part) for part, _ in parts] == [2, 1, 2]
    assert all(len(decoded(column, len(part)).queues) <= 1_000 for part, column in parts)


def test_one_letter_to_too_many_queues_is_in_the_topic_alone() -> None:
    [(part, column)] = routed([letter()], known(1_001))
    assert decoded(column, len(part)).unroutable == [0]


def test_of_several_topics_those_that_are_exchanges_are_routed() -> None:
    [(part, column)] = routed([letter("plain"), letter()], known(1))
    assert decoded(column, len(part)).unroutable == [0]
    assert routed([letter("plain")], known(1)) == [([letter("plain")], b"")]


def test_what_was_passed_is_remembered_up_to_a_bound() -> None:
    assert passed_by(None, "a") == ["a"]
    assert passed_by(7, "a") == ["a"], "a publisher may say anything"
    assert passed_by("a\nb", "a") == ["a", "b"]
    many = passed_by("\n".join(f"q{n}" for n in range(100)), "q")
    assert len(many) == letter_routes.PASSED_MAX + 1
    [(part, column)] = routed([letter(passed=many)], known(1))
    assert decoded(column, len(part)).unroutable == [0], "with so many it goes nowhere"


def test_a_letter_that_is_read_late_goes_by_what_is_bound_then() -> None:
    at = bench()
    declare(at, "dlx", "fanout")
    m = at.many(1)
    at.later = (Inspect,)
    at.reject(*m)
    bind(at, "", "bills", "dlx")
    at.later = ()
    at.go_on()
    assert routes(at) == [["bills"]]
    assert BitMap64(at.here()) == BitMap64()
