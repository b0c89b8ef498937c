"""Turns: a block that was read is sent, for one replay or for all members of a scan. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from zbroker.blocks.frame_builder import Block, item_end, item_first
from zbroker.blocks.read_request import Read
from zbroker.delivery.connections import Connections
from zbroker.delivery.contract import DeliveryStats, Effect
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.replay import Replay
from zbroker.delivery.scans import DENSE_ITEMS_MIN, ScanMatches, SharedScan, WaitingScans
from zbroker.delivery.subscription import SubscriptionState
from zbroker.engine.effects import Note, Send
from zbroker.errors import ClientError
from zbroker.filters.limits import STEP_BYTES_MAX
from zbroker.ids import format_vector
from zbroker.log.reader import Gap
from zbroker.wire import codec
from zbroker.wire import messages as m

REPORT_MS: Final = 1_000  # how often subscriptions get a resume point, if no other ack has one

#: Sends what a replay wants of a block, below a position.
_Sender = Callable[[Replay, Block, int], list[Effect]]


class ReadTurns:
    """Turns of replays and scans; each member is served as if the block had been read for it."""

    def __init__(
        self, cursors: Cursors, counts: DeliveryStats, progress: SubscriptionProgress
    ) -> None:
        self._cursors, self._counts, self._progress = cursors, counts, progress

    def turn(self, read: Read, block: Block, now_ns: int) -> list[Effect]:
        """Sends what was read. Without items its replay waits for the next watermarks."""
        replay, waiting = self._cursors.take(read)
        if isinstance(replay, SharedScan):
            return self._shared(replay, waiting, block, partial(self._send, now_ns))
        effects = self._send(now_ns, replay, block, self._cursors.limit(replay))
        if not replay.running:
            return effects
        replay.dry = not block.items
        replay.dense = not replay.caught_up and len(block.items) >= DENSE_ITEMS_MIN
        effects += self._progress.look(replay)
        self._cursors.rest(replay)
        return effects

    def failed(self, read: Read, reason: str) -> list[Effect]:
        """The log could not be read for a replay: it ends, the others go on.

        The members of a scan try it each for itself, since each wants less of the log.
        """
        one, _ = self._cursors.take(read)
        if not isinstance(one, SharedScan):
            return self._fail(one, reason)
        for replay in list(one.members.values()):
            replay.dense = True
            self._leave(replay)
        return []

    def _fail(self, replay: Replay, reason: str) -> list[Effect]:
        error = ClientError("internal", f"position {replay.position} could not be read")
        note = f"{reason}; a subscription ended with an error"
        values = {"position": replay.position, "reason": reason}
        return self._progress.fail(replay, error, Note("delivery.read_failed", note, values=values))

    def _send(self, now_ns: int, replay: Replay, block: Block, limit: int) -> list[Effect]:
        """What a replay wants of a block, below `limit`; the end of one that cannot be served."""
        maker, written = self._cursors.maker, self._cursors.written
        assert maker is not None, "nothing is read before the journal was heard of"
        try:
            sent = replay.advance(block, limit, maker, now_ns, written=written)
        except ClientError as error:
            return self._fail(replay, str(error))
        effects: list[Effect] = []
        for one, part in sent:
            self._counts.messages_out += part.messages
            self._counts.bytes_out += len(part.body)
            one.trail.spent += part.size
            header = part.before + one.sid_packed + part.after
            effects.append(Send(one.names.rid, header, part.body))
        for one in dict.fromkeys(one for one, _ in sent):
            one.trail.mark(one.sent_messages, replay.position)
        return effects

    # -- scans --------------------------------------------------------------------------------

    def _shared(
        self, scan: SharedScan, waiting: WaitingScans, block: Block, send: _Sender
    ) -> list[Effect]:
        """All that members want of a block, as far as one turn goes."""
        found = scan.find(block, self._cursors.persisted)
        if not block.items or found.gap:
            return self._apart(scan, block, send)
        for replay in found.dense:
            replay.dense = True
            self._leave(replay)
        effects = self._serve(scan, block, found, send) + self._pass(scan, block, found.end)
        if scan.position < self._cursors.persisted:
            waiting.put_back(scan)
        elif scan.live:
            waiting.rest(scan)
        else:
            for replay in list(scan.members.values()):
                self._leave(replay)
        return effects

    def _apart(self, scan: SharedScan, block: Block, send: _Sender) -> list[Effect]:
        """Nothing is there yet, or something is missing: each of them sees that by itself."""
        effects: list[Effect] = []
        for replay in list(scan.members.values()):
            self._cursors.leave(replay)
            effects += send(replay, block, self._cursors.persisted)
            replay.dry = not block.items
            effects += self._look(replay)
        return effects

    def _serve(
        self, scan: SharedScan, block: Block, found: ScanMatches, send: _Sender
    ) -> list[Effect]:
        effects: list[Effect] = []
        work = STEP_BYTES_MAX  # of all filters in this turn
        for key, wanted in found.wanted.items():
            replay, stops = scan.members[key], work <= 0
            for first, end in _runs(block, wanted, replay.until):
                replay.step_to(block, first)  # it wants nothing before
                if stops:
                    break
                effects += send(replay, block, end)
                work -= STEP_BYTES_MAX - replay.work
                one = replay.members[0]
                stops = replay.position < end or one.credit <= 0 or one.left <= 0
                if stops or not replay.running:
                    break
            if replay.running and (stops or replay.position > found.end):
                effects += self._look(replay)
        return effects

    def _pass(self, scan: SharedScan, block: Block, end: int) -> list[Effect]:
        """Moves members over items before `end` that none of them wants."""
        effects: list[Effect] = []
        reached = scan.reached(end)
        for replay in reached:
            if replay.until < end:
                replay.step_to(block, replay.until)
                effects += self._look(replay)
        scan.move(block, end)
        for replay in reached:
            if replay.running:
                effects += self._look(replay)
        if end >= scan.goal:
            scan.forget_goals()
        return effects

    def _look(self, replay: Replay) -> list[Effect]:
        """It goes on by itself, if it does not end."""
        self._cursors.leave(replay)
        effects = self._progress.look(replay)
        self._cursors.rest(replay)
        return effects

    def _leave(self, replay: Replay) -> None:
        self._cursors.leave(replay)
        self._cursors.rest(replay)


def _runs(block: Block, wanted: list[int], until: int) -> list[tuple[int, int]]:
    """Stretches that hold these items. One, if they are every second item or more: the others are
    cheaper to step over than to jump over.
    """
    items = block.items
    runs = [(item_first(items[at]), item_end(items[at])) for at in wanted]
    runs = [run for run in runs if run[0] < until]
    if runs and 2 * len(wanted) > wanted[-1] - wanted[0]:
        return [(runs[0][0], runs[-1][1])]
    return runs


class SubscriptionProgress:
    """Resume points of subscriptions, and their ends. end: forgets a subscription."""

    def __init__(
        self, cursors: Cursors, connections: Connections, end: Callable[[SubscriptionState], None]
    ) -> None:
        self._cursors, self._connections, self._end = cursors, connections, end
        self._next_report_ms = 0

    def look(self, replay: Replay) -> list[Effect]:
        """What becomes of subscriptions that may have come to an end or caught up.

        A gap is only met by those that did not end before it.
        """
        effects: list[Effect] = []
        for one in list(replay.members):
            safe = one.safe(replay.position)
            if one.over(replay.position):
                effects.append(self.progress_ack(replay, one, "completed", ended=True))
                self._end(one)
            elif not one.bounded and not one.caught_up and safe >= one.target:
                one.caught_up = True
                replay.passage.add(one.at_target)
                effects.append(self.progress_ack(replay, one, "completed"))
        if replay.gap is not None:
            effects += self._report_gap(replay, replay.gap)
        return effects

    def progress_ack(
        self, replay: Replay, one: SubscriptionState, kind: str, *, ended: bool = False
    ) -> Send:
        """The ack with the resume point of a subscription; it covers durable messages only."""
        safe = min(one.safe(replay.position), max(self._cursors.persisted, one.reported))
        one.reported = safe
        at_mark = safe == replay.position
        known = one.selection.permit is None  # else it may be the name of what may not be seen
        answer = m.Ack(
            kind, sid=one.names.sid, bookmark=replay.bookmark if at_mark and known else None,
            vector=self._vector(replay, safe), ended=ended,
        )  # fmt: skip
        return Send(one.names.rid, codec.encode(answer))

    def due(self, now_ms: int) -> list[Effect]:
        """Resume points for those that passed something and may have been sent nothing of it."""
        if now_ms < self._next_report_ms:
            return []
        self._next_report_ms = now_ms + REPORT_MS + len(self._cursors.of)  # many: less often
        persisted = self._cursors.persisted
        return [
            self.progress_ack(replay, one, "persisted")
            for replay in self._cursors.running.values() for one in replay.members
            if min(one.safe(replay.position), persisted) > one.reported
        ]  # fmt: skip

    def _vector(self, replay: Replay, position: int) -> str:
        """The resume point that goes on at `position`."""
        assert self._cursors.here is not None
        if len(replay.members) == 1:
            replay.passage.settle(position)
        return format_vector(replay.passage.vector(position, self._cursors.here))

    def _report_gap(self, replay: Replay, gap: Gap) -> list[Effect]:
        where = f"positions {gap.first} to {gap.end - 1} cannot be served: {gap.why}"
        here = self._cursors.here
        assert here is not None
        after = {**replay.passage.vector(replay.position, here), here: gap.end - 1}
        hint = f"resume after them with the vector {format_vector(after)}"
        note = f"{where}; a subscriber got an error and has to go on after them"
        values = {"first": gap.first, "end": gap.end}
        noted = Note("delivery.gap", note, values=values)
        return self.fail(replay, ClientError("gap", where, hint), noted)

    def fail(self, replay: Replay, error: ClientError, note: Note) -> list[Effect]:
        """Ends all that follow a replay which cannot go on."""
        return [*(self.refuse(one, error) for one in list(replay.members)), note]

    def refuse(self, one: SubscriptionState, error: ClientError, cid: str | None = None) -> Send:
        """Ends a subscription with an error."""
        self._end(one)
        return self._connections.refusal(one.names.rid, error, cid, one.names.sid)
