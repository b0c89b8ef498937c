"""One bookmark to the position of its message, or the proof that the log does not hold it.

What was wanted stands in the block of the log to which the index leads, or nowhere. A miss is
proved by the batch behind it, which the index knows, too: its `prev` is below the wanted sequence.
Where something arrived late, or the index lacks entries, the log is read on instead.

    found                   the log holds it
    bookmark_expired        it is older than the oldest message kept
    bookmark_pending        above what this log holds of that publisher, or in a hole of which it is
                            known that something is missing
    bookmark_not_found      it was never in this log
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zbroker.bookmarks.index import Hint
from zbroker.errors import ClientError
from zbroker.ids import Bookmark
from zbroker.journal.effects import Where
from zbroker.journal.lookup import Lookup
from zbroker.journal.sessions import PublisherState
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, Batch


def find(look: Lookup, wanted: Bookmark, now: Where) -> int:
    """The position of this message, at least `now.floor` - 1: what follows is here then.

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
    last = min(now.persisted, known.last_position + 1)  # nothing of it stands behind that
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

    removed: it may have stood below the floor; not so once the log proves that it stood above it,
    or never anywhere.
    """

    def __init__(self, wanted: Bookmark, known: PublisherState, now: Where) -> None:
        self.wanted = wanted
        self.known = known
        self.now = now
        self.removed = now.floor > 1

    def through(self, batches: Iterable[Batch]) -> int | None:
        """Its position; None if these batches do not tell. Raises: ClientError."""
        publisher, sequence = self.wanted
        for batch in batches:
            if batch.publisher != publisher or batch.kind != KIND_PUBLISH:
                continue
            if batch.sequence <= sequence < batch.sequence + batch.taken:
                position = batch.position + sequence - batch.sequence
                if position < self.now.floor - 1:
                    raise self.miss(expired=True)  # its file is not gone yet
                return position
            if batch.flags & FLAG_LATE or batch.position < self.known.late_position:
                continue
            if batch.sequence > sequence:
                raise self.miss(expired=self.removed and batch.prev >= sequence)
            self.removed = self.removed and batch.position < self.now.floor
        return None

    def miss(self, *, expired: bool) -> ClientError:
        """The answer to what is not in the log."""
        if expired:
            reason = f"the oldest position kept is {self.now.floor}"
            return ClientError("bookmark_expired", reason)
        return _unknown(self.wanted)


def _prove_missing(look: Lookup, hint: Hint | None, search: _Search) -> None:
    """Raises: ClientError if one look at what stands behind the wanted message settles it.

    Nothing before it has an entry: what the index leads to first then shows by its `prev` whether
    there was something, which must have been removed.
    """
    now, known, sequence = search.now, search.known, search.wanted.sequence
    late = known.late_position >= (hint.position if hint is not None else now.floor)
    if not late:  # else what was late may stand behind anything, and `prev` proves nothing
        later = _behind(look, hint, search)
        batch = next(look.batches(later, now), None) if later is not None else None
        if batch is not None and not _follows(batch, search.wanted):
            return  # an entry that says something else than the log
        if batch is not None and batch.prev < sequence:
            raise search.miss(expired=False)
    if hint is None and now.floor > 1 and look.whole(now):
        raise search.miss(expired=True)


def _follows(batch: Batch, wanted: Bookmark) -> bool:
    mine = batch.publisher == wanted.publisher and batch.kind == KIND_PUBLISH
    return mine and batch.sequence > wanted.sequence


def _behind(look: Lookup, hint: Hint | None, search: _Search) -> Hint | None:
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
