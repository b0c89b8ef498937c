"""Exchanges: what they are, what is bound to them, and which messages a binding asks for. Pure."""

from zbroker.exchanges.exchange import (
    Binding,
    BoundQueue,
    Exchange,
    check_exchange,
    checked_binding,
)

__all__ = ["Binding", "BoundQueue", "Exchange", "check_exchange", "checked_binding"]
