"""Staged messages that are not committed yet, and the newest commits of each app. Pure.

    staged part --written--> known --commit--> shown by it, and held as long as that is kept
                                   --a record ends it--> forgotten, its token refused for a while

All of it is folded from the log and is in state snapshots. A stage is (instance, generation, token)
of the principal of its publishers: others have stages of their own under the same token, and so has
every other instance that parts were sent to. It ends by a record alone, of a commit or of an abort,
so every start knows the same; `overdue` and `held_before` name those of this instance that an abort
of the broker's own ends: after a day without a new part (a minute, if it is of a transaction),
measured while the journal runs and by no clock that somebody may set, or where they hold back more
of the log than they may.

Clients know tokens only: for them a stage is all that this instance has under a token, whatever the
generation. A new generation begins without them noticing, and each part is in one of them.

Parts are compared with those of their own stage alone: a part that another instance has, too, may
be aborted there. So each stage notes which sequences it has, of which sessions.

A token whose stage ended is refused until these sessions have ended: a part may still be under way
from one of them, and its stage would begin again without the parts before it.

Rows and records of releases without principals have none: every principal may use them. Those
without an instance are of this one, and do not say which sequences they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import DecodeError, Struct, field

from zbroker.ids import Origin
from zbroker.journal import holes
from zbroker.journal.holes import Run
from zbroker.journal.origins import Origins
from zbroker.limits import GIB
from zbroker.log.format import Batch
from zbroker.log.records import ABORT, AbortRecord
from zbroker.log.references import COLUMN_STAGE, CommitRecord, Reference, stage_origins
from zbroker.transaction_tokens import OF_TRANSACTIONS

STAGED_MAX_BYTES: Final = 64 * GIB  # that wait for a commit; more is refused
STAGED_MS: Final = 24 * 3_600 * 1_000  # without a new part a stage is ended after this
TRANSACTION_MS: Final = 60 * 1_000  # the same of a transaction, for which consumers hold messages
APPS_MAX: Final = 10_000  # of one principal, whose newest commits are known
EARLIER_MAX: Final = 64  # commits of one app, besides its newest
ENDED_MAX: Final = 10_000  # tokens of one principal that are refused for a while

Owned = tuple[str, str]  # principal and token of a stage


class StageKey(NamedTuple):
    """One stage. origin: the instance and generation that it was staged in."""

    origin: Origin
    principal: str
    token: str


class Sender(Struct, array_like=True, gc=False):
    """What one publisher staged: sequences [first, last] ..., the newest ones in `session`."""

    publisher: int
    session: int
    runs: list[Run]


class StageRow(Struct, array_like=True, gc=False):
    """A stage in a state snapshot. newest_ns: not read any more. instance: 0 before it was known,
    and then there are no senders either."""

    token: str
    newest_ns: int
    bytes: int
    topics: list[str]
    parts: list[Reference]
    principal: str = ""
    instance: int = 0
    generation: int = 0
    senders: list[Sender] = []


class EndedRow(Struct, array_like=True, gc=False):
    """A token that ended, and the sessions that staged under it: [publisher, session] of each."""

    token: str
    principal: str
    sessions: list[tuple[int, int]]


class AppRow(Struct, array_like=True, gc=False):
    """The newest commit of an app: `count` messages from `position` on. instance, generation: its
    origin; 0: an earlier release wrote the row. earlier: other batches, the newest last."""

    app: str
    batch: int
    position: int
    count: int
    principal: str = ""
    instance: int = 0
    generation: int = 0
    earlier: list[int] = []


class LinkRow(Struct, array_like=True, gc=False):
    """A commit in segment `serial` shows parts in segments from `lowest` on."""

    serial: int
    lowest: int


class Stage(Struct):
    """What a principal staged under one token in one generation. since_ms: when `overdue` saw the
    newest part. senders: by publisher; None: an earlier release did not note them."""

    key: StageKey
    parts: list[Reference] = field(default_factory=list)
    topics: dict[str, None] = field(default_factory=dict)
    bytes: int = 0
    messages: int = 0
    since_ms: int | None = None
    senders: dict[int, Sender] | None = field(default_factory=dict)

    @property
    def open_ms(self) -> int:
        """How long it stays without a new part."""
        of_session = self.key.token.startswith(OF_TRANSACTIONS)
        return TRANSACTION_MS if of_session else STAGED_MS

    def note(self, batch: Batch) -> None:
        """Notes the sequences of a part."""
        if self.senders is None:
            return
        first, last = batch.sequence, batch.sequence + batch.taken - 1
        found = self.senders.get(batch.publisher)
        if found is None:
            found = self.senders[batch.publisher] = Sender(batch.publisher, batch.session, [])
        found.session = max(found.session, batch.session)
        if found.runs and found.runs[-1][1] == first - 1:
            found.runs[-1] = (found.runs[-1][0], last)
        elif holes.held(holes.within(found.runs, first, last), first, last):
            found.runs = holes.joined([*found.runs, (first, last)])


class Stages:
    """The stages of one log; those of other instances too, whose records are here.

    bytes: of the own ones.
    """

    def __init__(self, origins: Origins) -> None:
        self.bytes = 0
        self._origins = origins
        self._stages: dict[Owned, dict[Origin, Stage]] = {}
        self._ended: dict[str, dict[str, dict[int, int]]] = {}  # by principal, token: sessions
        self._apps: dict[str, dict[str, AppRow]] = {}  # by principal
        self._links: dict[int, int] = {}  # serial of commits: lowest serial that they refer to
        self.prepared: set[Owned] = set()  # a branch has them: only its decision ends them
        self._placed: list[tuple[Batch, Stage]] = []  # parts of the group that is being made
        self._lowest: list[int] = []  # of the commits of that group

    def __len__(self) -> int:
        return sum(map(len, self._stages.values()))

    def _all(self) -> list[Stage]:
        return [stage for found in self._stages.values() for stage in found.values()]

    def _is_own(self, origin: Origin) -> bool:
        return origin.instance in (0, self._origins.instance)

    def own(self, principal: str, token: str) -> list[Stage]:
        """What this principal staged here under this token, the oldest generation first."""
        found = self._stages.get(self._owned(principal, token), {})
        own = [stage for origin, stage in found.items() if self._is_own(origin)]
        return sorted(own, key=lambda stage: stage.key.origin)

    def get(self, key: StageKey) -> Stage | None:
        """The stage that this record of its instance means."""
        return self._stages.get(self._owned(key.principal, key.token), {}).get(key.origin)

    def _owned(self, principal: str, token: str) -> Owned:
        """Whose stages are meant: of releases that did not know it, or without security, any."""
        for owned in ((principal, token), ("", token)):
            if owned in self._stages:
                return owned
        others = () if principal else (one for one in self._stages if one[1] == token)
        return next(iter(others), (principal, token))

    @property
    def placing(self) -> bool:
        """The group that is being made has parts, whose places are not known yet."""
        return bool(self._placed)

    def last(self, principal: str, app: str) -> AppRow | None:
        """The newest commit of an app of this principal."""
        of_one = [self._apps.get(principal, {}), self._apps.get("", {})]
        if not principal:
            of_one = list(self._apps.values())
        found = [rows[app] for rows in of_one if app in rows]
        return max(found, key=lambda row: row.batch, default=None)

    def committed_elsewhere(self, record: CommitRecord, origin: Origin) -> AppRow | None:
        """The app's row if this log has that batch of it already, from another origin."""
        row = self._apps.get(record.principal, {}).get(record.app)
        if row is None or record.batch not in (row.batch, *row.earlier):
            return None
        return None if (row.batch, row.instance, row.generation) == (record.batch, *origin) else row

    def bytes_of(self, principal: str) -> int:
        """How much of this principal waits here for a commit."""
        owned = (stage for stage in self._all() if stage.key.principal == principal)
        written = sum(stage.bytes for stage in owned if self._is_own(stage.key.origin))
        return written + sum(
            batch.body_length
            for batch, stage in self._placed
            if stage.key.principal == principal and self._is_own(stage.key.origin)
        )

    # -- publishers of this instance ----------------------------------------------------------

    def lacks(
        self, principal: str, token: str, publisher: int, first: int, last: int
    ) -> list[Run] | None:
        """The runs of these sequences of a publisher that its stage does not have.

        Returns: None if an earlier release began the stage: that is not known then.
        """
        found: list[Run] = []
        for stage in self.own(principal, token):
            if stage.senders is None:
                return None
            if publisher in stage.senders:
                found += holes.within(stage.senders[publisher].runs, first, last)
        return holes.held(holes.joined(found), first, last) if found else [(first, last)]

    def has_ended(self, principal: str, token: str, is_open: Callable[[int, int], bool]) -> bool:
        """Whether this token may not be used now. is_open: whether a publisher's session is."""
        ended = self._ended.get(principal)
        if not ended or token not in ended:
            return False
        if any(is_open(*session) for session in ended[token].items()):
            return True
        del ended[token]
        return False

    def _end(self, stage: Stage) -> None:
        """No part of its own sessions begins it again. A part of a transaction may: its number
        is over, so it is never committed, and ends soon."""
        principal, token = stage.key.principal, stage.key.token
        self._drop(stage)
        own = self._is_own(stage.key.origin) and not token.startswith(OF_TRANSACTIONS)
        if stage.senders and own:
            ended = self._ended.setdefault(principal, {})
            sessions = ended.pop(token, {})
            ended[token] = sessions | {one.publisher: one.session for one in stage.senders.values()}
            if len(ended) > ENDED_MAX:
                del ended[next(iter(ended))]

    def _drop(self, stage: Stage) -> None:
        owned = stage.key.principal, stage.key.token
        del self._stages[owned][stage.key.origin]
        if not self._stages[owned]:
            del self._stages[owned]
        if self._is_own(stage.key.origin):
            self.bytes -= stage.bytes

    # -- what comes into the log --------------------------------------------------------------

    def _at(self, key: StageKey) -> Stage:
        of_token = self._stages.setdefault((key.principal, key.token), {})
        stage = of_token.get(key.origin)
        if stage is None:
            stage = of_token[key.origin] = Stage(key)
        return stage

    def placed(self, batch: Batch, principal: str) -> None:
        """A staged part has a position; it counts as soon as it is written."""
        stage = self._at(StageKey(batch.origin, principal, token_of(batch)))
        stage.note(batch)
        self._placed.append((batch, stage))
        if self._is_own(stage.key.origin):
            self.bytes += batch.body_length

    def committed(self, record: CommitRecord, batch: Batch) -> None:
        """A commit has a position."""
        for token, origin in zip(record.stages, stage_origins(record), strict=False):
            self._end_of(record.principal, token, origin, batch.origin)
        self._learn_commit(record, batch)
        self._lowest.append(min(part.serial for part in record.parts))

    def ended(self, record: AbortRecord, by: Origin) -> None:
        """An abort has a position. by: its origin; an instance ends its own stages only."""
        for number, (principal, token) in enumerate(record.stages):
            origin = record.origins[number] if record.origins else None
            mine = origin is None or origin.instance == by.instance
            if mine and (principal, token) not in self.prepared:
                self._end_of(principal, token, origin, by)

    def _end_of(self, principal: str, token: str, origin: Origin | None, by: Origin) -> None:
        if origin is not None:
            found = self.get(StageKey(origin, principal, token))
            ended = [found] if found is not None else []
        else:
            ended = self.own(principal, token) if self._is_own(by) else []
        for stage in ended:
            self._end(stage)
            for each in [each for each in self._placed if each[1] is stage]:
                self._placed.remove(each)
                self.bytes -= each[0].body_length if self._is_own(stage.key.origin) else 0

    def end_of_session(self, principal: str, tokens: str, kept: str, by: Origin) -> None:
        """Ends those of an instance whose tokens begin with `tokens`, and not with `kept`."""
        for owner, token in [*self._stages]:
            ends = token.startswith(tokens) and not token.startswith(kept)
            if owner == principal and ends and (owner, token) not in self.prepared:
                for origin in [*self._stages[owner, token]]:
                    if origin.instance == by.instance:
                        self._end_of(owner, token, origin, by)

    def end_prepared(self, owned: Owned, instance: int) -> None:
        """A branch that this instance prepared is decided."""
        self.prepared.discard(owned)
        for origin in [*self._stages.get(owned, ())]:
            if origin.instance == instance:
                self._end_of(*owned, origin, origin)

    def fold_abort(self, batch: Batch) -> None:
        """One whose body is damaged leaves its parts waiting, until another one ends them."""
        with suppress(DecodeError, UnicodeDecodeError):
            record = ABORT.decode(batch.body)
            if len(record.origins) in (0, len(record.stages)):
                self.ended(record, batch.origin)

    def written(self, serial: int) -> None:
        """Placed parts are in this segment, or in the one before."""
        for batch, stage in self._placed:
            self._add(stage, batch, serial)
            self.bytes -= (
                batch.body_length if self._is_own(stage.key.origin) else 0
            )  # counted again
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
        stage = self._at(StageKey(batch.origin, principal, token_of(batch)))
        if stage.parts and stage.parts[-1].position >= batch.position:
            return  # a snapshot knew it
        stage.note(batch)
        self._add(stage, batch, serial)

    def _add(self, stage: Stage, batch: Batch, serial: int) -> None:
        at = batch.origin_position if batch.origin_position != batch.position else 0
        stage.parts.append(Reference(batch.position, serial, batch.offset, batch.taken, at))
        stage.topics.update(dict.fromkeys(batch.topics))
        stage.bytes += batch.body_length
        stage.messages += batch.taken
        stage.since_ms = None
        if self._is_own(stage.key.origin):
            self.bytes += batch.body_length

    def _learn_commit(self, record: CommitRecord, batch: Batch) -> None:
        if not record.app:
            return  # of a transaction, which has a record of its own
        row = AppRow(
            record.app, record.batch, batch.position, batch.taken, record.principal, *batch.origin
        )  # fmt: skip
        before = self._apps.get(record.principal, {}).get(record.app)
        if before is not None and before.batch != row.batch:
            newest, other = (row, before) if row.batch > before.batch else (before, row)
            newest.earlier = [*before.earlier, other.batch][-EARLIER_MAX:]
            row = newest
        self.learn_app(row)

    # -- what goes ----------------------------------------------------------------------------

    def known(self, principal: str, tokens: Iterable[str]) -> list[StageKey]:
        """The own stages of these tokens, also those of the group that is being made."""
        free = (token for token in tokens if (principal, token) not in self.prepared)
        return [stage.key for token in free for stage in self.own(principal, token)]

    def _own_open(self) -> list[Stage]:
        """Those of this instance, without what branches have prepared."""
        return [
            one for one in self._all()
            if self._is_own(one.key.origin) and one.key[1:] not in self.prepared
        ]  # fmt: skip

    def overdue(self, now_ms: int) -> list[StageKey]:
        """Stages without a new part for long. `now_ms`: of a clock that only runs forward."""
        own = self._own_open()
        for stage in own:
            stage.since_ms = now_ms if stage.since_ms is None else stage.since_ms
        return [
            stage.key for stage in own
            if stage.since_ms is not None and stage.since_ms + stage.open_ms <= now_ms
        ]  # fmt: skip

    def held_before(self, serial: int) -> list[StageKey]:
        """Own stages with parts in segments before that one."""
        own = self._own_open()
        return [stage.key for stage in own if stage.parts and stage.parts[0].serial < serial]

    def removable(self, through: int) -> int:
        """Up to which segment all may go, at most `through`: no commit that stays shows parts of
        it, and none of it waits for a commit."""
        waiting = [part.serial for one in self._all() for part in one.parts[:1]]
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
        for one in self._all():
            (instance, generation), principal, token = one.key
            senders = list(one.senders.values()) if one.senders is not None else []
            yield StageRow(
                token, 0, one.bytes, list(one.topics), one.parts, principal, instance, generation,
                senders,
            )  # fmt: skip

    def ended_rows(self) -> Iterator[EndedRow]:
        """The rows of tokens that are refused."""
        for principal, ended in self._ended.items():
            for token, sessions in list(ended.items()):
                yield EndedRow(token, principal, list(sessions.items()))

    def app_rows(self) -> Iterable[AppRow]:
        """The rows of apps, per principal the longest unused first."""
        return [row for rows in self._apps.values() for row in rows.values()]

    def link_rows(self) -> Iterable[LinkRow]:
        """The rows of commits whose parts are in older segments."""
        return [LinkRow(serial, lowest) for serial, lowest in self._links.items()]

    def learn(self, row: StageRow) -> None:
        """It replaces what is known of its stage."""
        origin = Origin(row.instance or self._origins.instance, row.generation)
        key = StageKey(origin, row.principal, row.token)
        found = self._stages.get((row.principal, row.token), {}).get(origin)
        if found is not None:
            self._drop(found)
        stage = self._at(key)
        stage.parts, stage.bytes = list(row.parts), row.bytes
        stage.topics = dict.fromkeys(row.topics)
        stage.messages = sum(part.count for part in row.parts)
        stage.senders = {one.publisher: one for one in row.senders} if row.instance else None
        if self._is_own(origin):
            self.bytes += row.bytes

    def learn_ended(self, row: EndedRow) -> None:
        """It replaces what is known of its token."""
        self._ended.setdefault(row.principal, {})[row.token] = dict(row.sessions)

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


def abort_of(keys: list[StageKey]) -> AbortRecord:
    """The record that ends these stages."""
    return AbortRecord([(key.principal, key.token) for key in keys], [key.origin for key in keys])
