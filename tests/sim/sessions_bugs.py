"""Bugs of transactions that several instances show: each must be found.

Those of one instance are in transactions_bugs; here are some of them, too, for queues that several
instances have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.sim import transactions_bugs as one
from zbroker.journal.core import JournalCore
from zbroker.queues.core import QueuesCore
from zbroker.queues.promises import Promises


def _destinations_not_waited_for(core: Any) -> None:
    core.shared.promises = Promises(on=False)


def _others_not_folded(core: Any) -> None:
    """Sessions of other instances are not known here."""
    commit = core.commit
    for kind, fold in [*commit._control_folds.items()]:
        if fold == commit.sessions.transactions.fold:
            commit._control_folds[kind] = lambda batch, fold=fold: (
                fold(batch) if batch.origin_instance == commit.settings.instance else None
            )


def _begins_unread(core: Any) -> None:
    """A session begins here as soon as the other instance was asked for it."""
    commands = core._transactions
    commands._wait = commands._begin


def _every_asker_gets_it(core: Any) -> None:
    """A request is granted whatever epoch it names, and wherever the session is by now."""
    moves = core._session_moves
    requested = moves._requested

    def grants(event: Any, row: Any) -> None:
        row.instance, event.epoch = moves._here, row.epoch
        requested(event, row)

    moves._requested = grants


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "commits do not wait for destinations": _destinations_not_waited_for,
    **{
        bug: one.QUEUES[bug]
        for bug in (
            "messages that are not held are taken", "facts are a unit of their own",
            "a commit is answered at once",
        )
    },
    "a session begins before its hand-over is read": _begins_unread,
    "every instance that asks gets the session": _every_asker_gets_it,
}  # fmt: skip
JOURNAL: Final[dict[str, Callable[[JournalCore], None]]] = {
    "sessions of other instances are not folded": _others_not_folded,
}
BUGS: Final = (*QUEUES, *JOURNAL)
