"""Finds the position of a point in the log: by the index first, then by the log itself.

The index gives a batch at or before the wanted one; the log decides. The number of looks grows with
the logarithm of the log, for vectors (locate_vector.py) too. Log times never go back, so where the
index knows too few of them, the place is found by halves. A point is a cut between two messages.

A bookmark is in the block of the log to which the index leads, or not in the log. The batch after
it proves a miss: its `prev` is below the wanted sequence. Where something arrived late, or the
index lacks entries, the log is read on instead.

    found                   the log holds it
    bookmark_expired        it is older than the oldest message kept
    bookmark_pending        above the publisher's highest sequence here, or in a hole in which
                            something is known to be missing
    bookmark_not_found      it was never in this log
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from zbroker.bookmarks.index import Hint, Index
from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.ids import (
    EPOCH,
    NOW,
    Bookmark,
    Cut,
    Vector,
    is_vector,
    parse_bookmark,
    parse_vector,
    point_name,
)
from zbroker.journal.effects import Where
from zbroker.journal.locate_vector import PlaceVector, Vectors
from zbroker.journal.lookup import Lookup
from zbroker.journal.sessions import PublisherState, Sessions
from zbroker.limits import U63_MAX
from zbroker.log.batch_index import position_since
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, Batch
from zbroker.log.reader import Log
from zbroker.wire.internal import Located

_NOWHERE: Final = PlaceVector(0, {})


class _Found(NamedTuple):
    """As in Located."""

    position: int
    time_ns: int | None
    passed: PlaceVector


def _rows(vector: Vector) -> list[tuple[int, int, int]]:
    return [(origin.instance, origin.generation, at) for origin, at in vector.items()]


class Locator:
    """Answers Locate for one journal."""

    def __init__(self, log: Log, index: Index, sessions: Sessions) -> None:
        self._look = Lookup(log, index, sessions)
        self._vectors = Vectors(self._look)

    def locate(
        self, cid: int, value: str, now: Where, *, cut: Cut = "", end: bool = False,
        closed: bool = False,
    ) -> Located:  # fmt: skip
        """The position of the cut, a hint for readers, and what is before it; `cut`, `end` and
        `closed` as in Locate. A point of all instances is the vector that it covers, without sides.
        """
        named = self._look.sessions.named.vector_named(value)
        value, cut = named, "" if named != value else cut
        try:
            found = self._found(value, now, cut, end=end, closed=closed)
        except ClientError as error:
            looked = error.code == "bookmark_expired" and is_vector(value)  # it was needed
            passed = self._vectors.passed_before_log(now) if looked else _NOWHERE
            return Located(
                cid, log_start=now.log_start, persisted=now.persisted, code=error.code,
                reason=error.reason, passed=_rows(passed.vector), passed_at=passed.at,
                at_end=_rows(self._vectors.messages(now)),
            )  # fmt: skip
        position, time_ns, passed = found
        hint = self._look.index.at_or_before(position)
        serial, offset = (hint.serial, hint.offset) if hint is not None else (0, 0)
        return Located(
            cid, position, serial, offset, now.log_start, now.persisted, time_ns,
            _rows(passed.vector), passed.at, passed.mixed, list(passed.tied),
            _rows(self._vectors.messages(now)), passed.forked,
        )  # fmt: skip

    def _found(
        self, value: str, now: Where, cut: Cut, *, end: bool, closed: bool = False
    ) -> _Found:
        time_ns: int | None = None
        if value == EPOCH:
            return _Found(now.log_start, None, self._vectors.passed_before_log(now))
        vector = self._vector(value, cut)
        if vector is not None and point_name(value) is not None:
            position = self._vectors.own_place(vector, now)
            if position is not None:
                passed = _NOWHERE if end else self._vectors.passed_before(position, now)
                return _Found(position, None, passed)
        if vector is not None:
            position = self._vectors.find(vector, now, end=end)
            if end:
                return _Found(position, None, _NOWHERE)
            passed = self._vectors.passed_by(vector, position, now, closed=closed)
            return _Found(position, None, passed)
        if value in (NOW, "now"):
            position = now.persisted
        elif is_time(value):
            wanted_ns = parse_time(value) + (cut == "behind")
            position, time_ns = self._of_time(min(max(wanted_ns, -U63_MAX), U63_MAX), now)
        else:
            position = self._of_bookmark(parse_bookmark(value), now, cut)
        passed = _NOWHERE if end else self._vectors.passed_before(position, now)
        return _Found(position, time_ns, passed)

    def _vector(self, value: str, cut: Cut) -> Vector | None:
        """The vector that is asked for, if that is what it is."""
        if (name := point_name(value)) is not None:
            return self._look.point(name)
        if is_time(value) or not is_vector(value):
            return None
        vector = parse_vector(value)
        if cut == "at":  # its newest messages are after it
            vector = {origin: max(0, at - 1) for origin, at in vector.items()}
        return vector

    def _of_bookmark(self, wanted: Bookmark, now: Where, cut: Cut) -> int:
        position = find(self._look, wanted, now) + (cut != "at")
        if position < now.log_start:
            raise ClientError("bookmark_expired", f"the oldest position kept is {now.log_start}")
        return position

    def _of_time(self, wanted_ns: int, now: Where) -> tuple[int, int | None]:
        """The first message at or after this time; the end of the log if it is still to come."""
        hint = self._look.index.before_time(wanted_ns)
        found = _first_at(self._look.near(hint, now), wanted_ns) if hint is not None else None
        if found is None:
            found = _first_at(self._look.batches(self._earlier(wanted_ns, now), now), wanted_ns)
        if found is None:
            return now.persisted, wanted_ns
        return max(found, now.log_start), None

    def _earlier(self, wanted_ns: int, now: Where) -> Hint | None:
        """The newest batch that has an entry by position and is earlier than this time."""
        found, low, high = None, now.log_start, now.persisted
        while low < high:
            middle = (low + high) // 2
            hint = self._look.place(middle)
            if hint is None or (found is not None and hint.position <= found.position):
                low = middle + 1
                continue
            batch = next(self._look.batches(hint, now), None)
            if batch is not None and batch.log_time < wanted_ns:
                found, low = hint, middle + 1
            else:
                high = middle
        return found


def _first_at(batches: Iterable[Batch], wanted_ns: int) -> int | None:
    """The position of the first message at or after this time; None if there is none."""
    for batch in batches:
        if batch.log_time >= wanted_ns:
            return position_since(batch, wanted_ns)
    return None


def find(look: Lookup, wanted: Bookmark, now: Where) -> int:
    """The position of this message, at least `now.log_start` - 1: what follows is here then.

    Raises: ClientError bookmark_expired, bookmark_pending or bookmark_not_found.
    """
    known = _known(look, wanted)
    hint = look.index.before_bookmark(*wanted)
    search = _Search(wanted, known, now)
    if hint is not None:
        position = search.through(look.near(hint, now))
        if position is not None:
            return position
    _prove_missing(look, hint, search)
    last = min(now.persisted, known.last_position + 1)  # nothing of it is after that
    position = search.through(look.batches(hint, replace(now, persisted=last)))
    if position is None:
        raise search.miss(expired=search.removed)
    return position


def _known(look: Lookup, wanted: Bookmark) -> PublisherState:
    """The publisher. Raises: ClientError for what its row says is not here."""
    known = look.sessions.get(wanted.publisher)
    if known is None or known.high == 0:
        raise ClientError(
            "bookmark_not_found", f"publisher {wanted.publisher} has nothing in this log"
        )
    if wanted.sequence > known.acked:
        raise ClientError(
            "bookmark_pending", f"the log holds publisher {wanted.publisher} up to {known.acked}"
        )
    for hole in known.holes:
        if hole.first <= wanted.sequence <= hole.issued:
            raise ClientError(
                "bookmark_pending",
                f"sequences {hole.first} to {hole.issued} of that publisher are missing here",
            )
        if hole.first <= wanted.sequence <= hole.last:
            raise _unknown(wanted)
    return known


def _unknown(wanted: Bookmark) -> ClientError:
    return ClientError(
        "bookmark_not_found", f"the log does not hold sequence {wanted.sequence} of that publisher"
    )


class _Search:
    """Looks for one message in batches in the order of the log.

    removed: it may have been below the log start; not so once the log proves that it was above it,
    or never anywhere.
    """

    def __init__(self, wanted: Bookmark, known: PublisherState, now: Where) -> None:
        self.wanted = wanted
        self.known = known
        self.now = now
        self.removed = now.log_start > 1

    def through(self, batches: Iterable[Batch]) -> int | None:
        """Its position; None if these batches do not tell. Raises: ClientError."""
        publisher, sequence = self.wanted
        for batch in batches:
            if batch.publisher != publisher or batch.kind != KIND_PUBLISH:
                continue
            if batch.sequence <= sequence < batch.sequence + batch.taken:
                position = batch.position + sequence - batch.sequence
                if position < self.now.log_start - 1:
                    raise self.miss(expired=True)  # its file is not gone yet
                return position
            if batch.flags & FLAG_LATE or batch.position < self.known.late_position:
                continue
            if batch.sequence > sequence:
                raise self.miss(expired=self.removed and batch.prev >= sequence)
            self.removed = self.removed and batch.position < self.now.log_start
        return None

    def miss(self, *, expired: bool) -> ClientError:
        """The answer to what is not in the log."""
        if expired:
            reason = f"the oldest position kept is {self.now.log_start}"
            return ClientError("bookmark_expired", reason)
        return _unknown(self.wanted)


def _prove_missing(look: Lookup, hint: Hint | None, search: _Search) -> None:
    """Raises: ClientError if one look at the batch after the wanted message settles it.

    Nothing before it has an entry: what the index leads to first then shows by its `prev` whether
    there was something, which must have been removed.
    """
    now, known, sequence = search.now, search.known, search.wanted.sequence
    late = known.late_position >= (hint.position if hint is not None else now.log_start)
    if not late:  # else a late one may be anywhere, and `prev` proves nothing
        later = _next_hint(look, hint, search)
        batch = next(look.batches(later, now), None) if later is not None else None
        if batch is not None and not _follows(batch, search.wanted):
            return  # an entry that says something else than the log
        if batch is not None and batch.prev < sequence:
            raise search.miss(expired=False)
    if hint is None and now.log_start > 1 and look.whole(now):
        raise search.miss(expired=True)


def _follows(batch: Batch, wanted: Bookmark) -> bool:
    mine = batch.publisher == wanted.publisher and batch.kind == KIND_PUBLISH
    return mine and batch.sequence > wanted.sequence


def _next_hint(look: Lookup, hint: Hint | None, search: _Search) -> Hint | None:
    """Where the index leads to for the lowest sequence for which it leads elsewhere than `hint`."""
    publisher, low = search.wanted
    high = search.known.high
    if look.index.before_bookmark(publisher, high) == hint:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if look.index.before_bookmark(publisher, middle) == hint:
            low = middle
        else:
            high = middle
    return look.index.before_bookmark(publisher, high)
