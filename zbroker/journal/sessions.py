"""Publisher sessions and de-duplication: which batch is accepted, cut, repeated or refused.

"Highest sequence seen" alone loses data whenever something arrives out of order, therefore:

- A logon opens a session with a number never given before; batches of older sessions are refused.
- A batch says `prev`, the sequence its publisher issued before it. It is accepted iff
  prev <= high < last. What overlaps is cut (`skip`); prev > high is a `sequence_gap`, unless the
  publisher chose to go on (`hole`).
- So no refusal has to be remembered, which a restart would forget: what follows a refused batch is
  refused too, by its `prev`. Clients may leave it out; ingest fills it in (ingest/chain.py).
- A message that falls into a hole (holes.py) is stored, flagged late, from any sender.

The table is folded from the log when the journal starts: from batch headers, and from state
snapshots, whose rows replace what is known of a publisher, as of their place.
Nothing else is a source for it.
Source: seed 002, "Guaranteed Publishing"; docs/reference/wire.md, "Sequences".
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from zbroker.errors import ClientError
from zbroker.ids import Origin, publisher_id
from zbroker.journal import holes
from zbroker.journal.exchange_records import ExchangeRecords
from zbroker.journal.forgotten_peers import ForgottenPeers
from zbroker.journal.holes import Hole, Holes, Run
from zbroker.journal.missing_ranges import MissingRanges, MissingRow
from zbroker.journal.named_records import NamedRecords
from zbroker.journal.origins import Origins
from zbroker.journal.stages import Stages
from zbroker.journal.transaction_table import TransactionTable
from zbroker.limits import U63_MAX
from zbroker.log.format import FLAG_LATE, KIND_STAGED, SEQUENCED, Batch
from zbroker.log.former_names import former_names
from zbroker.log.records import OriginRecord
from zbroker.wire.internal import Entry
from zbroker.wire.replicas import MissingRange

#: A session is numbered by the clock in ns, or one above the newest: this is reached in 2116.
#: What a log or a peer says beyond it is none of ours, and none to go on from.
SESSION_MAX: Final = 1 << 62
RECENT_MAX: Final = 64  # batches per publisher whose content is compared when they come again


class Recent(NamedTuple):
    """A batch that this process accepted lately."""

    first: int
    messages: int
    crc: int
    last_position: int


class _Writer(NamedTuple):
    """The session that wrote something: its number, and the origin that gave it."""

    session: int
    instance: int
    generation: int


class PublisherState(Struct):
    """One client name: what the log holds of it and which session may go on."""

    id: int
    name: str
    principal: str = ""
    high: int = 0  # highest sequence in the log
    high_position: int = 0  # the position of that message
    acked: int = 0  # highest sequence known durable
    session: int = 0  # newest session of this instance; batches of its others are refused
    newest: int = 0  # highest session number given or seen, also by other instances
    wrote: int = 0  # session of the batch that holds `high`
    wrote_at: int = 0  # the instance that gave this session: two may give the same number,
    wrote_in: int = 0  # and so may two generations of one that was set back, with a slow clock
    named: bool = False  # its publisher record is in the log
    late_position: int = 0  # of the newest message that filled a hole
    given_up: int = 0  # holes up to this sequence may have been forgotten
    holes: Holes = field(default_factory=list)
    closed: int = 0  # a session that its publisher ended
    recent: deque[Recent] | None = None  # made by the first batch: most publishers are silent

    @property
    def last_position(self) -> int:
        """All messages of this publisher are at or before it."""
        return max(self.high_position, self.late_position)

    def remember(self, batch: Recent) -> None:
        """Its content is compared when it comes again."""
        if self.recent is None:
            self.recent = deque(maxlen=RECENT_MAX)
        self.recent.append(batch)

    @property
    def unbroken(self) -> int:
        """Up to here all that is known to have been issued is in the log."""
        return next((hole.first - 1 for hole in self.holes if hole.issued), self.high)


class PublisherRow(Struct, array_like=True, gc=False):
    """A publisher in a state snapshot. New fields go to the end, with a default."""

    id: int
    name: str
    principal: str
    high: int
    high_position: int
    session: int
    newest: int
    wrote: int
    wrote_at: int = 0
    late_position: int = 0
    given_up: int = 0
    holes: list[Hole] = []
    wrote_in: int = 0


class Verdict(NamedTuple):
    """accept: `skip` messages are cut. duplicate: in the log up to `position`. refuse: `code`.

    runs: accept these sequences only; some of them fill holes.
    """

    what: Literal["accept", "duplicate", "refuse"]
    skip: int = 0
    position: int = 0
    code: str = ""
    reason: str = ""
    conflict: bool = False
    runs: tuple[Run, ...] = ()


def refusal(code: str, reason: str) -> Verdict:
    """A refusal with this error code."""
    return Verdict("refuse", code=code, reason=reason)


class Sessions:
    """The publisher table of one journal; `origins`: how far each is here; `named`: names;
    `stages`: parts that wait for a commit; `missing`: ranges of origins that are not here;
    `forgotten_peers`: those that are not waited for; `exchanges`: rows of exchanges and bindings;
    `transactions`: sessions with transactions.

    instance: whose journal this is; sessions of other origins end none of its own.
    forgotten: holes with something in them that were given up.
    """

    def __init__(self, instance: int = 0) -> None:
        self.origins = Origins(instance)
        self.named = NamedRecords(self.origins.high)
        self.stages = Stages(self.origins)
        self.missing = MissingRanges()
        self.forgotten_peers = ForgottenPeers()
        self.exchanges = ExchangeRecords()
        self.transactions = TransactionTable(self.stages)
        self.forgotten = 0
        self._publishers: dict[int, PublisherState] = {}
        self._names: Counter[str] = Counter()  # in the log, by principal

    def __len__(self) -> int:
        return len(self._publishers)

    @property
    def is_empty(self) -> bool:
        """The log has nothing that travels, and no publisher."""
        return self.origins.is_empty and not any(known.high for known in self._publishers.values())

    def declare(self, record: OriginRecord, at: int) -> None:
        """What the row of an origin means from `at` on; a range that a person gave up is missing,
        and nothing waits for it."""
        self.origins.declare(record)
        if record.skipped:
            origin = Origin(record.instance, record.generation)
            self.missing.note(MissingRow(*origin, record.skipped, record.position, "skipped", at))
            seen = self.origins.of(origin)
            seen.messages = max(seen.messages, record.position)
            seen.stored = max(seen.stored, record.position)

    def ranges_missing(self) -> list[MissingRange]:
        """Ranges of origins that are not in this log, or there under other names (`forked`)."""
        rows = self.missing.rows()
        found = [MissingRange(r.instance, r.generation, r.first, r.last, r.why) for r in rows]
        return found + [
            MissingRange(*r.origin, r.end + 1, max(r.beyond, r.takes), "forked")
            for r in self.origins.closed.forked()
        ]

    def get(self, publisher: int) -> PublisherState | None:
        """The publisher with this id, if it has a session or messages in the log."""
        return self._publishers.get(publisher)

    # -- what the log says --------------------------------------------------------------------

    def fold(self, batch: Batch) -> None:
        """Learns from one batch of the log, in log order, all of it durable."""
        if batch.kind not in SEQUENCED:
            return
        known = self.meet(batch.publisher)
        self.stored(known, batch)
        known.acked = known.high

    def stored(self, known: PublisherState, batch: Batch) -> None:
        """`batch` is in the log. Folding and accepting come to the same table by this."""
        first, last = batch.sequence, batch.sequence + batch.taken - 1
        session, (at, generation) = batch.session, batch.origin
        former = next(former_names(batch.extra), None) if batch.extra else None
        if former is not None:  # its session was one of that generation, and is over
            at, generation = former.origin
        if known.newest < session <= SESSION_MAX:
            known.newest = session
        if session > known.session and former is None and self.origins.is_own(batch):
            known.session = session
        if batch.flags & FLAG_LATE:
            if batch.kind != KIND_STAGED:
                holes.fill(known.holes, first, last, batch.prev)
            known.late_position = batch.end_position - 1
        elif last > known.high:  # else a snapshot knew it already
            first = max(first, known.high + 1)
            if (
                first != known.high + 1
                or session != known.wrote
                or at != known.wrote_at
                or generation != known.wrote_in
            ):
                self._opened(known, first, batch.prev, _Writer(session, at, generation))
            if batch.kind == KIND_STAGED:
                self._staged(known, first, last, own=at in (0, self.origins.instance))
            known.high, known.high_position = last, batch.end_position - 1

    def _staged(self, known: PublisherState, first: int, last: int, *, own: bool) -> None:
        """These sequences are in the log and no messages. own: all that was acknowledged of them
        was, here; what another instance staged is issued, and its publisher sends it again."""
        self._give_up(known, holes.skip(known.holes, first, last, 0 if own else last))

    def _opened(self, known: PublisherState, first: int, prev: int, by: _Writer) -> None:
        new = by != (known.wrote, known.wrote_at, known.wrote_in)
        known.wrote, known.wrote_at, known.wrote_in = by
        hole = holes.opened(known.high, first, prev, new_session=new)
        if hole is None:
            return
        known.holes.append(hole)
        self._give_up(known, holes.give_up(known.holes))

    def _give_up(self, known: PublisherState, given_up: holes.Holes) -> None:
        for gone in given_up:
            known.given_up = max(known.given_up, gone.last)
            self.forgotten += gone.issued > 0

    def fold_name(self, publisher: int, name: str, principal: str) -> None:
        """Learns from a publisher record of the log."""
        known = self._publishers.setdefault(publisher, PublisherState(publisher, name, principal))
        self._names[known.principal] -= known.named
        known.name, known.principal, known.named = name, principal, False
        self.named_in_log(known)

    def named_in_log(self, known: PublisherState) -> None:
        """Its publisher record is in the log."""
        self._names[known.principal] += not known.named
        known.named = True

    def names_of(self, principal: str) -> int:
        """How many names a principal has in the log; those without a principal do not count."""
        return self._names[principal] if principal else 0

    def fold_row(self, row: PublisherRow) -> None:
        """Learns from a state snapshot: it replaces the publisher's state, as of its place."""
        before = self._publishers.get(row.id)
        if before is not None:
            self._names[before.principal] -= before.named
        self._names[row.principal] += bool(row.name)
        newest = row.newest if row.newest <= SESSION_MAX else row.session
        self._publishers[row.id] = PublisherState(
            row.id, row.name, row.principal, row.high, row.high_position, row.high, row.session,
            newest, row.wrote, row.wrote_at, row.wrote_in, bool(row.name), row.late_position,
            row.given_up, list(row.holes),
        )  # fmt: skip

    def meet(self, publisher: int) -> PublisherState:
        """The publisher with this id; one that is nameless as yet if it is new."""
        known = self._publishers.get(publisher)
        if known is None:
            known = self._publishers[publisher] = PublisherState(publisher, "")
        return known

    def ids(self) -> list[int]:
        """Publishers that have something in the log: those a snapshot tells of."""
        return [known.id for known in self._publishers.values() if known.high]

    def rows(self, ids: Iterable[int]) -> Iterable[PublisherRow]:
        """Their rows as of now."""
        for publisher in ids:
            known = self._publishers[publisher]
            yield PublisherRow(
                known.id, known.name, known.principal, known.high, known.high_position,
                known.session, known.newest, known.wrote, known.wrote_at, known.late_position,
                known.given_up, known.holes, known.wrote_in,
            )  # fmt: skip

    # -- sessions -----------------------------------------------------------------------------

    def open(self, name: str, principal: str, wall_ns: int) -> PublisherState:
        """Opens a session of `name`; without a principal the name keeps its owner.

        Raises: ClientError publisher_collision if another name has the same publisher id,
        not_entitled if the name belongs to another principal.
        """
        known = self._find(name, principal)
        if known is None:
            raise collision(name)
        if principal and known.principal not in ("", principal):
            raise ClientError("not_entitled", f"the name {name!r} belongs to somebody else")
        known.session = known.newest = max(known.newest + 1, wall_ns)
        if principal and not known.principal and known.named:
            self._names[principal] += 1
        known.principal = principal or known.principal
        return known

    def resume(self, name: str, principal: str, session: int) -> bool:
        """Takes over a session that ingest held open while the journal was down.

        Returns: False when it has ended: the log knows a newer session.
        """
        known = self._find(name, principal)
        if known is None or session < known.session:
            return False
        known.session = session
        known.newest = max(known.newest, session)
        return True

    def close(self, name: str, session: int) -> None:
        """Forgets a session; a name that never published leaves no trace."""
        known = self._publishers.get(publisher_id(name))
        if known is None or known.session != session:
            return
        known.closed = session
        if known.high == 0:
            self._names[known.principal] -= known.named
            del self._publishers[known.id]

    def check_name(self, publisher: int, name: str, principal: str) -> None:
        """Whether a peer may bring this name. Without a principal it keeps the owner it has here.

        Raises: ClientError publisher_collision, principal_differs.
        """
        known = self._publishers.get(publisher)
        if publisher != publisher_id(name) or (known is not None and known.name not in ("", name)):
            raise collision(name)
        if known is not None and principal and known.principal not in ("", principal):
            reason = (
                f"the name {name!r} belongs to {known.principal!r} here, to {principal!r} at the "
                "peer; give it one owner in both access files"
            )
            raise ClientError("principal_differs", reason)

    def adopt(self, publisher: int, name: str, principal: str) -> PublisherState:
        """The publisher of a name that a peer may bring, which is not in the log yet."""
        known = self.meet(publisher)
        known.name, known.principal = name, known.principal or principal
        return known

    def _find(self, name: str, principal: str) -> PublisherState | None:
        wanted = publisher_id(name)
        known = self._publishers.setdefault(wanted, PublisherState(wanted, name, principal))
        if known.name == "":  # folded from batches whose publisher record is gone
            known.name = name
        return known if known.name == name else None

    # -- judging ------------------------------------------------------------------------------

    def judge(self, entry: Entry) -> Verdict:
        """What becomes of a batch. Changes nothing."""
        known = self._publishers.get(entry.publisher)
        if known is None or entry.session != known.session:
            return refusal("session_ended", "a newer session of this publisher is open")
        last = entry.seq + entry.count - 1
        if last > U63_MAX or (entry.prev is not None and entry.prev >= entry.seq):
            return refusal("bad_field", "key `prev` must be below `seq`, both below 2**63")
        if entry.stage:
            return self._judge_staged(known, entry)
        if known.holes and entry.seq <= known.holes[-1].last:
            runs = holes.missing(known.holes, known.high, entry.seq, last)
            if runs and runs[0][0] <= known.high:
                return Verdict("accept", runs=tuple(runs))
        if last <= known.high:
            return _duplicate(known, entry)
        if entry.prev is not None and entry.prev > known.high and not entry.hole:
            return _gap(known, entry)
        return Verdict("accept", skip=max(0, known.high - entry.seq + 1))

    def _judge_staged(self, known: PublisherState, entry: Entry) -> Verdict:
        """A part is compared with its own stage alone."""
        first, last = entry.seq, entry.seq + entry.count - 1
        stage = known.principal, entry.stage
        if self.stages.has_ended(*stage, self._is_open):
            reason = f"the stage under {entry.stage!r} was committed or aborted"
            return refusal("stage_ended", reason)
        if entry.prev is not None and entry.prev > known.high and not entry.hole:
            return _gap(known, entry)
        lacks = self.stages.lacks(*stage, known.id, first, last)
        if lacks is None:  # nothing that is not above all others came to such a stage
            lacks = holes.missing([], known.high, first, last)
        if not lacks:
            return _duplicate(known, entry)
        begin, end = lacks[0]
        if len(lacks) == 1 and end == last and begin > known.high:
            return Verdict("accept", skip=begin - first)
        return Verdict("accept", runs=tuple(_split(lacks, known.high)))

    def _is_open(self, publisher: int, session: int) -> bool:
        known = self._publishers.get(publisher)
        return known is not None and known.session == session != known.closed

    def runs(self, publisher: int, first: int, last: int) -> tuple[list[Run], list[Run], list[Run]]:
        """The runs of [first, last] that are missing here, those that are held, and those of which
        that is not known, since holes around them were given up.
        """
        known = self._publishers.get(publisher)
        if known is None or first > known.high:
            return [(first, last)], [], []
        missing = holes.missing(known.holes, known.high, first, last)
        held, end = holes.held(missing, first, last), known.given_up
        doubtful = [(a, min(b, end)) for a, b in held if a <= end]
        return missing, [(max(a, end + 1), b) for a, b in held if b > end], doubtful

    def accepted(self, entry: Entry, last_position: int, generation: int) -> None:
        """Records that what the log lacked above its highest is in it up to `last_position`, in
        this generation of its instance."""
        known = self._publishers[entry.publisher]
        first, at = entry.seq, self.origins.instance
        if (
            first > known.high + 1
            or entry.session != known.wrote
            or at != known.wrote_at
            or generation != known.wrote_in
        ):
            begin = max(first, known.high + 1)
            by = _Writer(entry.session, at, generation)
            self._opened(known, begin, prev_of(entry, known), by)
        if entry.stage:
            self._staged(known, max(first, known.high + 1), first + entry.count - 1, own=True)
        known.high = first + entry.count - 1
        known.high_position = last_position
        known.remember(Recent(first, entry.count, entry.crc, last_position))

    def durable(self, publisher: int, sequence: int) -> None:
        """Everything of this publisher up to `sequence` survives a power loss."""
        known = self._publishers.get(publisher)
        if known is not None and sequence > known.acked:
            known.acked = sequence

    def check(self) -> None:
        """Asserts what is always true."""
        for known in self._publishers.values():
            assert known.acked <= known.high, known
            assert known.session <= known.newest, known
            holes.check(known.holes, known.high)
        for principal, count in self._names.items():
            named = [p for p in self._publishers.values() if p.named and p.principal == principal]
            assert not principal or len(named) == count, principal


def collision(name: str) -> ClientError:
    """The refusal of a name whose publisher id is another name's."""
    reason = f"the name {name!r} has the publisher id of another name"
    return ClientError("publisher_collision", reason)


def _gap(known: PublisherState, entry: Entry) -> Verdict:
    reason = f"sequence {entry.prev} is missing before {entry.seq}; the log ends at {known.high}"
    return refusal("sequence_gap", reason)


def _split(runs: list[Run], high: int) -> list[Run]:
    """The same runs, none of them below and above the highest sequence."""
    parts = [[(a, min(b, high)), (max(a, high + 1), b)] for a, b in runs]
    return [run for both in parts for run in both if run[0] <= run[1]]


def prev_of(entry: Entry, known: PublisherState) -> int:
    """`prev` as it goes to disk: the highest sequence here, or the one it is known to follow."""
    if entry.hole and entry.prev is not None and entry.prev > known.high:
        return entry.prev
    return known.high


def _duplicate(known: PublisherState, entry: Entry) -> Verdict:
    """A duplicate inherits its original's position: it is acknowledged when the original may be."""
    for recent in known.recent or ():
        if recent.first == entry.seq and recent.messages == entry.count:
            conflict = recent.crc != entry.crc
            return Verdict("duplicate", position=recent.last_position, conflict=conflict)
    return Verdict("duplicate", position=known.last_position)
