"""Small links for tests: a sending end whose destination is typed, batches, statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zbroker.checksums import crc32c
from zbroker.ids import Origin
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor, Gap
from zbroker.replication.contract import LinkIdentity
from zbroker.replication.effects import (
    FindStart,
    LinkBlock,
    LinkEffect,
    MoveMark,
    SayOn,
    StartFound,
)
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire import replication as w
from zbroker.wire.replication import OriginPosition

HERE, THERE, THIRD = Origin(1, 5), Origin(2, 6), Origin(3, 7)
WALL_NS = 1_700_000_000_000_000_000
NAMES = {77: ("pricer", "ann")}


def batch(
    position: int, origin: Origin = HERE, at: int = 0, count: int = 1, flags: int = 0,
    kind: int = KIND_PUBLISH, topic: str = "t",
) -> Batch:  # fmt: skip
    """A batch at a position of this log, with an origin and its position there."""
    at = at or position
    body = f"{origin}{at}".encode()
    return Batch(
        kind, position, 77, 1, at, at - 1, count, at, [topic] * bool(topic), body, crc32c(body),
        len(body), 0, flags, *origin, at,
    )  # fmt: skip


def statement(
    counter: int, rows: dict[Origin, int], sources: Sequence[int] = (), of: Origin = THERE
) -> w.Statement:
    """What the destination, or another instance, says that it holds."""
    held = [OriginPosition(*origin, position) for origin, position in rows.items()]
    return w.Statement(*of, 1, counter, held, list(sources))


class Link:
    """A sending end, its effects so far, and a clock."""

    def __init__(self, topics: LinkTopics = EVERYTHING) -> None:
        self.own = OwnHoldings(HERE.instance)
        self.own.begin(HERE.generation, 1, [])
        mine = LinkIdentity(HERE.instance, "here", "g", 1)
        self.end = OutgoingLink("there", mine, self.own, topics)
        self.now_ms = 0
        self.effects: list[LinkEffect] = []
        self.counter = 1

    def tick(self, ms: int = 0) -> list[LinkEffect]:
        """Time goes on by so much."""
        self.now_ms += ms
        return self._kept(self.end.tick(self.now_ms, WALL_NS))

    def hears(self, message: w.LinkMessage) -> list[LinkEffect]:
        """The destination says something."""
        return self._kept(self.end.heard(message, self.now_ms))

    def connect(self, rows: dict[Origin, int] | None = None, sources: Sequence[int] = ()) -> None:
        """Hello, Welcome; it begins to read at position 1."""
        self.tick()
        self.welcomed(rows, sources)

    def welcomed(self, rows: dict[Origin, int] | None, sources: Sequence[int] = ()) -> None:
        """The destination is there and holds this."""
        said = statement(self.counter, rows or {}, sources)
        effects = self.hears(w.LinkWelcome(self.end.session, 1, "there", "g", said, 1 << 20))
        (find,) = (effect for effect in effects if isinstance(effect, FindStart))
        self.begins(find)

    def begins(
        self, find: FindStart, crcs: dict[Origin, tuple[int, int]] | None = None,
        removed: dict[Origin, int] | None = None,
    ) -> None:  # fmt: skip
        """It reads from position 1 on. removed: records that may not be in the log any more."""
        at = Cursor(1, 0, 1)
        found = StartFound("there", find.session, at, crcs or {}, removed=removed or {})
        self._kept(self.end.found(found))

    def reads(self, *items: Batch | Gap) -> list[w.SendUnits]:
        """What is sent of these, which come next in the log."""
        read = self.end.next_read(1 << 40)
        assert read is not None, "it does not read now"
        last = items[-1]
        end = last.end if isinstance(last, Gap) else last.end_position
        effects, wanted = self.end.read(LinkBlock(read, items, Cursor(1, 0, end)), NAMES)
        assert not wanted
        return units(self._kept(effects))

    def beats(self, rows: dict[Origin, int], sources: Sequence[int] = (), **more: Any) -> None:
        """The destination says what changed."""
        self.counter += 1
        said = statement(self.counter, rows, sources)
        self.hears(w.LinkBeat(self.end.session, said, **more))

    def receipt(self, through: int, *refused: w.LinkItem, since: int = 0) -> list[LinkEffect]:
        """The destination judged all up to `through`."""
        return self.hears(w.LinkReceipt(self.end.session, since, through, list(refused)))

    @property
    def marks(self) -> list[int]:
        """Where the mark went."""
        return [effect.position for effect in self.effects if isinstance(effect, MoveMark)]

    def _kept(self, effects: list[LinkEffect]) -> list[LinkEffect]:
        self.end.check()
        self.effects += effects
        return effects


def units(effects: Sequence[LinkEffect]) -> list[w.SendUnits]:
    """The records among what is said."""
    said = [effect.message for effect in effects if isinstance(effect, SayOn)]
    return [message for message in said if isinstance(message, w.SendUnits)]


def records(sent: list[w.SendUnits]) -> list[tuple[int, int, int]]:
    """Instance, position and `after` of each record but names."""
    every = [record for message in sent for record in message.records]
    return [(r.instance, r.position, r.after) for r in every if r.position]
