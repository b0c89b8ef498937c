"""ingest's side of its links to delivery: messages that are not recorded. Pure.

    down --Grant to our Hello--> up --other incarnation, or silence--> down (new socket, Hello)

Each delivery worker has a link and a credit of its own. What is not recorded goes to all that are
up and want it; a worker without clients wants nothing: it grants 0.

Nothing is kept: what finds no delivery or no credit is dropped and counted, so that it never holds
up what is recorded. Delivery grants bytes and tells how many it took; what was sent to one that
died is lost and not counted, because nobody can tell. An empty message on each beat makes a
delivery that was restarted ask for a Hello.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zbroker.engine.effects import Reconnect, Say
from zbroker.limits import BEAT_MS
from zbroker.wire import internal as m

Body = bytes | memoryview
HELLO_WAIT_MS: Final = 1_000  # then a new socket: the Hello may have gone to a dead delivery
SILENCE_MS: Final = 6 * BEAT_MS  # grants come on each beat


LiveEffect = Say | Reconnect


class LiveLink:
    """The links to all delivery workers."""

    def __init__(self, incarnation: int, links: Sequence[str] = ("live",)) -> None:
        """links: the name of the link to each worker."""
        self._links = [_WorkerLink(incarnation, link) for link in links]
        self.passed = 0  # messages handed over, each once, and those that no worker wanted

    @property
    def up(self) -> bool:
        """True while a delivery is known to listen."""
        return any(link.up for link in self._links)

    @property
    def dropped(self) -> int:
        """Messages given up for lack of a delivery or of credit, per worker."""
        return sum(link.dropped for link in self._links)

    def take(self, entry: m.Entry, body: Body) -> None:
        """Hands one batch over to whoever wants it, or drops it where it cannot go."""
        taken = [link.take(entry, body) for link in self._links if link.wants]
        if not taken or any(taken):
            self.passed += entry.count

    def flush(self) -> list[LiveEffect]:
        """One message per worker with everything that was handed over."""
        return [effect for link in self._links for effect in link.flush()]

    def on_grant(self, grant: m.LiveCredit, worker: int = 0) -> list[LiveEffect]:
        """How much more may go to this worker; they are counted from 0. Nothing follows at once."""
        self._links[worker].on_grant(grant)
        return []

    def tick(self, now_ms: int) -> list[LiveEffect]:
        """Notices silence, beats, says Hello: each link for itself."""
        return [effect for link in self._links for effect in link.tick(now_ms)]

    def next_wake_ms(self) -> int:
        """When `tick` has something to do."""
        return min(link.next_wake_ms() for link in self._links)

    def check(self) -> None:
        """Asserts what is always true."""
        for link in self._links:
            link.check()


class _WorkerLink:
    """What may still go to one worker, and what goes there in this turn."""

    def __init__(self, incarnation: int, link: str) -> None:
        self.dropped = 0  # messages
        self._mine = incarnation
        self._link = link
        self._delivery = 0  # incarnation that granted; 0: down
        self._hello_ms: int | None = None
        self._heard_ms = self._beat_ms = 0
        self._heard = False  # since the last tick
        self._used = 0  # bytes sent since the Hello
        self._taken = 0  # of these
        self._credit = 0
        self._entries: list[m.Entry] = []
        self._bodies: list[Body] = []

    @property
    def up(self) -> bool:
        """True while the worker is known to listen."""
        return self._delivery != 0

    @property
    def wants(self) -> bool:
        """False if it said that it wants nothing; True also while it cannot say anything."""
        return not self.up or self._credit > 0

    def take(self, entry: m.Entry, body: Body) -> bool:
        """False if it had to be dropped. With nothing under way one of any size may go."""
        under_way = self._used - self._taken
        if not self.up or (under_way and under_way + len(body) > self._credit):
            self.dropped += entry.count
            return False
        self._used += len(body)
        self._entries.append(entry)
        self._bodies.append(body)
        return True

    def flush(self) -> list[LiveEffect]:
        if not self._entries:
            return []
        live = Say(self._link, m.Live(self._delivery, self._entries), self._bodies)
        self._entries, self._bodies = [], []
        return [live]

    def on_grant(self, grant: m.LiveCredit) -> None:
        """A grant from another incarnation means: say Hello to that one."""
        if grant.echo != self._mine or grant.incarnation != (self._delivery or grant.incarnation):
            self._down()
            return
        self._delivery, self._heard = grant.incarnation, True
        self._taken = max(self._taken, grant.taken_bytes)
        self._credit = grant.credit_bytes

    def tick(self, now_ms: int) -> list[LiveEffect]:
        """Notices silence; beats, or says Hello on a new socket when no answer came in time."""
        if self._heard:
            self._heard, self._heard_ms = False, now_ms
        elif self.up and now_ms - self._heard_ms > SILENCE_MS:
            self._down()
        waits = self._hello_ms is not None and now_ms - self._hello_ms < HELLO_WAIT_MS
        if self.up and now_ms >= self._beat_ms:
            self._beat_ms = now_ms + BEAT_MS
            return [Say(self._link, m.Live(self._delivery, []))]
        if self.up or waits:
            return []
        self._hello_ms, self._beat_ms = now_ms, now_ms + BEAT_MS
        self._used = self._taken = self._credit = 0
        hello = m.Hello("ingest", self._mine, [])
        return [Reconnect(self._link), Say(self._link, hello)]

    def next_wake_ms(self) -> int:
        """When it beats next, or says Hello; silence is noticed at a beat."""
        if self.up:
            return self._beat_ms
        return 0 if self._hello_ms is None else self._hello_ms + HELLO_WAIT_MS

    def _down(self) -> None:
        self.dropped += sum(entry.count for entry in self._entries)
        self._entries, self._bodies = [], []
        if self.up:
            self._delivery, self._hello_ms = 0, None

    def check(self) -> None:
        """Asserts what is always true."""
        assert 0 <= self._taken <= self._used
        assert len(self._entries) == len(self._bodies)
        assert self.up or not self._entries
