"""What is staged and not committed yet, and what was committed last. Pure.

    staged part --written--> known --commit--> shown by it, and held as long as that is kept
                                   --abort, or nothing new for long--> forgotten

All of it is folded from the log and stands in state snapshots. An abort is no record: after a
restart its parts are known again until they expire, which costs room and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from zbroker.journal.format import Batch
from zbroker.journal.references import COLUMN_STAGE, CommitRecord, Reference
from zbroker.limits import GIB

STAGED_MAX_BYTES: Final = 64 * GIB  # that wait for a commit; more is refused
STAGED_NS: Final = 24 * 3_600 * 10**9  # without a new part a stage is forgotten after this
APPS_MAX: Final = 10_000  # whose last commit is known


class StageRow(Struct, array_like=True, gc=False):
    """A stage in a state snapshot."""

    token: str
    newest_ns: int
    bytes: int
    topics: list[str]
    parts: list[Reference]


class AppRow(Struct, array_like=True, gc=False):
    """The newest commit of an app: `count` messages from `position` on."""

    app: str
    batch: int
    position: int
    count: int


class LinkRow(Struct, array_like=True, gc=False):
    """A commit in segment `serial` shows parts in segments from `lowest` on."""

    serial: int
    lowest: int


@dataclass(slots=True)
class Stage:
    """What was staged under one token; newest_ns: log time of the newest part."""

    token: str
    parts: list[Reference] = field(default_factory=list)
    topics: dict[str, None] = field(default_factory=dict)
    bytes: int = 0
    messages: int = 0
    newest_ns: int = 0


class Stages:
    """Of one log."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stages: dict[str, Stage] = {}
        self._apps: dict[str, AppRow] = {}
        self._links: dict[int, int] = {}  # serial of commits: lowest serial that they refer to
        self._placed: list[Batch] = []  # staged parts of the group that is being made
        self._lowest: list[int] = []  # of the commits of that group

    def __len__(self) -> int:
        return len(self._stages)

    def get(self, token: str) -> Stage | None:
        """What was staged under this token, as far as it is written."""
        return self._stages.get(token)

    def last(self, app: str) -> AppRow | None:
        """The newest commit of an app."""
        return self._apps.get(app)

    # -- what comes into the log --------------------------------------------------------------

    def placed(self, batch: Batch) -> None:
        """A staged part has a position; it counts as soon as it is written."""
        self._placed.append(batch)
        self.bytes += batch.body_length

    def committed(self, record: CommitRecord, batch: Batch) -> None:
        """A commit has a position."""
        for token in record.stages:
            self.forget(token)
        self._apps.pop(record.app, None)
        self._apps[record.app] = AppRow(record.app, record.batch, batch.position, batch.taken)
        if len(self._apps) > APPS_MAX:
            runs = (app for app in self._apps if "/" in app)  # those that will hardly come again
            del self._apps[next(runs, next(iter(self._apps)))]
        self._lowest.append(min(part.serial for part in record.parts))

    def written(self, serial: int) -> None:
        """What was placed stands in this segment, or in the one before."""
        for batch in self._placed:
            self._learn(batch, serial)
            self.bytes -= batch.body_length  # _learn has counted it again
        self._placed = []
        for lowest in self._lowest:
            self._link(serial, lowest)
        self._lowest = []

    def fold(self, batch: Batch, serial: int) -> None:
        """Learns from a staged part of the log."""
        self._learn(batch, serial)

    def fold_commit(self, record: CommitRecord, batch: Batch, serial: int) -> None:
        """Learns from a commit of the log."""
        self.committed(record, batch)
        self.written(serial)

    def _learn(self, batch: Batch, serial: int) -> None:
        stage = self._stages.setdefault(token_of(batch), Stage(token_of(batch)))
        if stage.parts and stage.parts[-1].position >= batch.position:
            return  # a snapshot knew it
        stage.parts.append(Reference(batch.position, serial, batch.offset, batch.taken))
        stage.topics.update(dict.fromkeys(batch.topics))
        stage.bytes += batch.body_length
        stage.messages += batch.taken
        stage.newest_ns = max(stage.newest_ns, batch.log_time)
        self.bytes += batch.body_length

    def _link(self, serial: int, lowest: int) -> None:
        if lowest < serial:
            self._links[serial] = min(lowest, self._links.get(serial, lowest))

    # -- what goes ----------------------------------------------------------------------------

    def forget(self, token: str) -> None:
        """It is committed, or nobody will commit it."""
        stage = self._stages.pop(token, None)
        if stage is not None:
            self.bytes -= stage.bytes

    def expire(self, now_ns: int) -> int:
        """Forgets stages that nothing was added to for long; how many."""
        old = [one.token for one in self._stages.values() if one.newest_ns + STAGED_NS <= now_ns]
        for token in old:
            self.forget(token)
        return len(old)

    def removable(self, through: int) -> int:
        """Up to which segment all may go, at most `through`: no commit that stays shows parts of
        it, and none of it waits for a commit."""
        waiting = [part.serial for one in self._stages.values() for part in one.parts[:1]]
        through = min([through, *(serial - 1 for serial in waiting)])
        for serial, lowest in sorted(self._links.items(), reverse=True):
            if serial > through >= lowest:
                through = lowest - 1
        return through

    def removed(self, through: int) -> None:
        """These segments are gone, and their commits."""
        self._links = {serial: low for serial, low in self._links.items() if serial > through}

    # -- state snapshots ----------------------------------------------------------------------

    def rows(self) -> Iterator[StageRow]:
        """Of stages."""
        for one in list(self._stages.values()):
            yield StageRow(one.token, one.newest_ns, one.bytes, list(one.topics), one.parts)

    def app_rows(self) -> Iterable[AppRow]:
        """Of apps, the longest unused first."""
        return list(self._apps.values())

    def link_rows(self) -> Iterable[LinkRow]:
        """Of commits whose parts stand in older segments."""
        return [LinkRow(serial, lowest) for serial, lowest in self._links.items()]

    def learn(self, row: StageRow) -> None:
        """It replaces what is known of its token."""
        self.forget(row.token)
        messages = sum(part.count for part in row.parts)
        topics = dict.fromkeys(row.topics)
        self._stages[row.token] = Stage(
            row.token, list(row.parts), topics, row.bytes, messages, row.newest_ns
        )
        self.bytes += row.bytes

    def learn_app(self, row: AppRow) -> None:
        """It replaces what is known of its app."""
        self._apps.pop(row.app, None)
        self._apps[row.app] = row

    def learn_link(self, row: LinkRow) -> None:
        """It adds to what is known of its segment."""
        self._link(row.serial, row.lowest)


def token_of(batch: Batch) -> str:
    """The token of a staged part."""
    found = next((data for tag, data in batch.extra if tag == COLUMN_STAGE), b"")
    return found.decode(errors="replace")
