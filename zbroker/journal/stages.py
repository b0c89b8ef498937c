"""Staged messages that are not committed yet, and the last commit of each app. Pure.

    staged part --written--> known --commit--> shown by it, and held as long as that is kept
                                   --a record ends it--> forgotten

All of it is folded from the log and is in state snapshots. A stage belongs to the principal of
its publishers: others have stages of their own under the same token. It ends by a record alone, of
a commit or of an abort, so every start knows the same; `overdue` and `held_before` name those that
an abort of the broker's own ends: after a day without a new part, measured while the journal runs
and by no clock that somebody may set, or where they hold back more of the log than they may.

Rows and records of releases without principals have none: every principal may use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from zbroker.limits import GIB
from zbroker.log.format import Batch
from zbroker.log.records import AbortRecord
from zbroker.log.references import COLUMN_STAGE, CommitRecord, Reference

STAGED_MAX_BYTES: Final = 64 * GIB  # that wait for a commit; more is refused
STAGED_MS: Final = 24 * 3_600 * 1_000  # without a new part a stage is ended after this
APPS_MAX: Final = 10_000  # of one principal, whose last commit is known

Key = tuple[str, str]  # principal and token of a stage


class StageRow(Struct, array_like=True, gc=False):
    """A stage in a state snapshot. newest_ns: not read any more."""

    token: str
    newest_ns: int
    bytes: int
    topics: list[str]
    parts: list[Reference]
    principal: str = ""


class AppRow(Struct, array_like=True, gc=False):
    """The newest commit of an app: `count` messages from `position` on."""

    app: str
    batch: int
    position: int
    count: int
    principal: str = ""


class LinkRow(Struct, array_like=True, gc=False):
    """A commit in segment `serial` shows parts in segments from `lowest` on."""

    serial: int
    lowest: int


@dataclass(slots=True)
class Stage:
    """What a principal staged under one token. since_ms: when `overdue` saw the newest part."""

    token: str
    principal: str = ""
    parts: list[Reference] = field(default_factory=list)
    topics: dict[str, None] = field(default_factory=dict)
    bytes: int = 0
    messages: int = 0
    since_ms: int | None = None


class Stages:
    """The stages of one log."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stages: dict[Key, Stage] = {}
        self._apps: dict[str, dict[str, AppRow]] = {}  # by principal
        self._links: dict[int, int] = {}  # serial of commits: lowest serial that they refer to
        self._placed: list[tuple[Batch, str]] = []  # staged parts of the group that is being made
        self._lowest: list[int] = []  # of the commits of that group

    def __len__(self) -> int:
        return len(self._stages)

    def get(self, principal: str, token: str) -> Stage | None:
        """What this principal staged under this token, as far as it is written."""
        key = self._key(principal, token)
        return self._stages[key] if key is not None else None

    def _key(self, principal: str, token: str) -> Key | None:
        for key in ((principal, token), ("", token)):
            if key in self._stages:
                return key
        if principal:
            return None
        return next((key for key in self._stages if key[1] == token), None)

    def last(self, principal: str, app: str) -> AppRow | None:
        """The newest commit of an app of this principal."""
        of_one = [self._apps.get(principal, {}), self._apps.get("", {})]
        if not principal:
            of_one = list(self._apps.values())
        found = [rows[app] for rows in of_one if app in rows]
        return max(found, key=lambda row: row.batch, default=None)

    def bytes_of(self, principal: str) -> int:
        """How much of this principal waits for a commit."""
        placed = sum(batch.body_length for batch, owner in self._placed if owner == principal)
        return placed + sum(s.bytes for key, s in self._stages.items() if key[0] == principal)

    # -- what comes into the log --------------------------------------------------------------

    def placed(self, batch: Batch, principal: str) -> None:
        """A staged part has a position; it counts as soon as it is written."""
        self._placed.append((batch, principal))
        self.bytes += batch.body_length

    def committed(self, record: CommitRecord, batch: Batch) -> None:
        """A commit has a position."""
        for token in record.stages:
            self._forget(record.principal, token)
        row = AppRow(record.app, record.batch, batch.position, batch.taken, record.principal)
        self.learn_app(row)
        self._lowest.append(min(part.serial for part in record.parts))

    def ended(self, record: AbortRecord) -> None:
        """An abort has a position."""
        for principal, token in record.stages:
            self._forget(principal, token)
            for batch, owner in [*self._placed]:
                if (owner, token_of(batch)) == (principal, token):
                    self._placed.remove((batch, owner))
                    self.bytes -= batch.body_length

    def written(self, serial: int) -> None:
        """Placed parts are in this segment, or in the one before."""
        for batch, principal in self._placed:
            self.fold(batch, serial, principal)
            self.bytes -= batch.body_length  # fold has counted it again
        self._placed = []
        for lowest in self._lowest:
            self.learn_link(LinkRow(serial, lowest))
        self._lowest = []

    def fold_commit(self, record: CommitRecord, batch: Batch, serial: int) -> None:
        """Learns from a commit of the log."""
        self.committed(record, batch)
        self.written(serial)

    def fold(self, batch: Batch, serial: int, principal: str) -> None:
        """Learns from a staged part of the log."""
        key = principal, token_of(batch)
        stage = self._stages.setdefault(key, Stage(key[1], principal))
        if stage.parts and stage.parts[-1].position >= batch.position:
            return  # a snapshot knew it
        stage.parts.append(Reference(batch.position, serial, batch.offset, batch.taken))
        stage.topics.update(dict.fromkeys(batch.topics))
        stage.bytes += batch.body_length
        stage.messages += batch.taken
        stage.since_ms = None
        self.bytes += batch.body_length

    # -- what goes ----------------------------------------------------------------------------

    def _forget(self, principal: str, token: str) -> None:
        key = self._key(principal, token)
        if key is not None:
            self.bytes -= self._stages.pop(key).bytes

    def known(self, principal: str, tokens: Iterable[str]) -> list[Key]:
        """The stages of these tokens that are here, also those of the group that is being made."""
        placed = {(owner, token_of(batch)) for batch, owner in self._placed}
        found = ((principal, token) for token in tokens)
        return [key for key in found if key in placed or self._key(*key) is not None]

    def overdue(self, now_ms: int) -> list[Key]:
        """Stages without a new part for long. `now_ms`: of a clock that only runs forward."""
        for stage in self._stages.values():
            stage.since_ms = now_ms if stage.since_ms is None else stage.since_ms
        return [
            key for key, stage in self._stages.items()
            if stage.since_ms is not None and stage.since_ms + STAGED_MS <= now_ms
        ]  # fmt: skip

    def held_before(self, serial: int) -> list[Key]:
        """Stages with parts in segments before that one."""
        return [key for key, stage in self._stages.items() if stage.parts[0].serial < serial]

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
        """The rows of stages."""
        for one in list(self._stages.values()):
            topics = list(one.topics)
            yield StageRow(one.token, 0, one.bytes, topics, one.parts, one.principal)

    def app_rows(self) -> Iterable[AppRow]:
        """The rows of apps, per principal the longest unused first."""
        return [row for rows in self._apps.values() for row in rows.values()]

    def link_rows(self) -> Iterable[LinkRow]:
        """The rows of commits whose parts are in older segments."""
        return [LinkRow(serial, lowest) for serial, lowest in self._links.items()]

    def learn(self, row: StageRow) -> None:
        """It replaces what is known of its token."""
        key = row.principal, row.token
        if key in self._stages:
            self.bytes -= self._stages.pop(key).bytes
        messages = sum(part.count for part in row.parts)
        topics = dict.fromkeys(row.topics)
        self._stages[key] = Stage(
            row.token, row.principal, list(row.parts), topics, row.bytes, messages
        )
        self.bytes += row.bytes

    def learn_app(self, row: AppRow) -> None:
        """It replaces what is known of its app."""
        rows = self._apps.setdefault(row.principal, {})
        rows.pop(row.app, None)
        rows[row.app] = row
        if len(rows) > APPS_MAX:
            runs = (app for app in rows if "/" in app)  # those that will hardly come again
            del rows[next(runs, next(iter(rows)))]

    def learn_link(self, row: LinkRow) -> None:
        """It adds to what is known of its segment."""
        if row.lowest < row.serial:
            self._links[row.serial] = min(row.lowest, self._links.get(row.serial, row.lowest))


def token_of(batch: Batch) -> str:
    """The token of a staged part."""
    found = next((data for tag, data in batch.extra if tag == COLUMN_STAGE), b"")
    return found.decode(errors="replace")
