"""Looks up where commands begin and end, and begins them: subscriptions, and plans of ranges. Pure.

ask --> look-ups --answers--> a subscription runs, a plan is made, or the command is refused
"""

from __future__ import annotations

from zbroker.delivery.connections import Connections, DeliveryConnection
from zbroker.delivery.contract import Effect, FindPassed, PassedFound, Planned, PlanRanges
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.pending_lookups import Asking, Question
from zbroker.delivery.points import Point
from zbroker.delivery.replay import Replay
from zbroker.delivery.subscription import SubscriptionState
from zbroker.delivery.subscription_commands import SubscriptionRegistry
from zbroker.delivery.turns import SubscriptionProgress
from zbroker.engine.effects import JOURNAL, Note, Say, Send
from zbroker.errors import ClientError
from zbroker.ids import format_vector
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
        self._finding: dict[int, FindPassed] = {}  # by the key of a subscription

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
        if not replay.finding:
            return self._begin(one, replay, question.command.cid)
        find = FindPassed(
            question.key, question.command.cid, start.passed_at, start.position,
            dict(start.passed),
        )  # fmt: skip
        self._finding[question.key] = find
        return [find]

    def _begin(self, one: SubscriptionState, replay: Replay, cid: str | None) -> list[Effect]:
        """Answers its command, and lets it go on."""
        here = self._cursors.here
        assert here is not None
        self._subscriptions.started(one)
        answer = m.Ack(
            "processed", cid, sid=one.names.sid, position=replay.position, credit=one.credit,
            vector=format_vector(replay.passage.vector(replay.position, here)),
            origin=here if here != self._cursors.announced else None,
        )  # fmt: skip
        return [Send(one.names.rid, codec.encode(answer)), *self._progress.look(replay)]

    def found(self, found: PassedFound) -> list[Effect]:
        """The answer: how much of each origin is before the start of a subscription."""
        find = found.find
        replay = self._cursors.of.get(find.key)
        if replay is None or self._finding.get(find.key) is not find:
            return []  # it has ended, or another journal listens
        del self._finding[find.key]
        self._cursors.found(replay, found.vector)
        return self._begin(self._subscriptions[find.key], replay, find.cid)

    def not_found(self, find: FindPassed, reason: str) -> list[Effect]:
        """The log could not be read."""
        replay = self._cursors.of.get(find.key)
        if replay is None or self._finding.pop(find.key, None) is not find:
            return []
        error = ClientError("internal", "the log could not be read")
        note = f"{reason}; a subscription got an error; nothing is lost"
        noted = Note("delivery.read_failed", note, values={"reason": reason})
        return [self._progress.refuse(self._subscriptions[find.key], error, find.cid), noted]

    def find_again(self) -> list[Effect]:
        """Another journal listens: looks again for all that was not found."""
        finds: list[Effect] = []
        for key, find in list(self._finding.items()):
            replay = self._cursors.of.get(key)
            del self._finding[key]
            if replay is not None:
                known = find.at <= replay.position  # or else the log lost what is before that
                vector, at = (find.vector, find.at) if known else ({}, replay.position)
                again = FindPassed(key, find.cid, at, replay.position, vector)
                self._finding[key] = again
                finds.append(again)
        return finds

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


def _vector_of(start: Point) -> str | None:
    """The vector that covers all before a place, if it is known at once."""
    known = start.passed and start.passed_at == start.position
    return format_vector(dict(start.passed)) if known else None


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
            plan.cid, plan.start.position, _vector_of(plan.start),
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
