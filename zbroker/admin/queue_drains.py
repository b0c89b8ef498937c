"""Replicated queues of an instance that is to stop: what it owns goes to another one.

    quiet --nothing is leased, or the time is over--> give --all is another's--> that one has it all

One destination gets all of it, the first one of the config that is up and is sent the whole log.
Consumers need not be there: other instances ask it for what they can take, like any owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from zbroker.admin.link_alarms import is_up
from zbroker.admin.process_link import QUEUES, ProcessLink, ReplicationLink
from zbroker.clock import Clock
from zbroker.wire.queue_surveys import DrainQueues, LeavingQueue, QueuesDrained
from zbroker.wire.replicas import ReplicationRow

HAND_MS: Final = 5_000  # for the records, and for the other instance to have them
LOOK_S: Final = 0.05

_WHY: Final = {
    "group_key": "it has a `group_key`, and later messages of the same key would overtake them",
    "single_active_consumer": "it has a single active consumer: later messages would overtake them",
    "reading": "the queue is being read; drain again later",
    "no_peer": "no destination that is sent the whole log is up",
    "silent": "the queues process did not answer in time, or has begun again; drain again",
    "": "that was not done in time; drain again",
}


class Handed(NamedTuple):
    """What became of it. to: the name of the destination, "" if there is none. why: as in _WHY, of
    all of them. late: it does not have all of it yet."""

    rows: Sequence[LeavingQueue] = ()
    consumers: int = 0
    to: str = ""
    why: str = ""
    late: bool = False


class QueueDrain:
    """Asks the queues process for its steps. rest: waits for so many seconds."""

    def __init__(
        self, processes: ProcessLink, links: ReplicationLink, persisted: Callable[[], int],
        clock: Clock, rest: Callable[[float], object],
    ) -> None:  # fmt: skip
        self._processes, self._links, self._persisted = processes, links, persisted
        self._clock, self._rest = clock, rest

    def off(self) -> None:
        """They offer again what they own."""
        self._say("off")

    def plan(self) -> Handed:
        """What would be given, and to whom."""
        return self._handed(self._say("look"), self._peer())

    def give(self, until_ms: int) -> Handed:
        """Gives all of it. until_ms: what consumers hold is waited for at most until then."""
        found, peer = self._say("look"), self._peer()
        if found is None or not found.rows or peer is None:
            return self._handed(found, peer)
        found = self._until("quiet", _is_quiet, until_ms)
        until_ms = self._clock.mono_ms() + HAND_MS
        if found is not None:
            found = self._say("give", peer.instance)
            if found is not None and found.state == "giving":
                found = self._until("look", _is_given, until_ms)
        if found is None or found.state != "giving":
            return self._handed(found, peer)._replace(why="silent")
        return self._handed(found, peer)._replace(late=not self._has_all(peer, until_ms))

    def _until(
        self, what: str, over: Callable[[QueuesDrained], bool], until_ms: int
    ) -> QueuesDrained | None:
        """Takes a step again and again, until that is so or the time is over."""
        while (found := self._say(what)) is not None and not over(found):
            if self._clock.mono_ms() >= until_ms:
                break
            self._rest(LOOK_S)
        return found

    def _has_all(self, peer: ReplicationRow, until_ms: int) -> bool:
        end = self._persisted()
        while (row := self._peer(peer.name)) is None or row.mark < end:
            if self._clock.mono_ms() >= until_ms:
                return False
            self._rest(LOOK_S)
        return True

    def _peer(self, name: str = "") -> ReplicationRow | None:
        """The destination that gets it."""
        for row in self._links.look().rows:
            whole = row.direction == "out" and not row.topics and not row.filter
            if whole and is_up(row) and row.instance and name in ("", row.name):
                return row
        return None

    @staticmethod
    def _handed(found: QueuesDrained | None, peer: ReplicationRow | None) -> Handed:
        if found is None:
            return Handed(why="silent")
        why = "" if peer is not None else "no_peer"
        return Handed(found.rows, found.ended, peer.name if peer is not None else "", why)

    def _say(self, what: str, to: int = 0) -> QueuesDrained | None:
        """None: it is silent. An instance may have no such process."""
        if QUEUES not in self._processes.processes:
            return QueuesDrained(0, "off")
        return self._processes.ask(QueuesDrained, DrainQueues(0, what, to), [QUEUES])[QUEUES]


def _is_quiet(found: QueuesDrained) -> bool:
    leased = any(row.leased for row in found.rows)
    return found.state != "quiet" or not (leased or found.consumers)


def _is_given(found: QueuesDrained) -> bool:
    return found.state != "giving" or not any(row.owned and not row.keeps for row in found.rows)


def document(handed: Handed, name: str, *, planned: bool) -> dict[str, Any]:
    """As JSON. name: of this instance. planned: nothing was done yet. `done`: a stop keeps back no
    message. `problem`: of all queues, "" if there is none."""
    queues = [_row(row, handed, name, planned=planned) for row in handed.rows]
    problem = _WHY["silent"] if handed.why == "silent" else ""
    if handed.late:
        problem = f"{handed.to} does not have all of it yet: wait until its replication lag is 0"
    return {
        "to": handed.to, "consumers": handed.consumers, "queues": queues, "problem": problem,
        "done": not problem and not any(one["left"] for one in queues),
    }  # fmt: skip


def _row(row: LeavingQueue, handed: Handed, name: str, *, planned: bool) -> dict[str, Any]:
    why = handed.why or row.keeps
    explained = row.owned and (why or not planned)
    return {
        "queue": row.queue, "given": row.given, "left": row.owned,
        "why": _WHY[why] if explained else "",
        "advice": "; ".join(_advice(row, handed.to, name)) if handed.to else "",
    }  # fmt: skip


def _advice(row: LeavingQueue, to: str, name: str) -> Iterator[str]:
    """Steps at the other instance, after the stop."""
    at = f"after the stop, at {to}: zbroker-admin queue takeover {row.queue} --from"
    if row.initial:
        yield f"new messages will belong to {name} all the same; {at} {name} --until-back"
    elif row.owned and row.keeps:
        yield f"{at} {name}"
    for away in row.acts_for:
        yield f"{name} acts for {away}, and does not take over more; {at} {away} --until-back"
