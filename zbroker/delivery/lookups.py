"""Looks up where commands begin and end, and begins them: subscriptions, and plans of ranges. Pure.

ask --> look-ups --answers--> a subscription runs, a plan is made, or the command is refused
"""

from __future__ import annotations

from zbroker.delivery.connections import Connections, DeliveryConnection
from zbroker.delivery.contract import Effect, Planned, PlanRanges
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.pending_lookups import Asking, Question
from zbroker.delivery.subscription_commands import SubscriptionRegistry
from zbroker.delivery.turns import SubscriptionProgress
from zbroker.engine.effects import JOURNAL, Note, Say, Send
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Locate, Located


class Locating:
    """Questions of commands to the journal; its answers begin subscriptions and plans."""

    def __init__(
        self, asking: Asking, cursors: Cursors, subscriptions: SubscriptionRegistry, plans: Plans,
        progress: SubscriptionProgress,
    ) -> None:  # fmt: skip
        self._asking, self._cursors, self._subscriptions = asking, cursors, subscriptions
        self._plans, self._progress = plans, progress
        self._journal_listens = False

    def lost(self) -> None:
        """Another journal runs: it has to be asked everything again."""
        self._journal_listens = False

    def again(self) -> list[Effect]:
        """A journal listens that has not been asked yet."""
        self._journal_listens = True
        return _asks(self._asking.again())

    def check(self, question: Question, connection: DeliveryConnection) -> None:
        """Raises: ClientError too_many, if too much is looked up for its principal already."""
        question.who = connection.token.principal or connection.rid
        self._asking.check(question)

    def ask(self, question: Question) -> list[Effect]:
        """Begins to look up what was checked."""
        if self._journal_listens:
            return _asks(self._asking.ask(question))
        self._asking.keep(question)
        return []

    def located(self, located: Located) -> list[Effect]:
        """The journal's answer to one look-up."""
        question = self._asking.answered(located)
        effects = [] if question is None else self._answered(question)
        return effects + _asks(self._asking.more())

    def _answered(self, question: Question) -> list[Effect]:
        here = self._cursors.here
        assert here is not None, "the journal answers nothing before its welcome"
        try:
            start, end = question.start(here), question.end(here)
        except ClientError as error:
            return self._give_up(question, error)
        if start.position < self._cursors.log_start:  # it rose after the answer
            return _asks(self._asking.repeat(question))
        if isinstance(question.command, m.Ranges):
            assert end is not None, "ranges have an end by default"
            # what the journal had persisted then may be newer than the last watermarks
            persisted, command = question.persisted, question.command
            last = min(end.position, persisted)
            plan = PlanRanges(question.rid, command.cid, start, last, command.parts, persisted)
            return self._plans.begin(plan)
        one = self._subscriptions[question.key]
        one.start(start, end, question.persisted)
        replay = self._cursors.add(one, start)
        one.trail.begin(replay.position)
        self._subscriptions.started(one)
        answer = m.Ack(
            "processed", question.command.cid, sid=one.names.sid, position=replay.position,
            credit=one.credit, origin=here if here != self._cursors.announced else None,
        )  # fmt: skip
        return [Send(question.rid, codec.encode(answer)), *self._progress.look(replay)]

    def tick(self, now_ms: int) -> list[Effect]:
        """Asks again about bookmarks that were not here yet; gives up those that took too long."""
        effects: list[Effect] = []
        if self._journal_listens:
            effects += _asks(self._asking.moved(self._cursors.persisted, now_ms))
        for question in self._asking.overdue(now_ms):
            effects += self._give_up(question, question.late())
        return effects

    def refuse(self, question: Question, error: ClientError) -> list[Effect]:
        """Ends an open question whose client may not get the answer any more."""
        self._asking.close(question)
        return self._give_up(question, error)

    def _give_up(self, question: Question, error: ClientError) -> list[Effect]:
        command = question.command
        if isinstance(command, m.Ranges):
            return [self._plans.refuse(question.rid, error, command.cid)]
        one = self._subscriptions[question.key]
        return [self._progress.refuse(one, error, command.cid)]


def _asks(messages: list[Locate]) -> list[Effect]:
    return [Say(JOURNAL, message) for message in messages]


class Plans:
    """Plans of ranges. open: not answered yet; the log from their start on is held."""

    def __init__(self, connections: Connections, cursors: Cursors) -> None:
        self.open: list[PlanRanges] = []
        self._connections, self._cursors = connections, cursors

    def begin(self, plan: PlanRanges) -> list[Effect]:
        """Splits the log between two located points."""
        self.open.append(plan)
        return [plan]

    def planned(self, planned: Planned) -> list[Effect]:
        """The answer: the log between two points in parts."""
        plan = planned.plan
        connection, here = self._ended(plan), self._cursors.here
        if connection is None or here is None:
            return []
        answer = m.RangeList(
            here.generation, here.instance, self._cursors.log_start, plan.persisted, planned.ranges,
            plan.cid, plan.start.position,
        )  # fmt: skip
        return [Send(plan.rid, codec.encode(answer))]

    def failed(self, plan: PlanRanges, reason: str) -> list[Effect]:
        """The answer where the log between two points cannot be read."""
        if self._ended(plan) is None:
            return []
        error = ClientError("internal", "the log could not be read")
        return [
            self._connections.refusal(plan.rid, error, plan.cid),
            Note(
                "delivery.plan_failed",
                f"{reason}; its client got an error; nothing is lost",
                values={"reason": reason},
            ),
        ]

    def refuse(self, rid: bytes, error: ClientError, cid: str | None) -> Send:
        """Ends a command whose points were not found."""
        self._connections[rid].plans -= 1
        return self._connections.refusal(rid, error, cid)

    def _ended(self, plan: PlanRanges) -> DeliveryConnection | None:
        self.open.remove(plan)
        connection = self._connections.get(plan.rid)
        if connection is not None:
            connection.plans -= 1
        return connection
