"""The tokens under which transactions of sessions stage their messages. Pure."""

from __future__ import annotations

from typing import Final

from zbroker.ids import publisher_id

OF_TRANSACTIONS: Final = "$tx."  # they begin so


def stages_of(session: str) -> str:
    """How the tokens of a session begin, of all epochs."""
    return f"{OF_TRANSACTIONS}{publisher_id(session):016x}."


def stages_in(session: str, epoch: int) -> str:
    """How those of one epoch begin; the number of the transaction follows."""
    return f"{stages_of(session)}{epoch:x}."


def token_of(session: str, epoch: int, number: int) -> str:
    """That of one transaction."""
    return f"{stages_in(session, epoch)}{number}"
