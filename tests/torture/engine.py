"""The journal process without its sockets: recovery, sessions, core and writer on any disk.

It runs the turn that ships: see tests.sim.journal_process. Messages are made of their
publisher and sequence alone, so that a log can be judged by anybody who knows how far each
publisher was acknowledged: no one has to remember what was written.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.sim.journal_process import JournalProcess, RigLog, Start
from zbroker.checksums import crc32c
from zbroker.clock import Clock, SystemClock
from zbroker.engine.contract import Now
from zbroker.ids import publisher_id
from zbroker.journal.core import JournalSettings
from zbroker.journal.log_port import Space
from zbroker.limits import BEAT_MS
from zbroker.log.disk import Disk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Gap, Log
from zbroker.log.recovery import Recovered
from zbroker.log.segments import random_salt
from zbroker.log.writer import Writer
from zbroker.wire import bodies
from zbroker.wire import internal as m

INSTANCE: Final = 0xABCD
SEGMENT_BYTES: Final = 24 * 1024
RID: Final = b"\0ingest"
NAMES: Final = ("ann", "ben", "cat")
TOPICS: Final = ("orders", "trades", "quotes.fx")
PUBLISHERS: Final = {publisher_id(name): name for name in NAMES}
_FILL: Final = bytes(range(256)) * 16

Acked = dict[str, int]  # publisher's name -> its highest acknowledged sequence


class Violation(AssertionError):
    """A promise was broken."""


def message(name: str, sequence: int) -> bytes:
    """What `name` publishes under `sequence`; sizes from 0 to some kilobytes."""
    mixed = sequence * 2_654_435_761 % 4_093
    size = mixed % 97 if mixed % 5 else mixed
    return b"%s:%d:" % (name.encode(), sequence) + _FILL[mixed % 256 :][:size]


class Process(JournalProcess):
    """A turn is half a second later than the one before, so each group may look for space."""

    now_ms = 0

    def now(self) -> Now:
        return Now(self.now_ms, self.clock.wall_ns())

    def port_of(self) -> RigLog:
        space = Space(self.writer, Path(), logging.getLogger("zbroker.torture"))
        return RigLog(self.writer, space, lambda: self.now_ms)


@dataclass(slots=True)
class Engine:
    """One life of a journal. Publishers number on where the log ends for them."""

    disk: Disk
    segment_bytes: int = SEGMENT_BYTES
    accept_loss: bool = False
    archive: Disk | None = None
    clock: Clock = field(default_factory=SystemClock)
    salt: Callable[[], int] = random_salt
    refused: list[m.ReceiptItem] = field(default_factory=list)
    acked: Acked = field(default_factory=dict)
    before_turn: Callable[[Acked], None] | None = None  # a planted bug: tells before it is written
    process: Process = field(init=False)
    opened: dict[str, m.Opened] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)
    _ordinals: dict[int, tuple[str, int]] = field(default_factory=dict)
    _ordinal: int = 1

    def __post_init__(self) -> None:
        start = Start(self.clock, self.segment_bytes, self.salt, self.archive, self.accept_loss)
        self.process = Process(self.disk, JournalSettings(INSTANCE, secrets.randbits(32)), start)
        self.process.hear(RID, m.Hello("ingest", 1))
        self.process.taken()

    @property
    def recovered(self) -> Recovered:
        return self.process.recovered

    @property
    def writer(self) -> Writer:
        return self.process.writer

    def logon(self) -> None:
        """Every publisher logs on; its answer says where it goes on."""
        incarnation = self.process.core.commit.settings.incarnation
        for cid, name in enumerate(NAMES):
            self.process.hear(RID, m.Open(cid, incarnation, name, ""))
        self.turn()
        assert set(self.opened) == set(NAMES), "a logon was not answered"

    def publish(self, name: str, count: int) -> None:
        """One batch of `count` messages is in line."""
        opened, first = self.opened[name], self._next[name]
        incarnation = self.process.core.commit.settings.incarnation
        body = bodies.pack([message(name, first + n) for n in range(count)])
        entry = m.Entry(
            opened.publisher, opened.session, first, count, first - 1, crc32c(body), None,
            [TOPICS[first % len(TOPICS)]],
        )  # fmt: skip
        append = m.Append(incarnation, self._ordinal, self._ordinal - 1, [entry])
        self._ordinals[self._ordinal] = (name, first)
        self._ordinal += 1
        self._next[name] = first + count
        self.process.hear(RID, append, [body])

    def turn(self) -> None:
        """Commits what waits and takes the answers, as the process does between two polls."""
        if self.before_turn is not None:
            self.before_turn({name: number - 1 for name, number in self._next.items()})
        while self.process.core.commit.backlog:
            self.process.now_ms += BEAT_MS
            self.process.turn()
            for answer in self.process.taken():
                self._take(answer.message)

    def write_unsynced(self) -> None:
        """Writes what waits and syncs nothing, as the last act of a life."""
        self.process.port.lies = True
        self.process.commit()

    def _take(self, answer: m.InternalMessage) -> None:
        if isinstance(answer, m.Opened):
            self.opened[answer.name] = answer
            self._next[answer.name] = answer.seq + 1
        elif isinstance(answer, m.JournalReceipt):
            for item in answer.items:
                self._receipt(item)

    def _receipt(self, item: m.ReceiptItem) -> None:
        name, first = self._ordinals.pop(item.ordinal, ("", 0))
        if not name:
            return  # it is repeated until it is confirmed
        if item.code:
            self.refused.append(item)
            self._next[name] = min(self._next[name], first)  # the same sequence must come again
        else:
            self.acked[name] = max(item.high, self.acked.get(name, 0))


def play(engine: Engine, rounds: int, reported: Callable[[Acked], None], *, first: int = 0) -> None:
    """Some rounds of publishing that depend on nothing but their number.

    Half of the time no one prepares the next segment, so some roll-overs find none.
    """
    engine.logon()
    for number in range(first, first + rounds):
        for step in range(1 + number % 3):
            engine.publish(NAMES[(number + step) % len(NAMES)], 1 + (number * 7 + step) % 4)
        engine.turn()
        reported(engine.acked)
        if number // 6 % 2:
            engine.writer.prepare_step()


@dataclass(slots=True)
class Judged:
    """What a log holds: per publisher its messages, 1 to `high`; and what is said to be missing."""

    high: Acked = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


def judge(disk: Disk, end: int, first: int = 1, archive: Disk | None = None) -> Judged:
    """Reads the log from `first` to `end` and compares every byte with what it must be.

    A sequence may be missing only after a gap, or in front of `first`. Raises: Violation.
    """
    log, found = Log(places=SegmentPlaces(disk, archive)), Judged()
    cursor, at = log.seek(first), first
    missed = first > 1
    while cursor.position < end:
        items, cursor = log.read(cursor, end, 1 << 20)
        demand(bool(items), f"nothing to read at {cursor}, the end is {end}")
        for item in items:
            begin = item.first if isinstance(item, Gap) else item.position
            demand(begin == at, f"position {begin} is where {at} belongs")
            if isinstance(item, Gap):
                found.gaps.append(item)
                missed, at = True, item.end
            else:
                _check(item, found, missed)
                at = item.end_position
    demand(at == end, f"read up to {at}, the end is {end}")
    return found


def _check(batch: Batch, found: Judged, missed: bool) -> None:
    if batch.kind != KIND_PUBLISH:
        return
    name = PUBLISHERS.get(batch.publisher, "")
    demand(bool(name), f"publisher {batch.publisher} never published")
    high = found.high.get(name, 0)
    follows = batch.sequence > high if missed else batch.sequence == high + 1
    demand(follows, f"{name}: {batch.sequence} is after {high}")
    messages = bodies.unpack(batch.body, None, batch.count, 1 << 24)[batch.skip :]
    expected = [message(name, batch.sequence + n) for n in range(batch.taken)]
    demand(messages == expected, f"{name}: {batch.sequence} is not what was published")
    found.high[name] = batch.sequence + batch.taken - 1
    found.batches.append(batch)


def known(engine: Engine) -> Acked:
    """What each publisher gets at its logon: it numbers on above that."""
    engine.logon()
    return {name: answer.seq for name, answer in engine.opened.items()}


def compare(disk: Disk, acked: Acked, **options: object) -> Engine:
    """Starts on `disk` as the next process does, and demands everything that was acknowledged."""
    engine = Engine(disk, **options)  # type: ignore[arg-type]
    first = engine.recovered.log_start
    found = judge(disk, engine.recovered.next_position, first, engine.archive)
    demand(not found.gaps, f"gaps: {found.gaps}")
    reported = known(engine)
    for name, sequence in acked.items():
        high = found.high.get(name, 0)
        demand(reported[name] >= high, f"{name}: got {reported[name]}, the log has {high}")
        demand(high >= sequence, f"{name}: acknowledged up to {sequence}, the log ends at {high}")
    return engine


def goes_on(engine: Engine) -> None:
    """The log takes more, after what it has."""
    before = engine.recovered.next_position
    play(engine, 4, lambda _: None)
    found = judge(engine.disk, engine.writer.synced, engine.recovered.log_start, engine.archive)
    demand(not found.gaps, f"gaps after going on at {before}: {found.gaps}")
    for name, sequence in engine.acked.items():
        demand(found.high.get(name, 0) >= sequence, f"{name}: lost after going on")


def demand(holds: bool, otherwise: str) -> None:
    """Raises: Violation(otherwise) unless it holds."""
    if not holds:
        raise Violation(otherwise)
