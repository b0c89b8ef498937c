"""The queues process as far as the journal sees it: units, what became of them, what has a name.

Each unit begins with a record that tells its number and how many parts follow, so the log can be
judged without remembering where anything landed. What a journal took with it when it died is found
out by reading the log, as the process does, and the rest is sent again.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from tests.journal.whole import Sent, control, letters, point
from tests.sim.net import Pipe
from zbroker.ids import Origin, publisher_id
from zbroker.journal.named_records import name_of
from zbroker.journal.own_publishers import broker_name
from zbroker.log import records as q
from zbroker.log.format import KIND_POINT, KIND_PUBLISH, KIND_QUEUE, KIND_WIRING, Batch
from zbroker.log.records import POINT
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import units as u

if TYPE_CHECKING:
    from tests.sim.world import World

TURN_MS = 20
NAMES = 4  # of queues and of points
Unit = tuple[int, int]  # the incarnation of the process, its number


def wiring(name: str, unit: Unit, made: bool) -> Sent:
    record = q.DefinitionRecord(name, unit[1], created=unit[0], definition={} if made else None)
    return control(KIND_WIRING, q.encode(record))


class QueuesNode:
    """One life of the process. `waiting`: units that are not known to be durable, by number."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.incarnation = next(world.incarnations)
        self.waiting: dict[int, list[Sent]] = {}
        self.sent: dict[int, int] = {}  # ordinal -> number
        self.confirmed = 0
        self._numbers, self._ordinals, self._hellos = count(1), count(1), count(1)
        self._link = self._journal = 0  # incarnation that was heard of, and that welcomed us
        self._known = False  # which of the waiting ones landed before
        self._pipe: Pipe | None = None
        self._watermarks = world.net.dealer(
            Pipe("ipc-marks", self._on_watermarks, on_connected=lambda: self._subscribe())
        )
        self._turn()

    def _subscribe(self) -> None:
        self.world.net.send(self._watermarks, b"")

    def work(self) -> None:
        """Something happened to some messages."""
        rng = self.world.rng
        unit = (self.incarnation, next(self._numbers))
        parts = [
            self._part(unit, rng.choice("llwpf")) for _ in range(rng.choice((0, 1, 1, 2, 2, 5)))
        ]
        record = q.QueueRecord("work", 1, *unit, [q.Horizon(len(parts))])
        self.waiting[unit[1]] = [control(KIND_QUEUE, q.encode(record)), *parts]
        self.world.units[unit] = [(part.kind, body) for part, body in self.waiting[unit[1]]]
        if self._known:
            self._commit([unit[1]])

    def _part(self, unit: Unit, what: str) -> Sent:
        rng, text = self.world.rng, b"%d:%d" % unit
        if what == "l":
            return letters(*[text + b"x" * rng.choice((0, 10, 600))] * rng.choice((1, 1, 3)))
        if what == "p":
            return point(f"p{rng.randrange(NAMES)}", text.decode(), removed=rng.random() < 0.3)
        if what == "w":
            return wiring(f"q{rng.randrange(NAMES)}", unit, rng.random() < 0.7)
        return control(KIND_QUEUE, q.encode(q.QueueRecord("", 0, *unit)))

    def _commit(self, numbers: list[int]) -> None:
        if not numbers:
            return
        ordinals = [next(self._ordinals) for _ in numbers]
        self.sent.update(zip(ordinals, numbers, strict=True))
        sent = [self.waiting[number] for number in numbers]
        parts = [[part for part, _ in unit] for unit in sent]
        message = u.CommitUnits(self._journal, ordinals[0], self.confirmed, parts)
        self._send(message, [body for unit in sent for _, body in unit])

    def _send(self, message: i.InternalMessage, bodies: list[bytes]) -> None:
        assert self._pipe is not None
        self.world.net.send(self._pipe, (codec.encode(message), bodies))

    def _turn(self) -> None:
        """What was refused is sent again, receipts are confirmed."""
        if not self.alive:
            return
        if self._known:
            under_way = set(self.sent.values())
            self._commit([number for number in self.waiting if number not in under_way])
            self._send(i.Confirm(self._journal, self.confirmed), [])
        self.world.at.after(TURN_MS, self._turn)

    # -- what the journal says --

    def _on_watermarks(self, frame: bytes) -> None:
        incarnation = codec.WATERMARKS.decode(frame).incarnation
        if incarnation == self._link:
            return
        self._link = incarnation
        self._begin()

    def _begin(self) -> None:
        self._journal, self._known = 0, False
        self.sent.clear()
        if self._pipe is not None:
            self.world.net.close(self._pipe)
        self._pipe = self.world.net.dealer(Pipe("ipc-journal", self._on_journal))
        self._send(i.Hello("queues", self.incarnation, number=next(self._hellos)), [])

    def _on_journal(self, frame: bytes) -> None:
        message: Any = codec.FROM_JOURNAL.decode(frame)
        if isinstance(message, i.Welcome):
            self._journal, self.confirmed = message.incarnation, 0
            self._ordinals = count(1)
            self._send(u.AskNamed(1, self._journal), [])
        elif isinstance(message, i.UnknownRequester):
            self._begin()
        elif isinstance(message, u.NamedRows):
            self._on_named(message)
        elif isinstance(message, i.JournalReceipt) and message.incarnation == self._journal:
            for item in message.items:
                self._on_item(item)

    def _on_named(self, named: u.NamedRows) -> None:
        batches = self.world.read(named.position)
        reported = (named.wiring, named.points)
        self.world.demand(reported == names(batches), "what has a name is not what the log says")
        for unit in landed(batches):
            if unit[0] == self.incarnation:
                self.waiting.pop(unit[1], None)
        self._known = True
        self._commit(list(self.waiting))

    def _on_item(self, item: i.ReceiptItem) -> None:
        number = self.sent.pop(item.ordinal, 0)
        last = max(self.confirmed, item.ordinal)
        self.confirmed = min(self.sent) - 1 if self.sent else last  # others may be lost
        if number and not item.code:
            del self.waiting[number]
            self.world.receipted[self.incarnation, number] = (item.high, item.position)
        elif number:
            self.world.demand(item.code in u.FOR_NOW, f"a unit was refused: {item}")

    def die(self) -> None:
        self.alive = False
        self.world.net.close(self._watermarks)
        if self._pipe is not None:
            self.world.net.close(self._pipe)


# -- what a log says ------------------------------------------------------------------------------


def names(batches: list[Batch]) -> tuple[list[u.NamedRow], list[u.NamedRow]]:
    """The newest record of each name, of definitions and of points."""
    found: dict[int, dict[str, u.NamedRow]] = {KIND_WIRING: {}, KIND_POINT: {}}
    for batch in batches:
        if batch.kind in found:
            name = name_of(batch.body)
            found[batch.kind][name] = u.NamedRow(name, batch.position, bytes(batch.body))
            if batch.kind == KIND_POINT and POINT.decode(batch.body).removed:
                del found[batch.kind][name]
    wiring, points = ([row for _, row in sorted(rows.items())] for rows in found.values())
    return wiring, points


def landed(batches: list[Batch]) -> list[Unit]:
    """The units that are in the log, as far as their first records tell."""
    found = []
    for batch in batches:
        if batch.kind == KIND_QUEUE:
            record = q.QUEUE.decode(batch.body)
            if record.queue:
                found.append((record.by, record.unit))
    return found


def judge(world: World, batches: list[Batch], instance: int) -> None:
    """Each unit is whole, at one place, once; what was receipted is where the receipt said."""
    own = publisher_id(broker_name(Origin(instance, 1)))
    kinds = {KIND_QUEUE, KIND_WIRING, KIND_POINT}
    seen: set[Unit] = set()
    sequence, left = 0, list[tuple[int, bytes]]()
    for batch in batches:
        expected = left.pop(0) if left else None
        if batch.kind == KIND_PUBLISH and batch.publisher == own:
            world.demand(batch.sequence == sequence + 1, "a sequence of the broker's is missing")
            sequence += batch.taken
        if expected is None and batch.kind == KIND_QUEUE:
            [unit] = landed([batch]) or [(0, 0)]
            world.demand(unit in world.units, f"{unit} begins in its middle")
            world.demand(unit not in seen, f"{unit} landed twice")
            seen.add(unit)
            expected, *left = world.units[unit]
            if unit in world.receipted:
                place = (batch.position, batch.position + _positions(world.units[unit]) - 1)
                world.demand(world.receipted[unit] == place, f"{unit} is not at {place}")
        if expected is not None:
            world.demand((batch.kind, bytes(batch.body)) == expected, "a unit is not whole")
        elif batch.kind in kinds or (batch.publisher == own and batch.kind == KIND_PUBLISH):
            world.demand(False, f"position {batch.position} is of no unit")
    world.demand(not left, "the last unit is not whole")
    missing = world.receipted.keys() - seen
    world.demand(not missing, f"receipted and lost: {sorted(missing)[:5]}")


def _positions(parts: list[tuple[int, bytes]]) -> int:
    return sum(
        len(msgspec.msgpack.decode(body)) if kind == KIND_PUBLISH else 1 for kind, body in parts
    )
