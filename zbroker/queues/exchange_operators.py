"""Exchanges and bindings of operators: changes like those of clients, and dry runs. Pure."""

from __future__ import annotations

from zbroker.errors import ClientError
from zbroker.exchanges import Exchange
from zbroker.queues.admin_answers import OperatorAnswers, refusal_of
from zbroker.queues.exchange_changes import ExchangeChanges, NamedBinding, Plan
from zbroker.wire import exchange_surveys as x
from zbroker.wire import queue_surveys as s


class OperatorExchanges:
    """Performs their changes. All of them raise ClientError."""

    def __init__(self, answers: OperatorAnswers, changes: ExchangeChanges) -> None:
        self._answers, self._changes = answers, changes

    def change(self, rid: bytes, ask: x.ChangeExchange) -> s.Changed | None:
        """Answers once the exchange is there, or gone."""
        if ask.what == "declare":
            wanted = Exchange(
                ask.exchange, ask.kind, ask.alternate, ask.auto_delete, ask.internal
            )  # fmt: skip
            plan = self._changes.declare(wanted)
            return self._perform(rid, ask, plan, int(plan.changes))
        if ask.what != "delete":
            raise _nothing(ask.what)
        plan = self._changes.delete(ask.exchange, if_unused=ask.if_unused)
        return self._perform(rid, ask, plan, plan.bindings)

    def change_binding(self, rid: bytes, ask: x.ChangeBinding) -> s.Changed | None:
        """Answers once the queue is bound like that, or not any more."""
        if ask.what not in ("bind", "unbind"):
            raise _nothing(ask.what)
        plan_it = self._changes.bind if ask.what == "bind" else self._changes.unbind
        plan = plan_it(NamedBinding(ask.exchange, ask.queue, ask.key, ask.arguments))
        return self._perform(rid, ask, plan, int(plan.changes))

    def _perform(
        self, rid: bytes, ask: x.ChangeExchange | x.ChangeBinding, plan: Plan, count: int
    ) -> s.Changed | None:
        answer = s.Changed(ask.cid, count)
        if ask.dry_run:
            return answer

        def done(error: ClientError | None) -> None:
            self._answers.tell(rid, answer if error is None else refusal_of(ask, error))

        self._changes.perform(plan, done)
        return None


def _nothing(what: str) -> ClientError:
    return ClientError("bad_field", f"key `what`: {what[:64]!r} is nothing to be done")
