"""What the tables of a journal learn from control records, when these are placed or read. Pure."""

from __future__ import annotations

from collections.abc import Callable

from zbroker.journal import named_records
from zbroker.journal.sessions import Sessions
from zbroker.log.format import (
    KIND_ABORT,
    KIND_BRANCH,
    KIND_CLOSED,
    KIND_EXCHANGE,
    KIND_FORGOTTEN,
    KIND_TRANSACTION,
    Batch,
)


def control_folds(sessions: Sessions) -> dict[int, Callable[[Batch], None]]:
    """By kind. Other kinds change nothing, or in a way of their own."""
    return {
        KIND_ABORT: sessions.stages.fold_abort,
        KIND_FORGOTTEN: sessions.forgotten_peers.fold,
        KIND_CLOSED: sessions.origins.fold_closed,
        KIND_EXCHANGE: sessions.exchanges.fold,
        KIND_TRANSACTION: sessions.transactions.fold,
        KIND_BRANCH: sessions.transactions.branches.fold,
        **dict.fromkeys(named_records.KINDS, sessions.named.fold),
    }
