"""Histories of bindings: ingest, the queues process and a client, while each of them dies.

The cores of ingest and of the queues process are those that ship; the journal is the one of the
bench of queues, with the rows that ship. Messages between them are delivered late and in order, and
are lost with either end. What a client published after the answer to its bind has to be in the
queue at the end, whatever died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tests.ingest.rig import Rig, item
from tests.queues.bench import HERE, PUBLISHER, Bench
from zbroker.config import QueueConfig
from zbroker.engine.effects import JOURNAL, Reconnect, Say
from zbroker.ingest.contract import IngestSettings, PublishLimits
from zbroker.ingest.core import IngestCore
from zbroker.ingest.routing import Routing
from zbroker.log.format import COLUMN_ROUTES, KIND_PUBLISH
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.exchange_messages import AskExchanges, ExchangesUsed

A: Final = b"\0aaaa"
LIMITS: Final = PublishLimits(1 << 20, 1 << 20, 1 << 20, 10)
STEPS: Final = 400
KEYS_MAX: Final = 8
SETTLING_MAX: Final = 1_000


class IngestSide(Rig):
    """One life of ingest, and what is on its way from and to the journal."""

    def __init__(self, incarnation: int, plant: Callable[[Any], None]) -> None:
        super().__init__(IngestCore(IngestSettings(LIMITS, incarnation)))
        plant(self.core)
        self.to_journal: deque[tuple[Any, Sequence[Any]]] = deque()
        self.to_ingest: deque[Any] = deque()
        self.acked = 0
        self.logged_on = False
        self.tick()

    def said(self, say: Say) -> list[Any]:
        if say.link == JOURNAL:
            self.to_journal.append((say.message, say.bodies))
        return []

    def reconnected(self, effect: Reconnect) -> None:
        if effect.link == JOURNAL:
            self.to_journal.clear()
            self.to_ingest.clear()

    def answered(self, answers: Sequence[Any]) -> None:
        for answer in answers:
            if isinstance(answer, m.Ack) and answer.cid == "logon":
                self.logged_on, self.acked = True, answer.seq or 0
            elif isinstance(answer, m.Ack) and answer.type == "persisted":
                self.acked = max(self.acked, answer.seq or 0)


class World:
    """One seed. missed: messages that had to be in the queue, and are not."""

    def __init__(self, seed: int, plant: Callable[[Any], None] = lambda core: None) -> None:
        self.rng, self.plant = Random(seed), plant
        self.bench = Bench(QueueConfig("bills", bound=True))
        self.bench.routes_at_once = False
        plant(self.bench.core)
        self.bench.logon()
        self.incarnation, self.sessions, self.high = 500, 0, 0
        self.ingest = IngestSide(self.incarnation, plant)
        self.asked: str | None = None  # the key of a bind that is not answered
        self.answered: list[str] = []
        self.published: list[tuple[int, str, bool]] = []  # sequence, key, whether it has to enter
        self.sent = 0
        self._declare()
        self.bench.holding = True

    def _declare(self) -> None:
        self.bench.send(q.DeclareExchange("events", "declare", kind="direct"))
        for _ in range(20):
            self._deliver_all()
        assert any(isinstance(one, q.ExchangeDone) for _, one in self.bench.answers)

    # -- the client -----------------------------------------------------------------------------

    def bind(self) -> None:
        if self.asked is None and len(self.answered) < KEYS_MAX:
            self.asked = f"k{len(self.answered)}"
            self._ask()

    def _ask(self) -> None:
        self.bench.send(q.BindQueue("bills", "events", self.asked, key=self.asked or ""))
        self.look()

    def look(self) -> None:
        """Whether the bind was answered."""
        cids = {one.cid for _, one in self.bench.answers if isinstance(one, q.ExchangeDone)}
        if self.asked is not None and self.asked in cids:
            self.answered.append(self.asked)
            self.asked = None

    def publish(self) -> None:
        ingest = self.ingest
        if not ingest.logged_on:
            ingest.answered(ingest.turn(item(A, m.Logon("p", "x", "logon"), None)))
            return
        if self.sent < ingest.acked:
            self.sent = ingest.acked
        if self.sent == len(self.published):
            # what was answered lately is asked for most: that is where it may be missed
            newest = self.answered[-1:] * 3 + self.answered
            key = self.rng.choice([*newest, self.asked or "none"])
            self.published.append((self.sent + 1, key, key in self.answered))
        seq, key, _ = self.published[self.sent]
        self.sent += 1
        publish = m.Publish(seq, "events", key=key.encode(), ack=["persisted"])
        ingest.answered(ingest.turn(item(A, publish, b"%d" % seq)))

    # -- what dies ------------------------------------------------------------------------------

    def kill_ingest(self) -> None:
        self.incarnation += 1
        self.ingest = IngestSide(self.incarnation, self.plant)
        self.sent = 0

    def kill_queues(self) -> None:
        self.bench.restart()
        self.plant(self.bench.core)
        self.bench.logon()
        if self.asked is not None:
            self._ask()

    def kill_journal(self) -> None:
        self.bench.routed = 0
        self.bench.die()
        self.bench.come_back()
        self.marks()

    # -- between the processes ------------------------------------------------------------------

    def marks(self) -> None:
        self.ingest.to_ingest.append(self.bench._watermarks())

    def land(self) -> None:
        self.bench.land(1)
        self.look()
        if self.rng.random() < 0.8:
            self.marks()

    def to_ingest(self) -> None:
        if self.ingest.to_ingest:
            self.ingest.answered(self.ingest.hear(self.ingest.to_ingest.popleft()))

    def to_journal(self) -> None:
        if not self.ingest.to_journal:
            return
        message, bodies = self.ingest.to_journal.popleft()
        bench, back = self.bench, self.ingest.to_ingest
        if isinstance(message, i.Hello):
            extent = bench.log_start, bench.position, bench.persisted
            welcome = i.Welcome(bench.journal, message.incarnation, *HERE, 1 << 20, "disk", *extent)
            back.append(welcome)
        elif message.incarnation != bench.journal:
            return
        elif isinstance(message, AskExchanges):
            back.append(bench._said(Say(JOURNAL, message)))
        elif isinstance(message, i.Open):
            self.sessions += 1
            back.append(
                i.Opened(message.cid, message.name, 42, self.sessions, self.high, self.high)
            )
        elif isinstance(message, ExchangesUsed):
            bench.routed = max(bench.routed, message.position)
            bench.watermarks()
            bench.run()
            self.look()
        elif isinstance(message, i.Append):
            self._append(message, bodies)

    def _append(self, append: i.Append, bodies: Sequence[Any]) -> None:
        items = []
        for ordinal, (entry, body) in enumerate(
            zip(append.entries, bodies, strict=True), append.ordinal
        ):
            if entry.seq == self.high + 1:
                count = entry.count
                self.bench._put(KIND_PUBLISH, bytes(body), PUBLISHER, entry.topics, count)
                self.bench.log[-1].extra = [(COLUMN_ROUTES, entry.routes)]
                self.high += count
                self.bench.persist()
            items.append(i.ReceiptItem(ordinal, self.bench.position - 1, self.high))
        receipt = i.JournalReceipt(self.bench.journal, self.bench.persisted, items)
        self.ingest.to_ingest.append(receipt)

    def _deliver_all(self) -> None:
        self.land()
        self.marks()
        while self.ingest.to_journal or self.ingest.to_ingest:
            self.to_journal()
            self.to_ingest()

    # -- a history ------------------------------------------------------------------------------

    def run(self) -> list[str]:
        steps: list[tuple[Callable[[], None], float]] = [
            (self.bind, 1), (self.publish, 8), (self.land, 2), (self.marks, 1),
            (self.to_ingest, 8), (self.to_journal, 8),
            (self.kill_ingest, 0.2), (self.kill_queues, 0.1), (self.kill_journal, 0.1),
        ]  # fmt: skip
        functions, weights = [step for step, _ in steps], [weight for _, weight in steps]
        for _ in range(STEPS):
            self.rng.choices(functions, weights)[0]()
        for _ in range(SETTLING_MAX):
            if self.high == len(self.published) and self.asked is None:
                return self.missed()
            self.ingest.now_ms += 1_000
            self.ingest.tick()
            if (
                self.ingest.logged_on and self.sent < len(self.published)
            ) or not self.ingest.logged_on:
                self.publish()
            self._deliver_all()
            self.sent = min(self.sent, max(self.high, self.ingest.acked))
        return ["it does not come to rest"]

    def missed(self) -> list[str]:
        here = {self.bench.payload(position) for position in self.bench.here("bills")}
        return [
            f"{seq} with {key}" for seq, key, has_to in self.published
            if has_to and b"%d" % seq not in here
        ]  # fmt: skip


# -- planted bugs ---------------------------------------------------------------------------------


def answered_before_ingest_confirms(core: Any) -> None:
    if not isinstance(core, IngestCore):
        core.manager.exchanges.when_routed = lambda position, then: then()


def confirmed_before_it_is_learned(core: Any) -> None:
    """ingest says that it routes by all that it has heard of."""
    if isinstance(core, IngestCore):
        routing: Routing = core._publishing.routing
        before = routing.watermarks

        def watermarks(said: i.Watermarks) -> list[Say]:
            used = ExchangesUsed(said.incarnation, said.persisted)
            return [*before(said), Say(JOURNAL, used)]

        routing.watermarks = watermarks  # type: ignore[method-assign]


def taken_before_the_rows_are_here(core: Any) -> None:
    """They are asked for with the next watermarks, and publishes do not wait for them."""
    if not isinstance(core, IngestCore):
        return
    routing: Routing = core._publishing.routing
    routing._follower.known = True
    link, asks, ask = core.link.on_welcome, list[Say](), routing.watermarks

    def on_welcome(welcome: i.Welcome, ask_first: Callable[[int], Say]) -> Any:
        effects = link(welcome)
        if effects is not None:
            asks[:] = [ask_first(welcome.incarnation)]
        return effects

    def watermarks(said: i.Watermarks) -> list[Say]:
        due, asks[:] = [*asks], []
        return due or ask(said)

    core.link.on_welcome = on_welcome  # type: ignore[method-assign,assignment]
    routing.watermarks = watermarks  # type: ignore[method-assign]


PLANTED: Final = (
    answered_before_ingest_confirms, confirmed_before_it_is_learned, taken_before_the_rows_are_here,
)  # fmt: skip
