"""What readers and the admin ask of the journal besides its log: holders, leases, removal.

    Remove --> floor raised, announced --> readers say they are beyond it --> note.oldest, durable
           --> files unlinked, oldest first --> index forgets

A crash at each step:

    floor raised        nothing changed on the disk: the next start serves it all again; who was
                        told bookmark_expired meanwhile may ask again; the removal is asked for anew
    note, first slot    the slots say the old or the new `oldest`; with the new one the next start
                        unlinks what stands below, and every reader was beyond it
    note, both slots    the same for sure: only now the first file goes, so no start ever misses a
                        segment of which the note does not say that it was removed
    unlinking           what is left stands below `oldest` and is unlinked by the next start; in a
                        power cut any of the removals may be undone
    index               entries that point at no file are found out when they are used, and
                        forgotten at the next removal

The floor is announced before it is durable, not behind: a durable one makes readers step over files
that somebody still reads. So a cursor below a raised floor is served to its end, and Holders shows
the segments that wait for it as `removing`. Only the room "admin" is listened to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, get_args

from zbroker.config import reader_rooms
from zbroker.errors import ClientError, StorageError, ZBrokerError
from zbroker.journal.core import Send
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.index_rebuild import Reindexing
from zbroker.journal.retention import Floor, Kept, Limits, Plan
from zbroker.journal.segment_removal import remove_through, retire
from zbroker.journal.stages import Key
from zbroker.journal.startup import Opened
from zbroker.limits import HOLDINGS_MAX
from zbroker.log import records
from zbroker.log.format import KIND_ABORT
from zbroker.log.places import SegmentPlaces
from zbroker.server.process import Process
from zbroker.wire import internal as m

ADMIN: Final = "admin"
RETRY_MS: Final = 10_000  # after files that could not be unlinked
Ask = m.Holds | m.Lease | m.AskHolders | m.Remove | m.Retire | m.Reindex
ASKS: Final = get_args(Ask)


class Requests:
    """Answers through `emit`; one helper thread unlinks. `due`: it is time for a `step`."""

    def __init__(
        self,
        process: Process,
        opened: Opened,
        emit: Callable[[Send], None],
        janitor: Helpers,
        reindexing: Reindexing,
    ) -> None:
        self._process = process
        self._reindexing = reindexing
        self._opened = opened
        self._core = opened.core
        self._emit = emit
        self._janitor = janitor
        self._places = SegmentPlaces(opened.disk, opened.archive)  # for the helper thread alone
        self._log = process.log
        self._unlinking = False
        self._retry_ms = 0
        self.due = False
        self.floor = Floor(opened.core.floor, reader_rooms(process.config))
        if opened.leftovers:
            self._unlink(opened.writer.oldest - 1)

    # -- messages -----------------------------------------------------------------------------

    def hello(self, room: str) -> None:
        """A room begins anew."""
        self.floor.hello(room)

    def handle(self, rid: bytes, ask: Ask) -> None:
        """Takes what this journal was asked by who may ask it."""
        if ask.incarnation != self._core.settings.incarnation:
            return
        room = self._core.room_of(rid)
        if isinstance(ask, m.Holds):
            if room in self.floor.readers:
                self.floor.heard(room, ask)
                self.due = True
            return
        if room != ADMIN:
            return
        if isinstance(ask, m.Lease):
            self._lease(rid, ask)
        elif isinstance(ask, m.AskHolders):
            self._emit(Send(rid, self._holders(ask)))
        elif isinstance(ask, m.Remove):
            self._emit(Send(rid, self._remove(ask)))
        elif isinstance(ask, m.Retire):
            self._retire(rid, ask)
        else:
            self._reindex(rid, ask)

    def _done(self, rid: bytes, cid: int, error: Exception | None = None) -> None:
        if isinstance(error, ZBrokerError):
            self._emit(Send(rid, m.Done(cid, error.code, error.reason)))
        elif error is not None:
            raise error
        else:
            self._emit(Send(rid, m.Done(cid)))

    def _lease(self, rid: bytes, ask: m.Lease) -> None:
        try:
            self.floor.lease(ask.holding, ask.ttl_ms, self._process.clock.mono_ms())
        except ClientError as error:
            self._done(rid, ask.cid, error)
        else:
            self._done(rid, ask.cid)

    def _holders(self, ask: m.AskHolders) -> m.Holders:
        core, floor = self._core, self.floor
        return m.Holders(
            ask.cid, floor.position, core.persisted, core.log_time, floor.holdings, floor.silent,
            floor.going, core.state_serial,
        )  # fmt: skip

    # -- removal ------------------------------------------------------------------------------

    def _remove(self, ask: m.Remove) -> m.Removal:
        writer = self._opened.writer
        stages = self._core.sessions.stages
        kept = self._kept()
        through = stages.removable(ask.through)
        if through < ask.through and not ask.dry_run:
            self._end_stages(stages.held_before(self._held_from(kept)))
        without = ask.without if ask.dry_run else ""
        limits = Limits(through, self._core.state_serial, writer.serial, ask.share_max, without)
        plan = self.floor.plan(kept, limits)
        if through < ask.through and not plan.blocked:
            text = f"segment {through + 1} has staged messages that a commit shows, or that wait"
            plan = plan._replace(blocked=text)
        if plan.segments and not ask.dry_run:
            self._raise(plan)
        serials = [one.serial for one in plan.segments]
        held_by = list(plan.held_by[:HOLDINGS_MAX])
        return m.Removal(ask.cid, serials, plan.floor, plan.blocked, held_by)

    def _held_from(self, kept: list[Kept]) -> int:
        """Before this segment stands more of the log than what waits for a commit may hold back."""
        size, most = 0, self._process.config.limits.staged_per_principal
        for one in reversed(kept):
            size += one.bytes
            if size > most:
                return one.serial + 1
        return 0

    def _end_stages(self, keys: list[Key]) -> None:
        """By a record of the next group: what they hold back goes with the next removal."""
        core = self._core
        if not keys or core.fenced:
            return
        core.append_control(KIND_ABORT, records.encode(records.AbortRecord(keys)))
        self._log.warning(
            "journal.stages_ended: %(stages)d stages that nobody committed were ended, since they "
            "were old or held back too much of the log; they were shown to nobody, and a commit of "
            "them is refused: stage them again",
            {"stages": len(keys)},
        )

    def _kept(self) -> list[Kept]:
        """The segments above the floor, as many as can be read; sizes of all copies together."""
        log = self._opened.log
        log.refresh()
        sizes = {
            serial: sum(place.file_bytes for place in copies)
            for serial, copies in log.places.by_serial().items()
        }
        starts = [start for start in log.starts if start.position >= self.floor.position]
        ends = [start.position for start in starts[1:]] + [self._core.written]
        return [
            Kept(start.serial, start.position, end, sizes.get(start.serial, 0))
            for start, end in zip(starts, ends, strict=True)
        ]

    def _raise(self, plan: Plan) -> None:
        self.floor.raise_to(plan)
        self._core.floor = self.floor.position
        self._emit(self._core.marks())
        self._log.info(
            "journal.floor_raised: positions below %(position)d are not served any more; the files "
            "of segments %(segments)s go when no reader needs them",
            {
                "position": self.floor.position,
                "segments": ", ".join(str(one.serial) for one in plan.segments),
            },
        )

    def step(self, now_ms: int) -> None:
        """Ends leases, and unlinks what nobody needs any more. Call it between syncs only."""
        self.due = False
        self.floor.tick(now_ms)
        self._end_stages(self._core.sessions.stages.overdue(now_ms))
        due = self.floor.due()
        if not due or self._unlinking or now_ms < self._retry_ms:
            return
        self._opened.writer.keep_from(due[-1] + 1)
        self._unlink(due[-1])

    def _unlink(self, through: int) -> None:
        self._unlinking = True
        work = partial(remove_through, self._places, through)
        self._janitor.submit(work, partial(self._unlinked, through), self._not_unlinked)

    def _unlinked(self, through: int, freed_bytes: int) -> None:
        self._unlinking = False
        self.floor.gone(through)
        self._core.sessions.stages.removed(through)
        self._opened.log.refresh()
        self._opened.forget_removed()
        self._log.info(
            "journal.removed: segments up to %(through)d are gone, %(bytes)d bytes",
            {"through": through, "bytes": freed_bytes},
        )

    def _not_unlinked(self, error: Exception) -> None:
        if not isinstance(error, StorageError):
            raise error
        self._unlinking = False
        self._retry_ms = self._process.clock.mono_ms() + RETRY_MS
        self._log.warning(
            "journal.not_removed: %s; they are not served any more and still take space; it is "
            "tried again",
            error,
        )

    # -- copies and index ---------------------------------------------------------------------

    def _retire(self, rid: bytes, ask: m.Retire) -> None:
        work = partial(retire, self._places, ask, self._opened.writer.serial)
        self._janitor.submit(
            work, lambda _: self._done(rid, ask.cid), partial(self._done, rid, ask.cid)
        )

    def _reindex(self, rid: bytes, ask: m.Reindex) -> None:
        try:
            self._reindexing.begin(partial(self._done, rid, ask.cid))
        except ClientError as error:
            self._done(rid, ask.cid, error)
