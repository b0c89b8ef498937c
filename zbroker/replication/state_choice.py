"""How the log of this instance begins where it is empty: with the state of a source. Pure.

    journal says `filling`  --the source that holds most--> AskState --NoState--> FollowLog
                                                               +--StatePart--> TakeState

An instance without destinations has no peer to ask before its publishers log on. If its log is
empty when a source says Hello, that one is asked.

A source that sends some topics only, or holds an origin under some, has no state for this: the log
begins with what such sources send. The state of one source is taken, since two states are not of
one moment. When its link ends in the middle, the next choice begins again; a source whose state was
refused is not asked again, until this instance is in another generation: then it may be good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from zbroker.engine.effects import JOURNAL, Answer, Note, Say
from zbroker.limits import BEAT_MS
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.effects import Effect
from zbroker.replication.incoming_link import IncomingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire import replication as w
from zbroker.wire.replicas import (
    AskFirstStart,
    BeginFresh,
    ChangeLink,
    FirstStartRow,
    FollowLog,
    LinkChanged,
    Links,
    SkipMissing,
    TakeState,
)

FILLING: Final = "filling"
FOLLOWING: Final = "following"
OPEN: Final = "open"
STALLED_MS: Final = 20 * BEAT_MS
OPEN_MS: Final = 10 * BEAT_MS  # then only a person changes something


class StateChoice:
    """journal: the one that listens. row: what it said last of its log; None: nothing yet."""

    def __init__(
        self, settings: ReplicationSettings, own: OwnHoldings, links: Mapping[bytes, IncomingLink]
    ) -> None:
        self._waits_for_peers = bool(settings.destinations)
        self._own, self._links = own, links
        self.journal = 0
        self.row: FirstStartRow | None = None
        self._asked: IncomingLink | None = None
        #: sources whose state was not taken, and the generation of this instance then
        self._refused: dict[int, int] = {}
        self._ask_ms = 0
        self._progress: tuple[tuple[int, int], int] | None = None  # link and bytes, since when

    @property
    def is_open(self) -> bool:
        """Nothing has to come first; False also while that is not known."""
        return self.row is not None and self.row.phase == OPEN

    @property
    def fills(self) -> bool:
        """The log gets what others hold."""
        return self.row is not None and self.row.phase in (FILLING, FOLLOWING)

    def said(self, row: FirstStartRow) -> list[Effect]:
        """The journal says how its log is."""
        self.row = row
        self._own.filling, self._own.awaits = self.fills, row.awaits
        return self._choose()

    def takes(self, link: IncomingLink) -> bool:
        """Whether a source that is welcomed now is asked for its state with that."""
        if self._waits_for_peers or not self._own.takes_state:
            return False
        if self._is_asking or not self._holds(link) or not _has_state(link):
            return False
        self._asked = link
        return True

    def _choose(self) -> list[Effect]:
        row = self.row
        if row is None or row.phase != FILLING or self._is_asking:
            return []
        able = [link for link in self._links.values() if link.welcomed and self._holds(link)]
        best = max(filter(_has_state, able), key=_held, default=None)
        if best is None:
            # without a state there are the logs themselves; another source may still answer
            begins = able and not row.missing
            return [Say(JOURNAL, FollowLog(self.journal))] if begins else []
        self._asked = best
        return [Answer(best.rid, w.AskState(best.session))]

    @property
    def _is_asking(self) -> bool:
        return self._asked is not None and self._links.get(self._asked.rid) is self._asked

    def _holds(self, link: IncomingLink) -> bool:
        refused = self._refused.get(link.instance) == self._own.generation
        return not refused and bool(_held(link))

    def refused(self, link: IncomingLink) -> None:
        """The journal does not take the state of this source."""
        self._refused[link.instance] = self._own.generation
        self._asked = None

    def heard(
        self, link: IncomingLink, message: w.LinkMessage, bodies: Sequence[bytes | memoryview]
    ) -> list[Effect]:
        """What a source says of how the log begins, or of what is missing in it."""
        if isinstance(message, w.SkipRange):
            origin = message.instance, message.generation
            if not 0 < message.instance <= w.INSTANCE_MAX:
                return []
            skip = SkipMissing(self.journal, link.number, *origin, message.first, message.last)
            return [Say(JOURNAL, skip)]
        if link is not self._asked:
            return []  # it was asked by a process before this one
        if isinstance(message, w.NoState):
            return [Say(JOURNAL, FollowLog(self.journal))]
        if isinstance(message, w.StatePart) and len(bodies) == 1:
            take = TakeState(self.journal, link.number, message.part, message.last)
            return [Say(JOURNAL, take, bodies)]
        return []

    def fresh(self, ask: ChangeLink) -> tuple[list[Effect], LinkChanged]:
        """A person says that this log is a new one."""
        if self.row is None or not self.journal:
            reason = "the journal did not say yet how its log is"
            return [], LinkChanged(ask.cid, code="not_ready", reason=reason)
        if self.is_open:
            reason = "the log is open already: nothing has to come first"
            return [], LinkChanged(ask.cid, code="bad_command", reason=reason)
        text = (
            "publishers may log on; a program without a publish store may begin below what other "
            "instances hold of it, and its messages are taken for duplicates there"
        )
        if ask.dry_run:
            return [], LinkChanged(ask.cid, text)
        self._ask_ms = 0
        asked = f"an operator asked for a fresh log: {text}"
        note = Note("replication.fresh", asked, values={"phase": self.row.phase})
        return [note, Say(JOURNAL, BeginFresh(self.journal))], LinkChanged(ask.cid, text)

    def explain(self, answer: Links) -> None:
        """Puts into it what the journal said last."""
        row = self.row
        if row is None:
            answer.phase, answer.waits = "", "the journal did not say yet how its log is"
            return
        answer.phase, answer.waits, answer.state_bytes = row.phase, row.text, row.bytes
        answer.ranges = row.ranges

    def stalled(self, now_ms: int) -> IncomingLink | None:
        """The source that was asked and of which nothing more comes: its session is to end."""
        row, asked = self.row, self._asked
        if row is None or row.phase != FILLING or asked is None or not self._is_asking:
            self._progress = None
            return None
        at = asked.number, row.bytes
        if self._progress is None or self._progress[0] != at:
            self._progress = at, now_ms
        return asked if now_ms - self._progress[1] > STALLED_MS else None

    def tick(self, now_ms: int) -> list[Effect]:
        """Asks the journal again, while it is not open."""
        if not self.journal or now_ms < self._ask_ms:
            return []
        self._ask_ms = now_ms + (OPEN_MS if self.is_open else BEAT_MS)
        return [Say(JOURNAL, AskFirstStart(0, self.journal))]

    @property
    def next_wake_ms(self) -> int:
        """When `tick` has something to do."""
        return self._ask_ms


def _has_state(link: IncomingLink) -> bool:
    """A state is of all topics: of a source that sends all of them, and holds all of each origin;
    the sequences of publishers would count what is not here."""
    return not link.digest and link.peer.is_whole


def _held(link: IncomingLink) -> int:
    return sum(row.position for row in link.peer.rows.values())
