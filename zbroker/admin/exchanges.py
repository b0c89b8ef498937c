"""/exchanges and /bindings: what there is, and changes to them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from zbroker.admin import requests as asking
from zbroker.admin.process_link import QueueLink
from zbroker.errors import ClientError
from zbroker.wire import exchange_surveys as x
from zbroker.wire.bodies import Scalar

Document = dict[str, Any]


class ExchangeReports:
    """Answers from any thread. All methods raise ClientError."""

    def __init__(self, link: QueueLink) -> None:
        self._link = link

    # -- reading --------------------------------------------------------------------------------

    def exchanges(self, wanted: asking.ExchangesQuery) -> Document:
        """Every exchange, by name; or the one that is wanted."""
        answer = self._link.look(x.ExchangesSurveyed, x.AskExchangeRows(0, wanted.exchange))
        if wanted.exchange and not answer.rows:
            raise ClientError("unknown_exchange", f"there is no exchange {wanted.exchange!r}")
        return {"exchanges": [_exchange(row) for row in answer.rows]}

    def bindings(self, wanted: asking.BindingsQuery) -> Document:
        """The bindings, by exchange, queue and key."""
        ask = x.AskBindingRows(0, wanted.exchange, wanted.queue, wanted.limit)
        answer = self._link.look(x.BindingsSurveyed, ask)
        return {"left_out": answer.left_out, "bindings": [_binding(row) for row in answer.rows]}

    # -- changing -------------------------------------------------------------------------------

    def declare(self, ask: asking.DeclareExchangeRequest) -> Document:
        """It holds, and publishes go by it, when this returns; so it is of the others."""
        question = x.ChangeExchange(
            0, "declare", ask.exchange, ask.kind, ask.alternate, ask.auto_delete, ask.internal,
            dry_run=ask.dry_run,
        )  # fmt: skip
        done = self._link.change(question)
        return _report(ask.exchange, dry_run=ask.dry_run) | {"changed": done.count > 0}

    def delete(self, ask: asking.DeleteExchangeRequest) -> Document:
        """An exchange goes, with its bindings."""
        question = x.ChangeExchange(
            0, "delete", ask.exchange, if_unused=ask.if_unused, dry_run=ask.dry_run
        )
        done = self._link.change(question)
        return _report(ask.exchange, dry_run=ask.dry_run) | {"bindings": done.count}

    def bind(self, ask: asking.BindingRequest) -> Document:
        """Messages enter a queue."""
        return self._change_binding("bind", ask)

    def unbind(self, ask: asking.BindingRequest) -> Document:
        """They do not any more."""
        return self._change_binding("unbind", ask)

    def _change_binding(self, what: str, ask: asking.BindingRequest) -> Document:
        question = x.ChangeBinding(
            0, what, ask.queue, ask.exchange, ask.key, dict(ask.arguments), ask.dry_run
        )
        done = self._link.change(question)
        report = _report(ask.exchange, dry_run=ask.dry_run)
        return {"queue": ask.queue, **report, "key": ask.key, "changed": done.count > 0}


def _report(exchange: str, *, dry_run: bool) -> Document:
    return {"exchange": exchange, "dry_run": dry_run}


def _exchange(row: x.SurveyedExchange) -> Document:
    return {
        "name": row.name, "kind": row.kind, "alternate": row.alternate,
        "auto_delete": row.auto_delete, "internal": row.internal,
        "predeclared": row.predeclared, "bindings": row.bindings,
    }  # fmt: skip


def _binding(row: x.SurveyedBinding) -> Document:
    """instance: of a local queue."""
    return {
        "exchange": row.exchange, "queue": row.queue, "key": row.key,
        "arguments": _shown(row.arguments),
        "instance": f"{row.instance:016x}" if row.instance else "", "here": row.here,
    }  # fmt: skip


def _shown(arguments: Mapping[str, Scalar]) -> Document:
    """For JSON, where a binary value is an object, which no other one is."""
    return {
        name: {"base64": b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in arguments.items()
    }
