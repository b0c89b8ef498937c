"""Answers to the admin: at once, once the journal has found a place, or once a record is durable.
Pure."""

from __future__ import annotations

from collections.abc import Callable

from zbroker.engine.effects import Tell
from zbroker.errors import ClientError
from zbroker.ids import Cut
from zbroker.queues.commits import Done
from zbroker.queues.context import QueuesContext
from zbroker.wire import branch_surveys as b
from zbroker.wire import exchange_surveys as x
from zbroker.wire import queue_surveys as s
from zbroker.wire import session_surveys as y
from zbroker.wire.internal import Located


class OperatorAnswers:
    """Sends them to the process that asked."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared

    def reply(
        self, rid: bytes, question: s.QueuesQuestion, find: Callable[[], s.QueuesAnswer | None]
    ) -> None:
        """Sends the answer that `find` gives, or its error; None: the answer comes later."""
        try:
            answer = find()
        except ClientError as error:
            answer = refusal_of(question, error)
        if answer is not None:
            self.tell(rid, answer)

    def reply_at(
        self, rid: bytes, question: s.QueuesQuestion, place: tuple[str, Cut],
        find: Callable[[Located], s.QueuesAnswer | None], *, closed: bool = False,
    ) -> None:  # fmt: skip
        """The same with a place in the log, once the journal has said it. closed: as in Locate."""

        def found(located: Located) -> s.QueuesAnswer | None:
            if located.code:
                raise ClientError(located.code, located.reason)
            return find(located)

        text, cut = place
        self._shared.locate(
            text,
            lambda located: self.reply(rid, question, lambda: found(located)),
            cut,
            closed=closed,
        )

    def tell(self, rid: bytes, answer: s.QueuesAnswer) -> None:
        self._shared.out.append(Tell(rid, answer))

    def tell_when_durable(
        self, rid: bytes, answer: s.Changed, then: Callable[[int], object] = lambda _position: None
    ) -> Done:
        """Answers what came of a record; `then` is called with its position if it landed."""

        def done(code: str, reason: str, position: int) -> None:
            if not code:
                then(position)
            answer.code, answer.reason = code, reason
            self.tell(rid, answer)

        return done


def refusal_of(question: s.QueuesQuestion, error: ClientError) -> s.QueuesAnswer:
    """What a question is answered that cannot be."""
    if isinstance(question, s.Explain):
        return s.Explained(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, s.AskPoints):
        return s.Points(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, s.BrowseQueue):
        return s.Browsed(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, x.AskExchangeRows):
        return x.ExchangesSurveyed(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, x.AskBindingRows):
        return x.BindingsSurveyed(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, y.AskSessionRows):
        return y.SessionsSurveyed(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, b.AskBranchRows):
        return b.BranchesSurveyed(question.cid, code=error.code, reason=error.reason)
    if isinstance(question, b.ChangeBranch):
        return b.BranchChanged(question.cid, code=error.code, reason=error.reason)
    return s.Changed(question.cid, code=error.code, reason=error.reason, hint=error.hint)
