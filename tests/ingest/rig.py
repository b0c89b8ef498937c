"""What tests of the ingest core have in common: commands as they arrive, and a journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zbroker.access.core import Access
from zbroker.cpus import ANY_CPU
from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer, Pace, Reconnect, RunOn, Say
from zbroker.engine.events import Commands, Gone, RulesChanged
from zbroker.ingest.contract import Effect, IngestSettings, PublishLimits, Verified, Verify
from zbroker.ingest.core import IngestCore
from zbroker.recording import Recording
from zbroker.server.peers import Received
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows

MINE, JOURNAL = 5, 11
HERE = 3  # the CPU on which it runs
KEY = b"k" * 32
WALL_NS = 1_700_000_000_000_000_000
NO_EXCHANGES = ExchangeRows(0, 0, 1, [])
WELCOME = i.Welcome(JOURNAL, MINE, 9, 1, 1 << 20, "disk", 1, 1, 1)

Reported = m.ServerAnswer | m.Heartbeat


def item(rid: bytes, command: m.ClientCommand, body: bytes | None, key: str = "") -> Received:
    """One command as it arrives."""
    header = codec.encode(command)
    return Received(rid, [header] if body is None else [header, body], False, key)


def made(
    limits: PublishLimits, recording: Recording | None = None, access: Access | None = None,
    spin_us: int = 0, *, replicated: bool = False,
) -> IngestCore:  # fmt: skip
    """A core that said Hello and was welcomed."""
    settings = IngestSettings(
        limits, MINE, recording, access=access, key=KEY, spin_us=spin_us, replicated=replicated
    )
    core = IngestCore(settings, here=lambda: HERE)
    core.tick(Now(0, WALL_NS), drained=True)
    core.handle(WELCOME, Now(0, WALL_NS))
    core.handle(NO_EXCHANGES, Now(0, WALL_NS))
    return core


class Rig:
    """A core with a journal that opens sessions at once, and answers what the test says."""

    def __init__(self, core: IngestCore) -> None:
        self.core = core
        self.now_ms = 0
        self.exchanges = NO_EXCHANGES
        self.asked: list[Verify] = []
        self.pace_us = 0  # how long it is to spin
        self.cpu = self.append_cpu = ANY_CPU  # where it is to run; what the newest append said
        self.appended: list[tuple[int, i.Entry, bytes]] = []

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_NS + self.now_ms * 1_000_000)

    def hear(self, event: object) -> list[Reported]:
        """What clients are sent."""
        return self.take(self.core.handle(event, self.now))

    def turn(self, *items: Received) -> list[Reported]:
        return self.hear(Commands(list(items)))

    def tick(self, now_ms: int | None = None) -> list[Reported]:
        self.now_ms = self.now_ms if now_ms is None else now_ms
        return self.take(self.core.tick(self.now, drained=True))

    def settle(self, *items: i.ReceiptItem) -> list[Reported]:
        return self.hear(i.JournalReceipt(JOURNAL, 100, list(items)))

    def gone(self, rid: bytes) -> list[Reported]:
        return self.hear(Gone(rid))

    def verified(self, number: int, *, good: bool) -> list[Reported]:
        return self.hear(Verified(number, good))

    def entitle(self, access: Access) -> list[Reported]:
        return self.hear(RulesChanged(access))

    def take(self, effects: Sequence[Effect]) -> list[Reported]:
        reported: list[Reported] = []
        for effect in effects:
            if isinstance(effect, Answer):
                reported.append(effect.message)  # type: ignore[arg-type]
            elif isinstance(effect, Verify):
                self.asked.append(effect)
            elif isinstance(effect, Pace):
                self.pace_us = effect.spin_us
            elif isinstance(effect, RunOn):
                self.cpu = effect.cpu
            elif isinstance(effect, Say):
                reported += self.said(effect)
            elif isinstance(effect, Reconnect):
                self.reconnected(effect)
        self.core.check()
        return reported

    def said(self, say: Say) -> list[Reported]:
        """To the journal: appends are remembered, sessions opened."""
        message: Any = say.message
        if isinstance(message, i.Append):
            self.append_cpu = message.cpu
            self.appended += (
                (message.ordinal + n, entry, bytes(say.bodies[n]))
                for n, entry in enumerate(message.entries)
            )
        elif isinstance(message, i.Open):
            return self.hear(self.opened(message))
        elif isinstance(message, AskExchanges):
            return self.hear(self.exchanges)
        return []

    def reconnected(self, effect: Reconnect) -> None:
        """What was queued in the socket is lost."""

    def opened(self, asked: i.Open) -> i.Opened:
        return i.Opened(asked.cid, asked.name, 42, 100 + asked.cid)
