"""Which batches of this log a destination lacks, and whether they go there from here. Pure.

`after` of a record is the one before it of its origin in this log, sent or not, so a destination
that lacks something in between refuses it.

Where a part of this log is damaged, it is not known which records it had. From there on an origin
is sent only if the next complete state snapshot proves that the destination has all of it up to
that snapshot; the others stop there, and the mark stays before the damage until it is proved that
the destination needs nothing of it.

Records that were removed at the beginning of this log, or never were in it, do not go from here: an
origin of which the destination lacks some is `expired` until another instance has sent them, or a
person has them skipped (missing). A generation begins there after all that this log had of the
older ones went, whatever stopped or delayed them.

A link with topics or a filter sends what these want. `after` is then the newest wanted record
before it; other records are said to be covered, so that the row there moves on. Rows count under
the digest of the link: another one stops an origin (`digest_differs`), but for records of this
instance, of which the destination takes others from its row on. An origin that is in this log under
other topics does not go from here. What the destination gave itself goes back to it whole, whatever
the topics.

A tie has no content, so a filter cannot judge it. Its messages are before it in this log, under
another origin. Once the destination has all that it wants of what is before the tie, it has them
or does not want them, and the tie is left out. Until then its origin stops (`origin_gap`). A tie
that the destination refuses: see refused_ties.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from msgspec import DecodeError

from zbroker.ids import Origin
from zbroker.limits import MIB, U63_MAX
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.log.format import KIND_CLOSED, KIND_NOOP, KIND_TIE, OF_ALL_TOPICS, Batch
from zbroker.log.reader import Gap
from zbroker.log.records import CLOSED, ORIGIN
from zbroker.replication.batch_parts import wanted_parts
from zbroker.replication.damaged_range import DamagedRange
from zbroker.replication.effects import StartFound
from zbroker.replication.holdings import Holdings
from zbroker.replication.link_filter import LinkFilter, TypeOf, as_any
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.records import Pending, Sent, closing_now, record_of
from zbroker.replication.refused_ties import BEFORE_TIE, EXPIRED, GAP, RefusedTies
from zbroker.replication.snapshot_rows import head
from zbroker.wire.internal import Covered

OTHER_TOPICS: Final = "digest_differs"
KEEP_BYTES: Final = 64 * MIB  # of this log are kept for what a destination may read again
#: why a record is refused for a while, or until something else than a skip is done
PASSING: Final = frozenset(
    {"disk_full", "not_ready", "dropped", BEFORE_TIE, "name_missing", "fork", OTHER_TOPICS}
)
_DAMAGE: Final = Origin(0, 0)  # of all that a damaged range had
_NO_MARK: Final = frozenset({KIND_TIE, KIND_NOOP, KIND_CLOSED})  # no client waits for them


class LinkSelection:
    """The log as it is read for one destination, which holds what `peer` says.

    pending: what the destination lacks, in the order of the log. stopped: origins that do not go
    on, and why: since a record of theirs was refused, or a gap. missing: the range of those of
    which the destination lacks something that this log does not have.
    """

    def __init__(
        self, own: OwnHoldings, peer: Holdings, wants: LinkTopics = EVERYTHING,
        type_of: TypeOf = as_any,
    ) -> None:  # fmt: skip
        """type_of: how payloads of a topic are read. Raises: ClientError bad_filter."""
        self._own, self._peer, self._wants = own, peer, wants
        self._content = LinkFilter(wants.filter, type_of) if wants.filter else None
        self.pending: deque[Pending] = deque()
        self.stopped: dict[Origin, str] = {}
        self.missing: dict[Origin, tuple[int, int]] = {}
        self.refused: dict[Origin, tuple[int, int]] = {}  # likewise, of a record that never goes
        self._passed: dict[Origin, int] = {}  # the newest record of each origin that was read
        self._given: dict[Origin, int] = {}  # the newest one that was sent
        self._crcs: dict[Origin, tuple[int, int]] = {}  # of the newest one read: position, CRC
        self._chain: dict[Origin, tuple[int, int]] = {}  # likewise, of the newest wanted one
        #: read and not wanted since it was said last: the first local position, and up to where
        self._left_out: dict[Origin, tuple[int, int]] = {}
        self._declared: dict[Origin, int] = {}  # digests that this log says, as it was read
        self._before: frozenset[Origin] = frozenset()  # origins that it had where reading began
        self._removed: Mapping[Origin, int] = {}  # records that this log may not have any more
        self._under: dict[Origin, int] = {}  # digests here of those that stopped for that
        self._left_bytes = 0  # since the destination was asked to keep that
        self._unkept: deque[Pending] = deque()  # what it may not know after a crash
        self._compared: set[Origin] = set()  # whose first record of this session was sent
        self._damage = DamagedRange()
        #: of origins that stopped at a tie: what the destination must have first
        self._ties: dict[Origin, list[Pending]] = {}
        self.refused_ties = RefusedTies()

    def forget(self) -> None:
        """Reading is over, or begins again."""
        self.pending.clear()
        self._left_out.clear()
        self._damage.forget()

    def begin(self) -> dict[Origin, int]:
        """It begins where the destination is, which is returned."""
        self.stopped.clear()
        self.missing.clear()
        self._given.clear()
        self._compared.clear()
        self._left_out.clear()
        self._declared.clear()
        self._removed = {}
        self._under.clear()
        self._ties.clear()
        self.refused_ties.begin()
        known = (*self._peer.rows, *self._peer.closed)
        self._passed = {origin: self._reached(origin) for origin in known}
        self._chain = {origin: (self._known_from(origin), -1) for origin in self._passed}
        for origin in self._peer.rows:
            if self._differs(origin):
                self.stopped[origin] = OTHER_TOPICS
        old = {one: end for one, end in self._own.closed.items() if self._peer.has_all_of(one)}
        safe = {one: min(at, self._peer.safe_position(one)) for one, at in self._passed.items()}
        return {**old, **self._peer.closed, **safe}

    def digest_of(self, origin: Origin) -> int:
        """By which digest this link sends an origin."""
        return 0 if origin.instance == self._peer.instance else self._wants.digest

    def _differs(self, origin: Origin) -> bool:
        """Whether the destination takes an origin under other topics, and not from here."""
        if origin.instance == self._own.instance or origin in self._peer.closed:
            return False
        row = self._peer.rows.get(origin)
        return row is not None and row.position > 0 and row.digest != self.digest_of(origin)

    def _known_from(self, origin: Origin) -> int:
        """The `after` of a record when no wanted one was read before it: the place where the
        destination is, since a record ends there; a copy under topics begins where it does."""
        row = self._own.row(origin)
        if row is not None and row.digest:
            return max(0, row.begins - 1)
        return self._passed[origin]

    def changes(self) -> list[Covered]:
        """Own origins that the destination takes under the topics of this link from now on: other
        instances count them only then."""
        return [
            Covered(*origin, row.position, row.position)
            for origin, row in self._peer.rows.items()
            if origin.instance == self._own.instance and row.position
            and row.digest != self.digest_of(origin) and origin not in self._peer.closed
        ]  # fmt: skip

    def _holds(self, origin: Origin) -> int:
        """Up to where the destination has what this link sends of an origin."""
        position = self._peer.position(origin, self.digest_of(origin))
        if not position and origin in self._own.closed and self._peer.has_all_of(origin):
            return self._own.closed[origin]
        return position

    def _reached(self, origin: Origin) -> int:
        """Up to where nothing is sent. Own origins go on where their row is, also one of other
        topics: the records before it cannot be placed there any more."""
        if origin.instance == self._own.instance:
            return max(self._peer.any_position(origin), self._holds(origin))
        return self._holds(origin)

    def found(self, start: StartFound) -> None:
        """It begins to read there."""
        position, crcs = start.cursor.position, start.crcs
        self._crcs, self._before = dict(crcs), frozenset(crcs)
        self._removed = {} if self._wants.digest else start.removed
        self._unkept.clear()  # only now: a link that is down may be one whose destination crashed
        for origin, (at, crc) in crcs.items():
            row = self._own.row(origin)
            if row is not None and row.digest and at > self._chain.get(origin, (0, -1))[0]:
                self._chain[origin] = at, crc  # all that is here of it is wanted
        gone = {one: at for one, at in self._own.closed.items() if at <= self._removed.get(one, -1)}
        for origin, last in {**start.below, **gone}.items():
            self._lacks(position, origin, last)

    def _lacks(self, position: int, origin: Origin, last: int) -> None:
        """What this log has of an origin from `position` on begins after `last`."""
        held = self._reached(origin)
        if self._passed.get(origin, 0) > last or not last:
            return
        self._passed[origin] = last
        self._crcs[origin] = self._chain[origin] = last, -1
        if held < last:
            self.stopped[origin], self.missing[origin] = EXPIRED, (held + 1, last)
            self.pending.append(Pending(position, origin, last))

    def skipped(self, batch: Batch) -> None:
        """This log says what the row of an origin means: something may never have been here."""
        with suppress(DecodeError, UnicodeDecodeError):
            record = ORIGIN.decode(batch.body)
            origin = Origin(record.instance, record.generation)
            self._declared[origin] = record.digest
            if record.skipped:
                self._lacks(batch.position, origin, record.position)

    @property
    def lacks(self) -> list[int]:
        """Instances of which this log lacks something that the destination needs first, if only
        control records."""
        ours = {origin.instance for origin, why in self.stopped.items() if why in (EXPIRED, GAP)}
        removed = self._removed.items()
        return sorted(ours | {one.instance for one, last in removed if self._reached(one) < last})

    def was_refused(self, origin: Origin, last: int, code: str, kind: int) -> None:
        """A record that ends at `last` was not taken there. The first refusal is the reason: the
        records after it are refused because that one is missing."""
        if origin in self.stopped:
            return
        if kind == KIND_TIE and code == BEFORE_TIE:
            code = self.refused_ties.refused(origin, last, self.stopped)
            if code == EXPIRED:
                self.missing[origin] = self._reached(origin) + 1, last
        elif code not in PASSING:
            self.refused[origin] = self._reached(origin) + 1, last
        self.stopped[origin] = code

    @property
    def skippable(self) -> dict[Origin, tuple[int, int]]:
        """Ranges that hold an origin up until a person gives them up, or another instance helps.
        An empty one: the destination takes it under other topics."""
        others = {
            one: (self._peer.any_position(one) + 1, self._peer.any_position(one))
            for one, why in self.stopped.items() if why == OTHER_TOPICS and self._differs(one)
        }  # fmt: skip
        return {**others, **self.refused, **self.missing}

    @property
    def overcome(self) -> bool:
        """The destination is beyond such a range, takes an origin under these topics now, or has
        what a tie waited for."""
        if any(all(map(self._covers, before)) for before in self._ties.values()):
            return True
        ranges = {**self.refused, **self.missing}
        if any(
            w == OTHER_TOPICS and self._peer.rows[o].digest == self.digest_of(o)
            for o, w in self.stopped.items()
            if o in self._peer.rows and o not in self._under
        ):
            return True  # fmt: skip
        if any(self._row_digest(o) != was for o, was in self._under.items()):
            return True
        self.refused = {one: at for one, at in self.refused.items() if self._holds(one) < at[1]}
        return any(self._holds(one) >= last for one, (_, last) in ranges.items())

    def covered(self) -> None:
        """Forgets what is pending as far as the destination holds it by now."""
        pending = self.pending
        while pending and self._covers(pending[0]):
            pending.popleft()
        unkept = self._unkept
        while unkept and self._peer.safe_position(unkept[0].origin) >= unkept[0].last:
            unkept.popleft()

    @property
    def unkept(self) -> int:
        """The first local position that is read again if the destination crashes."""
        return self._unkept[0].position if self._unkept else U63_MAX

    def _covers(self, pending: Pending) -> bool:
        if pending.origin != _DAMAGE:
            return self._holds(pending.origin) >= pending.last
        return self._damage.is_covered(self._holds)

    def may_want(self, batch: Batch) -> bool:
        """Whether a record of a batch may be sent."""
        if not self.digest_of(batch.origin):
            return True
        if batch.kind in OF_ALL_TOPICS:
            return False
        return not batch.topics or self._wants.any_of(batch.topics)

    def judged(self, batch: Batch) -> list[Sent]:
        """The records of a batch that have to be sent; what else it has is noted."""
        origin = batch.origin
        if not self.digest_of(origin):
            sent = self._judged(batch, origin, 0)
            return [sent] if sent is not None else []
        if batch.kind == KIND_CLOSED:
            self._closes(batch)
        passed = self._passed.get(origin, 0)
        if batch.origin_position <= passed < batch.origin_position + batch.taken - 1:
            self._crcs[origin] = passed, batch.content_crc  # a part of it ends there
        if self._content is not None and batch.kind == KIND_TIE:
            self._ties_up(batch, origin)
            parts = []
        else:
            parts = wanted_parts(batch, self._wants, self._content)
        found = [self._judged(part, origin, self._wants.digest) for part in parts]
        self._passes(batch, origin)
        return [sent for sent in found if sent is not None]

    def _judged(self, batch: Batch, origin: Origin, digest: int) -> Sent | None:
        """The record of a batch, or of a part of one, if it has to be sent."""
        last = batch.origin_position + batch.taken - 1
        passed, content = self._passed.get(origin, 0), (last, batch.content_crc)
        if last <= passed:  # read again, below what the destination has
            if last == passed:
                self._crcs[origin] = content
            if digest:
                self._chain[origin] = content
            return None
        held = max(self._reached(origin), self._given.get(origin, 0))
        newest = self._crcs.get(origin, (0, -1))
        after, after_crc = self._chain.get(origin, (0, -1)) if digest else (passed, newest[1])
        self._passed[origin] = last
        self._crcs[origin] = self._chain[origin] = content
        if last <= held:
            return None
        if batch.kind not in _NO_MARK:
            self.pending.append(Pending(batch.position, origin, last))
        if not self._goes(origin, held):
            return None
        if origin not in self._compared:
            if batch.origin_position <= passed:  # a relay has sent a part of it: CRCs are compared
                self._compared.add(origin)
                return self._given_as(batch, last, batch.origin_position - 1, None)
            if self._is_whole_here(origin) and (held > passed or (passed and newest[0] != passed)):
                self.stopped[origin] = "fork"
                return None
            self._compared.add(origin)
            known = after and after_crc >= 0
            return self._given_as(batch, last, after, after_crc if known else None)
        return self._given_as(batch, last, after, None)

    def _is_whole_here(self, origin: Origin) -> bool:
        """Whether every place that a row may name of an origin is the end of a record here."""
        return not self._digest_here(origin)

    def _ties_up(self, batch: Batch, origin: Origin) -> None:
        """A tie is read: its origin stops until the destination has what is before it."""
        last = batch.origin_position + batch.taken - 1
        if last <= max(self._passed.get(origin, 0), self._reached(origin)):
            return
        if not self.may_want(batch):
            return
        before = self._lacking(batch.position, origin)
        held = max(self._reached(origin), self._given.get(origin, 0))
        if before and self._goes(origin, held):
            self.stopped[origin], self._ties[origin] = BEFORE_TIE, before

    def _lacking(self, position: int, origin: Origin) -> list[Pending]:
        """What the destination lacks of all that was read before `position`, of other origins."""
        newest = Origin(self._peer.instance, self._peer.generation)
        damaged = [one for one in self.pending if one.origin == _DAMAGE]
        return damaged + [
            Pending(position, one, at) for one, at in self._sent_ends()
            if one != origin and self._holds(one) < at
            and not (one.instance == newest.instance and one >= newest)  # it has that itself
        ]  # fmt: skip

    # -- what the topics leave out ----------------------------------------------------------------

    def _passes(self, batch: Batch, origin: Origin) -> None:
        """A batch was read; what of it is not wanted is left out."""
        last = batch.origin_position + batch.taken - 1
        passed = self._passed.get(origin, 0)
        if last >= passed:
            self._passed[origin], self._crcs[origin] = last, (last, batch.content_crc)
        if last <= self._chain.get(origin, (0, -1))[0]:
            return  # its end is wanted
        if last <= min(passed, self._peer.safe_position(origin)):
            return
        self._left_bytes += batch.header_length + batch.body_length
        self._leave_out(batch.position, origin, last)

    def _leave_out(self, position: int, origin: Origin, last: int) -> None:
        first = self._left_out.get(origin, (position, 0))[0]
        self._left_out[origin] = first, last

    def _closes(self, batch: Batch) -> None:
        """An older generation ends; of it there is nothing more, also if its end is not wanted."""
        with suppress(DecodeError, UnicodeDecodeError):
            said = CLOSED.decode(batch.body)
            origin = Origin(batch.origin_instance, said.generation)
            if said.end > self._peer.any_position(origin) and self.digest_of(origin):
                self._leave_out(batch.position, origin, said.end)

    def covered_there(self) -> list[Covered]:
        """What the topics left out since the last time, after all that was sent."""
        found: dict[Origin, Covered] = {}
        for origin, (first, last) in self._left_out.items():
            self._unkept.append(Pending(first, origin, last))
            self._cover(found, origin, last)
        self._left_out.clear()
        if self._left_bytes >= KEEP_BYTES:
            self._left_bytes = 0
            for pending in self._unkept:
                self._cover(found, pending.origin, pending.last)
            for covered in found.values():
                covered.keep = True
        return [*found.values()]

    def _cover(self, found: dict[Origin, Covered], origin: Origin, last: int) -> None:
        after = self._chain.get(origin, (0, -1))[0]
        held = max(self._reached(origin), self._given.get(origin, 0))
        if after < last and self._goes(origin, held):  # else a wanted record came after it
            found[origin] = Covered(*origin, after, last)

    def damaged(self, gap: Gap) -> None:
        """A range of the log cannot be read."""
        self._damage.begin()
        self.pending.append(Pending(gap.first, _DAMAGE, 0))

    def proved(self, batch: Batch) -> None:
        """A part of a state snapshot: it counts after a damaged range, and where this log begins
        with the state of another instance. Reading may have begun while the log was empty."""
        said = head(batch.body, batch.position)
        if said is not None and said.is_taken:
            self._removed = {} if self._wants.digest else said.records
            for origin, last, _, _ in said.missing:
                self._lacks(batch.position, origin, last)
        for origin, (at, crc) in self._damage.proved(batch.body).items():
            if self._passed.get(origin, 0) < at:
                self._passed[origin], self._crcs[origin] = at, (at, crc)
                self._chain[origin] = at, -1

    def _goes(self, origin: Origin, held: int) -> bool:
        """Whether records of this origin are sent from here now."""
        self._look_at_own(origin, held)
        if not self._damage.is_whole(origin, held):
            self.stopped.setdefault(origin, GAP)
        if origin in self.stopped:
            return False
        if origin.instance == self._peer.instance:
            goes = origin.generation < self._peer.generation
        else:
            own = origin.instance == self._own.instance
            goes = own or origin.instance not in self._peer.sources
        if goes and not held and not self._older_went(origin):
            self.stopped[origin], goes = GAP, False
        return goes

    def _look_at_own(self, origin: Origin, held: int) -> None:
        """An origin goes on from the copy here if that has what this link sends of it."""
        if origin.instance == self._own.instance:
            return
        row, here = self._own.row(origin), self._digest_here(origin)
        if here not in (0, self.digest_of(origin)):
            self.stopped.setdefault(origin, OTHER_TOPICS)
            self._under[origin] = self._row_digest(origin)
        elif row is not None and held + 1 < row.begins and origin not in self.stopped:
            self.stopped[origin], self.missing[origin] = EXPIRED, (held + 1, row.begins - 1)

    def _digest_here(self, origin: Origin) -> int:
        """The topics under which this log has an origin where it is read now. A log is read before
        the receipts of what is in it came: what it says of a row counts first."""
        return self._declared.get(origin, self._row_digest(origin))

    def _row_digest(self, origin: Origin) -> int:
        """The same as the journal said it last; -1: not yet."""
        own = self._own
        known = own.row(origin) is not None or origin in own.closed or origin not in self._before
        return own.digest(origin) if known or origin.instance == own.instance else -1

    def _older_went(self, origin: Origin) -> bool:
        """Whether what this log had of older generations is there, or on its way: readers there
        take the first record of a generation for the end of them (zbroker.journal.link_sessions).
        """
        if any(one.precedes(origin) for one in self._ties):
            return False
        return not any(
            at > max(self._reached(one), self._given.get(one, 0))
            for one, at in self._sent_ends()
            if one.precedes(origin)
            and self.stopped.get(one) != "fork"  # a new generation is the way out of it
            # else it may be of a record that stays here
            and (self._crcs.get(one, (0, -1))[1] >= 0 or one in self.missing)
        )

    def _sent_ends(self) -> list[tuple[Origin, int]]:
        """The end of the newest record of each origin that was read and is wanted."""
        return [
            (one, self._chain.get(one, (0, -1))[0] if self.digest_of(one) else at)
            for one, at in self._passed.items()
        ]

    def _given_as(self, batch: Batch, last: int, after: int, after_crc: int | None) -> Sent:
        origin = batch.origin
        if self.refused_ties.is_again(origin, last):
            before = [one.origin for one in self._lacking(batch.position, origin)]
            self.refused_ties.given(origin, last, before)
        self._given[origin] = last
        if batch.kind == KIND_CLOSED:
            batch = closing_now(batch, self._own.closed)
        return record_of(batch, after, after_crc)
