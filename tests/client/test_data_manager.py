"""zbroker/client/data_manager.py: with the real package, and other managers that fail when told."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.client.test_branches import Broker, refused, unknown
from zbroker.client.data_manager import FORMAT, SessionDataManager, join
from zbroker.errors import ZBrokerError
from zbroker.xids import Xid

transaction = pytest.importorskip("transaction", reason="needs package transaction")

XID: Final = Xid(1, "payment", "broker")


class Database:
    """Another data manager, which writes to `log` what it is asked. fails: at that."""

    def __init__(self, log: list[Any], fails: str = "", key: str = "~database") -> None:
        self._log, self._fails, self._key = log, fails, key

    def sortKey(self) -> str:  # noqa: N802 - as the package calls it
        return self._key

    def __getattr__(self, name: str) -> Callable[[object], None]:
        if name not in ("abort", "tpc_begin", "commit", "tpc_vote", "tpc_finish", "tpc_abort"):
            raise AttributeError(name)

        def do_it(_transaction: object) -> None:
            self._log.append(name)
            if name == self._fails:
                raise RuntimeError(name)

        return do_it


class World:
    """A session and a database in one transaction, committed with `commit`."""

    def __init__(self, fails: str = "", **options: Any) -> None:
        self.broker = Broker()
        self.manager = transaction.TransactionManager(explicit=True)
        self.manager.begin()
        self.log = self.broker.asked
        self.joined = join(self.broker.session, manager=self.manager, xid=XID, **options)
        self.manager.get().join(Database(self.log, fails))
        self.broker.work()

    def commit(self) -> None:
        self.manager.commit()

    @property
    def asked(self) -> list[Any]:
        """Without what says nothing."""
        dull = ("tpc_begin", "commit", "abort", "tpc_abort")
        return [
            each if isinstance(each, str) else each[::2] for each in self.log if each not in dull
        ]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package keeps tracebacks of failed commits, and logs them."""
    monkeypatch.setattr(logging.getLogger("txn"), "disabled", True)


def prepared() -> tuple[str, Any]:
    return ("prepare", 1)


def decided(how: str) -> tuple[str, str]:
    return ("decide", how)


def test_it_votes_before_and_finishes_after_a_database_that_commits_when_it_votes() -> None:
    world = World()
    world.commit()
    assert world.asked == [prepared(), "tpc_vote", decided("commit"), "tpc_finish"]


def test_a_database_that_votes_no_rolls_the_messages_back() -> None:
    world = World("tpc_vote")
    with pytest.raises(RuntimeError):
        world.commit()
    assert world.asked == [prepared(), "tpc_vote", decided("rollback")]
    world.broker.begun()


@pytest.mark.parametrize("at", ["tpc_begin", "commit"])
def test_a_database_that_fails_before_the_votes_leaves_nothing(at: str) -> None:
    world = World(at)
    with pytest.raises(RuntimeError):
        world.commit()
    assert world.asked == []
    assert world.broker.port.log == ["release"]


def test_a_broker_that_votes_no_keeps_the_database_from_voting() -> None:
    world = World()
    world.broker.answers = [("prepare", ZBrokerError("transaction_aborted", "not held any more"))]
    assert refused(world.commit) == "transaction_aborted"
    assert world.asked == [prepared()]
    world.broker.begun()


def test_a_broker_whose_vote_is_not_known_is_rolled_back() -> None:
    world = World()
    world.broker.answers = [unknown("prepare")]
    assert refused(world.commit) == "outcome_unknown"
    assert world.asked == [prepared(), ("fence",), decided("rollback")]


def test_what_all_have_voted_for_is_never_rolled_back() -> None:
    """The database has committed. What is prepared is for recovery, and the session is free."""
    asked: list[Xid] = []
    world = World(decided=asked.append)
    world.broker.answers = [unknown("decide")]
    assert refused(world.commit) == "outcome_unknown"
    assert world.asked == [prepared(), "tpc_vote", decided("commit")]
    assert asked == []
    world.broker.begun()


@pytest.mark.parametrize(("stands", "how"), [(True, "commit"), (False, "rollback")])
def test_a_database_that_may_have_committed_is_asked(stands: bool, how: str) -> None:
    asked = []

    def look(xid: Xid) -> bool:
        asked.append(xid)
        return stands

    world = World("tpc_vote", decided=look)
    with pytest.raises(RuntimeError):
        world.commit()
    assert asked == [XID]
    assert world.asked == [prepared(), "tpc_vote", decided(how)]


def test_what_the_database_cannot_say_is_left_for_recovery() -> None:
    def look(_xid: Xid) -> bool:
        raise OSError("no connection")

    world = World("tpc_vote", decided=look)
    with pytest.raises(RuntimeError):
        world.commit()
    assert world.asked == [prepared(), "tpc_vote"]
    world.broker.begun()


def test_the_database_is_not_asked_about_what_is_not_prepared() -> None:
    asked: list[Xid] = []
    world = World("commit", decided=asked.append)
    with pytest.raises(RuntimeError, match="commit"):
        world.commit()
    assert asked == []
    assert world.broker.port.log == ["release"]


def test_an_exception_in_the_block_rolls_back() -> None:
    world = World()
    world.manager.abort()
    assert world.asked == []
    assert world.broker.port.log == ["release"]


def test_each_transaction_has_an_xid_of_its_own() -> None:
    broker, xids = Broker(), set()
    for _ in range(2):
        with transaction.manager:
            joined = join(broker.session)
            broker.work()
        xids.add(joined.xid)
    assert {xid.format for xid in xids} == {FORMAT}
    assert [each[0] for each in broker.asked] == ["prepare", "decide"] * 2
    assert len(xids) == 2


def test_a_transaction_that_takes_no_manager_more_leaves_the_session_free() -> None:
    world = World("tpc_vote")
    with pytest.raises(RuntimeError):
        world.commit()
    with pytest.raises(transaction.interfaces.TransactionFailedError):
        join(world.broker.session, manager=world.manager)
    world.broker.begun()


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transaction", None)
    with pytest.raises(ZBrokerError, match=r"zbroker\[transaction\]") as caught:
        join(Broker().session)
    assert caught.value.code == "missing_package"


def test_it_has_what_the_package_asks_for() -> None:
    methods = set(transaction.interfaces.IDataManager.names()) - {"transaction_manager"}
    assert methods <= set(vars(SessionDataManager))
