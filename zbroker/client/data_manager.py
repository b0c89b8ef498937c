"""A session in a transaction of Zope's package `transaction`, with other data managers.

    with transaction.manager:
        join(session)
        session.publish("invoices", invoice(order))
        order.ack()
        ...  # and what other data managers do, as that of a database

    joined --vote--> prepared --finish--> committed
       |                +------abort----> rolled back, or as `decided` says
       +--abort--> rolled back

It comes first in the order of the managers, so it votes before a database that commits when it
votes, and is committed after that. The package keeps no decision: if the program dies, recovery
decides what it has prepared, see docs/howto/a-row-and-a-message-both-or-neither.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from zbroker.client.session import Session
from zbroker.errors import ZBrokerError
from zbroker.xids import Xid

FORMAT: Final = 0x7A62  # of the xids that it makes
_HINT: Final = "pip install 'zbroker[transaction]'"

Decided = Callable[[Xid], bool]


def join(
    session: Session, *, xid: Xid | None = None, decided: Decided | None = None,
    timeout: float | None = None, manager: Any = None,  # noqa: ANN401 - that package has no types
) -> SessionDataManager:  # fmt: skip
    """What the session publishes and acknowledges from here on belongs to the current transaction.

    xid: None makes one. decided: whether a database has committed; asked with the xid where another
    manager failed after this one was prepared. It is for one that commits when it votes, since that
    may fail although it has committed; without it the messages are rolled back. timeout: seconds
    until it has to vote. manager: None is `transaction.manager`.
    Raises: ZBrokerError missing_package; as `Session.tpc_begin`.
    """
    current = (_package().manager if manager is None else manager).get()
    name = Xid(FORMAT, secrets.token_hex(16)) if xid is None else xid
    session.tpc_begin(name, timeout=timeout)
    joined = SessionDataManager(session, name, decided)
    try:
        current.join(joined)
    except BaseException:
        session.tpc_rollback()
        raise
    return joined


class SessionDataManager:
    """Made by `join`: a session in one transaction. It has the methods that the package calls."""

    def __init__(self, session: Session, xid: Xid, decided: Decided | None = None) -> None:
        self.session, self.xid = session, xid
        self._decided = decided
        self._voted = self._finishes = False

    def sortKey(self) -> str:  # noqa: N802 - as the package calls it
        """Before all letters, and before the `~` of databases that commit when they vote."""
        return f"!zbroker:{self.session.name}"

    def abort(self, _transaction: object) -> None:
        """The transaction ends before a vote."""
        self.session.tpc_rollback()

    def tpc_begin(self, _transaction: object) -> None:
        """Nothing: it began when it was joined."""

    def commit(self, _transaction: object) -> None:
        """Nothing: messages are with the broker already."""

    def tpc_vote(self, _transaction: object) -> None:
        """Raises: as `Session.tpc_prepare`: it votes no."""
        self.session.tpc_prepare()
        self._voted = True

    def tpc_finish(self, _transaction: object) -> None:
        """Raises: as `Session.tpc_commit`; recovery commits it then."""
        self._finishes = True
        self.session.tpc_commit()

    def tpc_abort(self, _transaction: object) -> None:
        """Another manager has failed, or this one. Raises: as `Session.tpc_rollback`; what
        `decided` raises: then it stays prepared."""
        if self._finishes:
            return  # all have voted yes: nothing but a commit is right
        if self._has_been_decided():
            self.session.tpc_commit()
        else:
            self.session.tpc_rollback()

    def _has_been_decided(self) -> bool:
        if not self._voted or self._decided is None:
            return False
        try:
            return self._decided(self.xid)
        except BaseException:
            self.session._leave()
            raise


def _package() -> Any:  # noqa: ANN401 - a module without types
    try:
        import transaction
    except ImportError as error:
        raise ZBrokerError("missing_package", str(error), _HINT) from None
    return transaction
