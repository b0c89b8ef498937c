"""Questions of the admin about exchanges to the queues process, and its answers. Pure.

    AskExchangeRows{exchange}                ->  ExchangesSurveyed{rows}
    AskBindingRows{exchange, queue, limit}   ->  BindingsSurveyed{rows, left_out}
    ChangeExchange{what, exchange, ...}      ->  Changed{count}
    ChangeBinding{what, queue, exchange ...} ->  Changed{count}

A change is answered once it is durable and publishes to this instance go by it, like that of a
client (queue_messages.py). A `code` says why it was refused.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from zbroker.wire.internal import Correlated, Refusable


class AskExchangeRows(Correlated, tag="ask_exchange_rows"):
    """admin -> queues. exchange: only the one of this name; "" is all."""

    exchange: str = ""


class SurveyedExchange(Struct, array_like=True, gc=False):
    """An exchange. predeclared: it is always there. bindings: how many it has, with those to local
    queues of other instances."""

    name: str
    kind: str
    alternate: str
    auto_delete: bool
    internal: bool
    predeclared: bool
    bindings: int


class ExchangesSurveyed(Refusable, tag="exchanges_surveyed"):
    """queues -> admin. By name."""

    rows: list[SurveyedExchange] = []


class AskBindingRows(Correlated, tag="ask_binding_rows"):
    """admin -> queues. exchange, queue: only of these names; "" is all. limit: rows at most."""

    exchange: str = ""
    queue: str = ""
    limit: int = 0


class SurveyedBinding(Struct, array_like=True):
    """A binding. arguments: of a headers exchange, a Scalar each. instance: whose queue that is, if
    it is a local one; 0: a queue of several instances. here: this instance has the queue."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any]
    instance: int
    here: bool


class BindingsSurveyed(Refusable, tag="bindings_surveyed"):
    """queues -> admin. By exchange, queue and key. left_out: how many more there are."""

    rows: list[SurveyedBinding] = []
    left_out: int = 0


class ChangeExchange(Correlated, tag="change_exchange"):
    """admin -> queues. what: declare or delete; the rest as of a client's command. Answered by
    Changed: of a declare, `count` is 0 if it was there; of a delete, how many bindings end."""

    what: str
    exchange: str
    kind: str = "direct"
    alternate: str = ""
    auto_delete: bool = False
    internal: bool = False
    if_unused: bool = False
    dry_run: bool = False


class ChangeBinding(Correlated, tag="change_binding"):
    """admin -> queues. what: bind or unbind; the rest as of a client's command, arguments as in
    SurveyedBinding. Answered by Changed: `count` is 0 if it was so."""

    what: str
    queue: str
    exchange: str
    key: str = ""
    arguments: dict[str, Any] = {}
    dry_run: bool = False


ExchangeQuestion = AskExchangeRows | AskBindingRows | ChangeExchange | ChangeBinding
ExchangeAnswer = ExchangesSurveyed | BindingsSurveyed
