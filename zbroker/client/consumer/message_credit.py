"""Which messages a program wants its consumer to get: flow, stop, drain, acquire. Pure.

    wanted --due--> sent --answered--> done
                     |       a stop or a drain is answered before the next of them is sent
                     +--lost--> said again: by the next `consume`, or sent once more

The broker forgets all of it with the connection. So the next `consume` has the mode, and the credit
that is left: messages that were asked for and have not come. One that was on its way comes again.
One that came and was dropped, since its lease was over, does not count, as the program did not see
it: there is credit for another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct
from pyroaring import BitMap64

from zbroker.client.consumer.held_messages import positions_of
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import Whose
from zbroker.errors import ZBrokerError
from zbroker.log.records import ends_of, of_ends
from zbroker.wire.consumer_credit import (
    ACQUIRED_MAX,
    Acquired,
    AcquireMessages,
    ConsumerFlow,
    FlushConsumer,
    Flushed,
    StopConsumer,
)
from zbroker.wire.messages import Ack
from zbroker.wire.queue_messages import Consume, Consuming

PICKED_MAX: Final = ACQUIRED_MAX  # messages of one command, so that its runs fit


class CreditChange(Struct, eq=False):
    """Something that the program wants. sent: messages that a drain brought."""

    kind: Literal["flow", "stop", "drain"]
    messages: int = 0
    sent: int = 0
    done: bool = False
    error: ZBrokerError | None = None


class Pick(Struct, eq=False):
    """Messages that are to be acquired. got: those that were, once that is known."""

    positions: BitMap64
    cid: str = ""
    got: BitMap64 | None = None
    error: ZBrokerError | None = None


class MessageCredit:
    """counted: it is in credit mode; left: how many messages may come, as far as is known then.

    stopped: nothing comes before a flow. revoked: the broker took the credit in bytes, too.
    """

    def __init__(self, command: Consume) -> None:
        self.counted = command.flow_mode == "credit"
        self.left = 0
        self.stopped = self.revoked = False
        self._changes: deque[CreditChange] = deque()  # the first one may be under way
        self._cid = ""  # of the stop or drain that is
        self._picks: list[Pick] = []
        self._acquired = BitMap64()  # they have not come
        self._picked = BitMap64()  # they came so, and may wait

    # -- what the program wants ---------------------------------------------------------------

    def change(self, change: CreditChange) -> CreditChange:
        """To be sent soon."""
        self._changes.append(change)
        return change

    def pick(self, positions: BitMap64) -> Pick:
        """The same of messages that are to be acquired."""
        pick = Pick(positions)
        self._picks.append(pick)
        return pick

    # -- what goes over the wire --------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """No credit in bytes goes back: it would start a consumer that is stopped."""
        return self.stopped or bool(self._cid)

    def due(
        self, cid: Callable[[], str], whose: Whose, restored: Callable[[], int]
    ) -> list[ConsumerFlow | StopConsumer | FlushConsumer | AcquireMessages]:
        """The commands for what is wanted. restored: the bytes of credit for one that starts."""
        commands: list[ConsumerFlow | StopConsumer | FlushConsumer | AcquireMessages] = []
        sid = whose.sid
        while self._changes and not self._cid:
            first = self._changes[0]
            if first.kind == "flow":
                size = restored() if self.stopped else 0
                commands.append(ConsumerFlow(sid, size, first.messages))
                self._done(self._changes.popleft())
                continue
            self._cid = cid()
            kind = StopConsumer if first.kind == "stop" else FlushConsumer
            commands.append(kind(sid, self._cid))
        for pick in self._picks:
            if not pick.cid:
                pick.cid = cid()
                ends = ends_of(pick.positions)
                commands.append(AcquireMessages(sid, ends, pick.cid, whose.generation))
        return commands

    def __bool__(self) -> bool:
        """True if something may be due."""
        return bool(self._changes or self._picks)

    def restate(self, command: Consume) -> None:
        """What a new connection begins with. A drain that was not answered is sent again."""
        self.revoked, self._cid = False, ""
        self._acquired = BitMap64()
        for pick in self._picks:
            pick.cid = ""
        while self._changes and self._changes[0].kind != "drain":
            self._done(self._changes.popleft())
        command.messages = self.left if self.counted else 0 if self.stopped else None

    def check(self, event: Consuming) -> None:
        """Raises: ZBrokerError bad_command, of a broker that would send more than is wanted."""
        if self.counted and event.flow_mode != "credit":
            reason = "the broker is of an earlier release, and knows no credit in messages"
            raise ZBrokerError("bad_command", reason)

    # -- answers ------------------------------------------------------------------------------

    def answered(self, answer: object) -> bool:
        """False if that answers none of this."""
        if isinstance(answer, Acquired):
            for pick in [pick for pick in self._picks if pick.cid == answer.cid]:
                self._picks.remove(pick)
                pick.got = of_ends(answer.ends)
                self._acquired |= pick.got
            return True
        if not isinstance(answer, Ack | Flushed) or not self._cid or answer.cid != self._cid:
            return False
        change, self._cid = self._changes.popleft(), ""
        change.sent = answer.sent if isinstance(answer, Flushed) else 0
        self._done(change)
        self.revoked = True
        return True

    def refused(self, cid: str, error: ZBrokerError) -> bool:
        """False if that is none of these."""
        for pick in [pick for pick in self._picks if pick.cid == cid]:
            self._picks.remove(pick)
            pick.error = error
            return True
        if not cid or cid != self._cid:
            return False
        change, self._cid = self._changes.popleft(), ""
        change.done, change.error = True, error
        return True

    def came(self, messages: Sequence[QueueMessage]) -> None:
        """They take credit, but for those that were acquired."""
        count = len(messages)
        if self._acquired or self._picked:
            positions = positions_of(messages)
            picked = self._acquired & positions
            self._acquired -= picked
            self._picked = (self._picked - positions) | picked
            count -= len(picked)
        self.left = max(0, self.left - count)

    def dropped(self, positions: BitMap64) -> None:
        """They came, and the program did not see them."""
        count = len(positions - self._picked)
        self._picked -= positions
        ends = self.stopped or any(change.kind != "flow" for change in self._changes)
        if self.counted and count and not ends:
            self._changes.append(CreditChange("flow", count))

    def forget_positions(self) -> None:
        """The positions from before name other messages: nothing is acquired by them."""
        for pick in self._picks:
            pick.got = BitMap64()
        self._picks.clear()
        self._picked = BitMap64()

    def _done(self, change: CreditChange) -> None:
        change.done = True
        self.stopped = change.kind != "flow"
        self.left = self.left + change.messages if change.kind == "flow" else 0
