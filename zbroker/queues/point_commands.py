"""Questions and changes of operators about points. Pure.

Each change is a record in the log; it is answered once it is durable, where synchronous
destinations have to have it, too, once these do.

    instance with links   a point is a vector, the same on every instance: a shared point
    other instance, --at  a place in this log: a local point

Source: interface.md, `zbroker-admin point`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from zbroker.clock import is_time
from zbroker.errors import ClientError
from zbroker.ids import NOW, Origin, format_vector, is_point_name, is_vector
from zbroker.limits import MIB
from zbroker.log import records
from zbroker.log.format import KIND_POINT, KIND_SHARED_POINT
from zbroker.log.point_records import PointId, SharedPointRecord, wrong_point
from zbroker.queues.admin_answers import OperatorAnswers
from zbroker.queues.commits import Done
from zbroker.queues.context import QueuesContext
from zbroker.queues.known_points import KnownPoints
from zbroker.queues.purges import Purges
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import Located

POINTS_MAX: Final = 10_000
COVERS_MAX_BYTES: Final = 16 * MIB  # of all shared points; half of what a journal keeps


class PointCommands:
    """`handlers`: by type of question."""

    def __init__(
        self, shared: QueuesContext, answers: OperatorAnswers, purges: Purges, *, on: bool
    ) -> None:
        """on: there are links."""
        self._shared, self._answers, self._purges, self._on = shared, answers, purges, on
        self.handlers: dict[type, Callable[[bytes, Any], s.QueuesAnswer | None]] = {
            s.SetPoint: self._set,
            s.RemovePoint: self._remove,
            s.AskPoints: self._survey,
        }

    @property
    def _points(self) -> KnownPoints:
        return self._shared.manager.points

    def _survey(self, rid: bytes, ask: s.AskPoints) -> s.Points | None:
        if not ask.name:
            return s.Points(ask.cid, sorted(self._points.values(), key=lambda row: row.set_at))
        row = self._points.named(ask.name)
        if not row.shared:
            return s.Points(ask.cid, [row])
        self._answers.reply_at(
            rid, ask, (row.covers, ""),
            lambda found: s.Points(ask.cid, [replace(row, position=found.position)]),
        )  # fmt: skip
        return None

    # -- setting ------------------------------------------------------------------------------

    def _set(self, rid: bytes, ask: s.SetPoint) -> None:
        points = self._points
        if not is_point_name(ask.name):
            raise ClientError("bad_field", "the name of a point is 1 to 255 printable bytes")
        if len(points) >= POINTS_MAX and ask.name not in points:
            raise ClientError("too_many", f"an instance knows at most {POINTS_MAX} points")
        if ask.covers:
            if ask.at:
                raise ClientError("bad_field", "key `at`, `covers`: one of them")
            self._set_covering(rid, ask, ask.covers)
        elif ask.at:
            self._set_at(rid, ask)
        else:  # the end of the log: where no queue runs, only the journal knows it
            self._answers.reply_at(rid, ask, (NOW, ""), lambda end: self._set_here(rid, ask, end))

    def _set_at(self, rid: bytes, ask: s.SetPoint) -> None:
        manager = self._shared.manager
        if self._points.is_shared(ask.name):
            text = f"key `at`: point {ask.name!r} is one of all instances, and a position is of one"
            raise ClientError("bad_field", text, "use another name, or remove the point before")
        persisted = manager.following.persisted
        if not manager.log_start <= ask.at <= persisted:
            text = (
                f"position {ask.at} is not in the log: it holds {manager.log_start} to {persisted}"
            )
            raise ClientError("bad_field", f"key `at`: {text}")
        self._add_local(rid, ask, ask.at)

    def _set_here(self, rid: bytes, ask: s.SetPoint, end: Located) -> None:
        """The end of the log, which may have messages of other instances."""
        here = self._shared.manager.here
        covers = {Origin(*origin): at for *origin, at in end.at_end}
        alone = here is None or all(origin.instance == here.instance for origin in covers)
        if here is None or (alone and not self._is_shared(ask.name)):
            self._add_local(rid, ask, end.position)
            return
        covers[here] = end.position - 1
        # the journal knows older generations, which the vector need not name, and queues have to
        self._look_up(rid, ask, format_vector(covers), end.position)

    def _set_covering(self, rid: bytes, ask: s.SetPoint, covers: str) -> None:
        """Its vector is given."""
        if not is_vector(covers) or is_time(covers):
            raise ClientError(
                "bad_field", f"key `covers`: {covers[:64]!r} does not have the form of a vector"
            )
        self._look_up(rid, ask, covers)

    def _look_up(self, rid: bytes, ask: s.SetPoint, covers: str, position: int = 0) -> None:
        """position: of the point here; 0: where the vector leads."""
        self._answers.reply_at(
            rid, ask, (covers, ""),
            lambda found: self._add(
                rid, ask, position or found.position, _covered(found) or covers
            ),
            closed=True,
        )  # fmt: skip

    def _is_shared(self, name: str) -> bool:
        return self._on or self._points.is_shared(name)

    def _add(self, rid: bytes, ask: s.SetPoint, position: int, covers: str) -> None:
        if self._is_shared(ask.name):
            self._add_shared(rid, ask, position, covers)
        else:
            self._add_local(rid, ask, position, covers)

    def _add_local(self, rid: bytes, ask: s.SetPoint, position: int, covers: str = "") -> None:
        record = records.PointRecord(ask.name, self._purges.vector(position), covers=covers)
        answer = s.Changed(ask.cid, 0, position, covers or record.vector)
        done = self._answers.tell_when_durable(
            rid, answer, lambda set_at: self._points.set_local(record, set_at)
        )
        self._shared.manager.commits.add_record(KIND_POINT, record, done)

    def _add_shared(self, rid: bytes, ask: s.SetPoint, position: int, covers: str) -> None:
        points = self._points
        number = points.next_number(ask.name, self._shared.now.wall_ns)
        record = SharedPointRecord(ask.name, number, covers, points.set_by(ask.name))
        if wrong := wrong_point(record):
            raise ClientError("too_large", wrong)
        if points.covers_bytes + len(covers) > COVERS_MAX_BYTES:
            reason = f"the vectors of all points have at most {COVERS_MAX_BYTES} bytes"
            raise ClientError("too_many", reason, "remove points that are needed no more")
        self._commit(rid, record, s.Changed(ask.cid, 0, position, covers))

    # -- removing -----------------------------------------------------------------------------

    def _remove(self, rid: bytes, ask: s.RemovePoint) -> s.Changed | None:
        points, row = self._points, self._points.named(ask.name)
        answer = s.Changed(ask.cid, 0, row.position, row.covers or row.vector)
        if ask.dry_run:
            return answer
        if row.shared:
            self._commit(rid, SharedPointRecord(ask.name, ends=points.set_by(ask.name)), answer)
            return None
        record = records.PointRecord(ask.name, row.vector, removed=True)
        done = self._answers.tell_when_durable(
            rid, answer, lambda _position: points.remove_local(ask.name)
        )
        self._shared.manager.commits.add_record(KIND_POINT, record, done)
        return None

    def _commit(self, rid: bytes, record: SharedPointRecord, answer: s.Changed) -> None:
        self._shared.manager.commits.add_record(
            KIND_SHARED_POINT, record, self._landing(rid, record, answer)
        )

    def _landing(self, rid: bytes, record: SharedPointRecord, answer: s.Changed) -> Done:
        manager = self._shared.manager

        def landed(code: str, reason: str, position: int) -> None:
            if code:
                answer.code, answer.reason = code, reason
                self._answers.tell(rid, answer)
                return
            generation = manager.history.of(position)
            made = PointId(manager.origin.instance, generation, position)
            self._points.shared_landed(record, made, position)
            self._shared.promises.at(position, lambda: self._answers.tell(rid, answer))

        return landed


def _covered(found: Located) -> str:
    """The vector that was looked up, with all generations."""
    return format_vector({Origin(*origin): at for *origin, at in found.passed})
