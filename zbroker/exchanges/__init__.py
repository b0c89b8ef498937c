"""Exchanges: what they are, what is bound to them, and which messages a binding asks for. Pure.

    rows of all instances -> ExchangeTable

`ExchangeTable` is the state that every instance comes to have.
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
    "Row",
    "UsedExchange",
    "check_exchange",
    "checked_binding",
]
