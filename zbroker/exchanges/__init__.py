"""Exchanges: what they are, what is bound to them, and where a batch of messages goes. Pure.

    rows of all instances -> ExchangeTable -> changes -> Router: a batch -> Routes

`ExchangeTable` is the state that every instance comes to have; `Router` is what it says, compiled.
"""

from zbroker.exchanges.exchange import (
    Binding,
    BoundQueue,
    Exchange,
    check_exchange,
    checked_binding,
)
from zbroker.exchanges.exchange_rows import (
    BindingRow,
    DeclaredQueue,
    ExchangeRow,
    Row,
    UsedExchange,
)
from zbroker.exchanges.exchange_table import BindingChange, ExchangeChange, ExchangeTable, Learned
from zbroker.exchanges.route_column import Routes
from zbroker.exchanges.router import Router

__all__ = [
    "Binding",
    "BindingChange",
    "BindingRow",
    "BoundQueue",
    "DeclaredQueue",
    "Exchange",
    "ExchangeChange",
    "ExchangeRow",
    "ExchangeTable",
    "Learned",
    "Router",
    "Routes",
    "Row",
    "UsedExchange",
    "check_exchange",
    "checked_binding",
]
