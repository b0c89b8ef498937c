"""Which records of a peer are taken, and why others are not, with the way out. Pure.

Nothing is believed beyond the right of the link session (link_sessions.py), and the fields of a
record are checked before anything is decided by them (record_bounds.py). A peer with the right for
an origin may still bring wrong records; two histories with one name show in the content CRC of the
record before (`fork`).

A record whose `after` is not here yet is refused, so the rest of that origin waits after a refusal;
otherwise the later records would make the refused one look like a duplicate. One whose `after` is
below a record that is here is refused, too: its sender lacks that one. A generation does not begin
here while something that was refused of an older one is missing.
"""

from __future__ import annotations

from copy import copy
from typing import Final, NamedTuple

from msgspec import DecodeError

from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.group_builder import DISK_FULL, NOT_READY, Body, GroupBuilder
from zbroker.journal.link_sessions import LinkSession, Refusal, owner_of
from zbroker.journal.origins import Seen
from zbroker.journal.record_bounds import outside
from zbroker.limits import GROUP_MAX_BYTES, U63_MAX
from zbroker.log import records
from zbroker.log.format import (
    FLAG_SHOWS,
    FLAG_UNIT,
    KIND_CLOSED,
    KIND_PUBLISH,
    KIND_STAGED,
    KIND_TIE,
    OF_ALL_TOPICS,
    SEQUENCED,
    STAYS,
    STEP_OVER,
    TRAVELS,
    kept_crc,
)
from zbroker.wire.internal import Record

_COPIED: Final = frozenset(TRAVELS) - STAYS
_ALONE: Final = frozenset({KIND_STAGED, KIND_CLOSED})
_WAY_OUT: Final = (
    "`zbroker-admin replication fork {} --keep HOST` takes it again from the instance that has it"
)
_KEEP_ONE: Final = (
    "both stay as they are, and nothing more of it comes over this link; keep the data directory "
    "that has more, publish again what only the other one has, and start that one's instance on an "
    "empty data directory"
)
OTHER_TOPICS: Final = "digest_differs"
_NOT_OF_QUEUES: Final = (
    "this peer may bring some topics only, and records of replicated queues, of exchanges and "
    "of points are about any of them; "
    'give its role the right `replicate` for topics = ["*"], or keep its queues local'
)
_NOT_IN_UNIT: Final = (
    "a staged part or a closing is a unit by itself, and a commit is the first of its unit"
)
_OF_PUBLISHERS: Final = SEQUENCED | {KIND_TIE}


class RecordUnit(NamedTuple):
    """Records that land together, each with its body. size: bytes of log that they take, but for
    what falls into holes. link: None if its session is over."""

    link: LinkSession | None
    records: list[Record]
    bodies: list[Body]
    size: int


class RecordJudge:
    """Judges for the log of `to`; changes nothing."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to

    def unit(
        self, link: LinkSession, unit: RecordUnit, origin: Origin, seen: Seen, *, fits: bool
    ) -> Refusal | None:
        """Why none of it is taken; `seen`: the row of its origin. fits: there is space on a nearly
        full disk for control records."""
        refusal = self._unit(link, unit, origin, seen, fits)
        is_new = unit.records[-1].last > seen.position
        if refusal is None and not is_new and self._is_under_others(link, origin, seen):
            return self._other_topics(link, origin, seen)  # it may have been left out here
        return refusal

    def _unit(
        self, link: LinkSession, unit: RecordUnit, origin: Origin, seen: Seen, fits: bool
    ) -> Refusal | None:
        given = unit.records
        if not self._to.decided:
            return "not_ready", NOT_READY
        if given[-1].flags & FLAG_UNIT:
            return "bad_field", "a unit must be whole in its message"
        if len(given) == 1:
            refusal = self._judge(link, given[0], origin, seen, fits)
            closes = given[0].kind == KIND_CLOSED and given[0].last > seen.position
            return refusal or (self.closing(given[0], unit.bodies[0]) if closes else None)
        if unit.size - max(map(len, unit.bodies)) > GROUP_MAX_BYTES:
            reason = f"a unit has at most {GROUP_MAX_BYTES} bytes besides its largest record"
            return "too_large", reason
        ahead = copy(seen)  # its first record may begin the row
        ahead.digest = seen.digest if seen.position else self.digest_of(link, origin)
        for number, record in enumerate(given):
            if (record.instance, record.generation) != origin:
                return "bad_field", "the records of a unit have one origin"
            if record.kind in _ALONE or (number and record.flags & FLAG_SHOWS):
                return "bad_field", _NOT_IN_UNIT
            refusal = self._judge(link, record, origin, ahead, fits)
            if refusal is not None:
                return refusal
            if record.last > ahead.position:
                ahead.position = ahead.crc_at = record.last
                ahead.crc = kept_crc(record.extra, record.crc)
        return None

    def _judge(
        self, link: LinkSession, record: Record, origin: Origin, seen: Seen, fits: bool
    ) -> Refusal | None:
        """Why a record is not taken, with the way out; None if it is, or is here already."""
        if wrong := outside(record):
            return "bad_field", wrong
        kind, last = record.kind, record.last
        if kind in STAYS:
            return "bad_field", f"records of kind {kind} stay on their instance"
        if kind not in _COPIED and not kind & STEP_OVER:
            reason = f"records of kind {kind} are not known here; update this instance first"
            return "unknown_version", reason
        if not 0 < record.position <= last <= U63_MAX or record.seq + record.count > U63_MAX:
            return "bad_field", "a record counts no messages, or its positions are not below 2**63"
        if record.flags & FLAG_SHOWS and kind != KIND_PUBLISH:
            return "bad_field", "only a commit shows messages that are elsewhere"
        if kind in SEQUENCED and record.prev >= record.seq:
            return "bad_field", "`prev` of a record must be below its `seq`"
        if (refusal := self.beyond_right(link, origin, last, seen)) is not None:
            return refusal
        if (refusal := self._beyond_topics(link, record)) is not None:
            return refusal
        if record.position <= seen.crc_at <= last:
            crc = kept_crc(record.extra, record.crc)
            return self._fork(origin, seen, crc) or self._of_new(link, record, origin, seen, fits)
        return self._of_new(link, record, origin, seen, fits)

    @staticmethod
    def _beyond_topics(link: LinkSession, record: Record) -> Refusal | None:
        """What a peer may not bring, by its topics. Records of queues are about any of them."""
        if record.kind in OF_ALL_TOPICS and not link.brings_everything:
            return "not_entitled", _NOT_OF_QUEUES
        return link.refuses_topics(record.topics)

    def beyond_right(
        self, link: LinkSession, origin: Origin, last: int, seen: Seen
    ) -> Refusal | None:
        """What a peer may not say of this origin up to `last`, over this link."""
        instance, generation = origin
        if link.refuses_origin(instance):
            reason = f"this peer may not bring records of {instance:016x}; give it that right"
            return "not_entitled", reason
        if (closed := self._to.sessions.origins.closed.get(origin)) is not None:
            return _beyond(closed, origin, last, link.peer)
        to = self._to
        if (
            instance == to.settings.instance
            and generation >= to.generation
            and last > seen.position
        ):
            return "origin_ahead", (
                f"a peer holds position {last} of generation {generation}, this log ends at "
                f"{seen.position}: its end is lost; fetch it back in a new generation"
            )
        if instance != link.peer and self._is_under_others(link, origin, seen):
            return self._other_topics(link, origin, seen)
        return None

    def _is_under_others(self, link: LinkSession, origin: Origin, seen: Seen) -> bool:
        """Whether it is here under other topics than those of the link."""
        return seen.position > 0 and seen.digest != self.digest_of(link, origin)

    def _other_topics(self, link: LinkSession, origin: Origin, seen: Seen) -> Refusal:
        said = (
            f"{_text(origin)} is here up to {seen.position} under the topics {seen.digest:016x}, "
            f"this link has {self.digest_of(link, origin):016x} (0: all); "
        )
        if origin.instance == link.peer:
            return OTHER_TOPICS, said + (
                "it goes on from there by itself, and what was left out before is listed by: "
                "zbroker-admin replication missing"
            )
        return OTHER_TOPICS, said + (
            "give both links the same topics, take the origin over one of them, or have it taken "
            "under these: zbroker-admin replication skip"
        )

    def digest_of(self, link: LinkSession, origin: Origin) -> int:
        """Under which digest an origin comes over a link. What this instance gave comes back
        whole; and an instance changes the topics of its own origins, which is a declared gap."""
        return 0 if origin.instance == self._to.settings.instance else link.digest

    def closing(self, record: Record, body: Body) -> Refusal | None:
        """Why an older generation of this record's instance cannot be closed by it here yet."""
        try:
            said = records.CLOSED.decode(body)
        except (DecodeError, UnicodeDecodeError) as error:
            return "bad_field", f"not a closing record: {error}"
        if not 0 <= said.generation < record.generation or not 0 <= said.end <= U63_MAX:
            return "bad_field", "a record closes an older generation of its own instance"
        origins = self._to.sessions.origins
        origin = Origin(record.instance, said.generation)
        closed, seen = origins.closed.get(origin), origins.get(origin)
        if said.forked and not said.end < said.forked <= U63_MAX:
            return "bad_field", "records that were taken again of a generation are beyond its end"
        if closed is not None and closed.end != said.end:
            reason = f"{_text(origin)} has ended at {closed.end} here, and at {said.end} there"
            return "fork", f"{reason}: two histories have this name; {_KEEP_ONE}"
        if closed is None and seen.crc_at > max(said.end, said.forked):
            return "fork", (
                f"this log holds {_text(origin)} up to {seen.crc_at}, and its instance has closed "
                f"it at {said.end}, without an answer from here: no other instance will take "
                f"what is beyond that; on that instance, {_WAY_OUT.format(_text(origin))}"
            )
        if seen.position < said.end:
            return "origin_gap", (
                f"this log holds {_text(origin)} up to {seen.position}, and it ends at {said.end}; "
                "send the rest of it first"
            )
        return None

    def too_early(self, link: LinkSession, origin: Origin, seen: Seen) -> Refusal | None:
        """Why nothing of a new generation is taken yet, over this link."""
        if seen.position or link.may_begin(origin, self._to.sessions.origins.high):
            return None
        return "origin_gap", (
            f"{_text(origin)} cannot begin here: records of older generations of that instance "
            "were refused over this link, and are still missing; send those first"
        )

    def _fork(self, origin: Origin, seen: Seen, theirs: int | None) -> Refusal | None:
        if theirs is None or seen.crc < 0 or theirs == seen.crc:
            return None
        return "fork", (
            f"two histories have the name {_text(origin)}: the record up to {seen.crc_at} has the "
            f"CRC {theirs:08x} at the sender and {seen.crc:08x} here; {_KEEP_ONE}"
        )

    def _of_new(
        self, link: LinkSession, record: Record, origin: Origin, seen: Seen, fits: bool
    ) -> Refusal | None:
        """Why a record that is not here is not taken."""
        if record.last <= seen.position:
            return None
        if record.after > seen.position:
            reason = f"this log holds {_text(origin)} up to {seen.position}, not to {record.after}"
            return "origin_gap", f"{reason}; send it from there"
        if (refusal := self.too_early(link, origin, seen)) is not None:
            return refusal
        if record.position > seen.position:
            if record.after < seen.crc_at:
                return "origin_gap", (
                    f"this log holds a record of {_text(origin)} at {seen.crc_at}, and the sender "
                    f"has none after {record.after}; take this one from another peer"
                )
            # after a range that was given up, or covered, the CRC is not that of the record before
            same = record.after == seen.crc_at
            if same and (refusal := self._fork(origin, seen, record.after_crc)) is not None:
                return refusal
        if self._to.fenced and origin in self._to.sessions.origins.closed:
            return "not_ready", NOT_READY  # it would be placed as an own record
        if not self._to.accepting and not (fits and record.kind not in SEQUENCED):
            return "disk_full", DISK_FULL
        if record.kind in _OF_PUBLISHERS:
            return self._of_publisher(link, record, origin)
        return None

    def _of_publisher(self, link: LinkSession, record: Record, origin: Origin) -> Refusal | None:
        sessions = self._to.sessions
        known = sessions.get(record.publisher)
        if known is not None and known.named:
            name = known.name
        elif (taught := link.names.get(record.publisher)) is not None:
            name = taught.name
            try:
                sessions.check_name(record.publisher, name, taught.principal)
            except ClientError as error:
                return error.code, error.reason
        else:
            reason = f"publisher {record.publisher} has no name here; send that before its records"
            return "name_missing", reason
        if name[0] == "$" and owner_of(name) not in (None, origin):
            reason = f"{name!r} has records of its own origin only, not of {_text(origin)}"
            return "not_entitled", reason
        if record.kind == KIND_TIE:
            first = record.seq - record.skip
            if sessions.runs(record.publisher, first, record.seq)[0]:
                reason = f"messages {first} to {record.seq} of {name!r} are not all here"
                return "origin_gap", f"{reason}; send those first that have another origin, too"
        return None


def _beyond(closed: ClosedRow, origin: Origin, last: int, peer: int) -> Refusal | None:
    """Why a record up to `last` of a closed generation is not taken from this peer."""
    if last <= closed.reach or closed.takes_from(peer, last):
        return None
    return "fork", (
        f"{_text(origin)} was closed at {closed.end}, and the sender has a record of it up to "
        f"{last}: it was away, and was not waited for; on the instance {origin.instance:016x}, "
        f"{_WAY_OUT.format(_text(origin))}"
    )


def _text(origin: Origin) -> str:
    return f"{origin.instance:016x}.{origin.generation}"
