"""zbroker/client/branches.py: what may follow on what in a session, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

import pytest

from zbroker.client import branches, waits
from zbroker.client.aio.session import AsyncSession
from zbroker.client.branches import BranchInfo
from zbroker.client.consumer.settlement import ACK, Verb
from zbroker.client.session import Session
from zbroker.client.session_link import Takes, TransactionId
from zbroker.client.transaction import TransactionResult
from zbroker.errors import ZBrokerError
from zbroker.wire.branches import Branch, BranchDecided, BranchPrepared
from zbroker.wire.transactions import Accepted, RejectedMessages, TransactionCommitted
from zbroker.xids import Xid

XID: Final = Xid(1, "payment", "broker")
OTHER: Final = Xid(1, "payment", "another")
JOB: Final = SimpleNamespace(_at=1)
TAKEN: Final = Takes([Accepted("orders", "h", 1, [1, 2])], [])


class Port:
    """A consumer's connection. log: what became of its messages."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.accepting: Callable[..., Any] = lambda many: Accepted(
            "orders", "h", 1, [end for one in many for end in (one._at, one._at + 1)]
        )

    def accepted(self, _messages: Any) -> None:
        self.log.append("taken")

    def read(self, look: Callable[[Any], Any]) -> Any:
        return look(self)

    def settle(self, verb: Any, _messages: Any) -> None:
        self.log.append(verb.kind)


class Broker:
    """The client of a session and both of its links. asked: of these, in order.
    answers: raised, or else given, the next one first."""

    def __init__(self, kind: Any = Session) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[Any] = []
        self.tokens: list[str | None] = []
        self.published: list[bytes] = []
        self.unpersisted = 0
        self.port = Port()
        self._queues = self._publisher = self
        self.last = None
        self.takes_rejects = True
        self.session = kind(self, "billing", force=False)
        self.session._link = self.session._branches = self

    # -- its client ---------------------------------------------------------------------------

    async def _flush(self, _timeout: float) -> None:
        self._next("flush")

    async def _aside(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    async def _close(self, **_: Any) -> None:
        self.asked.append(("close",))

    def close(self) -> None:
        pass

    def stage(self, token: str | None) -> None:
        self.tokens.append(token)

    def publish(self, _topic: str, data: bytes) -> bytes:
        self.published.append(data)
        return data

    # -- its links ----------------------------------------------------------------------------

    def begin(self, _timeout: float) -> tuple[TransactionId, str]:
        return TransactionId(5, len(self.tokens) + 1), f"t{len(self.tokens) + 1}"

    def commit(self, *given: Any) -> Any:
        return self._ask("commit", given) or TransactionCommitted("billing", 1, 70, 2, 1)

    def prepare(self, *given: Any) -> Any:
        return self._ask("prepare", given) or BranchPrepared(XID)

    def decide(self, *given: Any) -> Any:
        return self._ask("decide", given) or BranchDecided(XID, "commit", 70, 2, 1)

    def fence(self, *given: Any) -> None:
        self._ask("fence", given)

    def recover(self, _timeout: float) -> list[Branch]:
        return [Branch(XID, "p", "committed", "billing", 9, True, 2, 1, 10**9)]

    def _ask(self, what: str, given: tuple[Any, ...]) -> Any:
        self.asked.append((what, *given[:-1]))  # the last one is the time
        return self._next(what)

    def _next(self, what: str) -> Any:
        if not self.answers or self.answers[0][0] != what:
            return None
        answer = self.answers.pop(0)[1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    # -- what tests do ------------------------------------------------------------------------

    def begun(self) -> Any:
        """A session in a transaction with a message and an acknowledgement."""
        self.session.tpc_begin(XID)
        self.work()
        return self.session

    def work(self) -> None:
        self.session.publish("invoices", b"1")
        assert self.session._take(self.port, ACK, (JOB,))


def refused(call: Callable[..., Any], *given: Any) -> str:
    with pytest.raises(ZBrokerError) as caught:
        call(*given)
    return caught.value.code


def unknown(what: str) -> tuple[str, Exception]:
    return what, ZBrokerError("outcome_unknown", "no answer")


# -- the way through ------------------------------------------------------------------------------


def test_prepare_hands_in_what_was_published_and_acknowledged() -> None:
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    assert broker.asked == [("prepare", XID, 1, TAKEN)]
    assert broker.port.log == ["taken"]
    assert session.tpc_commit() == TransactionResult(2, 70, 1)
    assert broker.asked[1:] == [("decide", XID, "commit")]


def test_a_transaction_without_work_is_prepared_too() -> None:
    """Its manager may ask for it, and takes one that is not there for one that was rolled back."""
    broker = Broker()
    broker.session.tpc_begin(XID)
    broker.session.tpc_prepare()
    assert broker.asked == [("prepare", XID, 0, Takes([], []))]


def test_a_commit_without_prepare_is_one_phase() -> None:
    broker = Broker()
    assert broker.begun().tpc_commit() == TransactionResult(2, 70, 1)
    assert broker.asked == [("commit", 1, TAKEN)]


def test_a_commit_of_nothing_asks_nothing() -> None:
    broker = Broker()
    broker.session.tpc_begin(XID)
    assert broker.session.tpc_commit() == TransactionResult(0, 0, 0)
    assert broker.asked == []


def test_a_rollback_of_what_is_prepared_is_asked_for() -> None:
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    session.tpc_rollback()
    assert broker.asked[1:] == [("decide", XID, "rollback")]
    assert broker.port.log == ["taken"]  # the broker gives it back


def test_a_rollback_of_what_is_not_prepared_gives_the_messages_back() -> None:
    broker = Broker()
    broker.begun().tpc_rollback()
    assert broker.asked == []
    assert broker.port.log == ["release"]


def test_a_session_does_one_transaction_after_the_other() -> None:
    broker = Broker()
    for _ in range(2):
        broker.begun().tpc_prepare()
        broker.session.tpc_commit()
    with broker.session.transaction() as local:
        broker.work()
    assert local.committed is not None
    broker.session.publish("notes", b"outside")
    assert broker.tokens == ["t1", "t2", "t3", None]


def test_what_it_rejects_is_handed_in_with_its_reasons() -> None:
    broker = Broker()
    broker.answers = [("commit", TransactionCommitted("billing", 1, 70, 2, 4, rejected=3))]
    session = broker.begun()
    jobs = [SimpleNamespace(_at=at) for at in (3, 5, 7)]
    for job, reason in zip(jobs, ("bad", "bad", ""), strict=True):
        assert session._take(broker.port, Verb("reject", reason=reason), (job,))
    assert session.tpc_commit() == TransactionResult(2, 70, 4, rejected=3)
    rejects = [
        RejectedMessages("orders", "h", 1, [3, 4, 5, 6], "bad"),
        RejectedMessages("orders", "h", 1, [7, 8], ""),
    ]
    assert broker.asked == [("commit", 1, TAKEN._replace(rejects=rejects))]
    assert broker.port.log == ["taken"] * 3


def test_the_first_word_about_a_message_counts() -> None:
    broker = Broker()
    session = broker.begun()
    assert session._take(broker.port, Verb("reject", reason="late"), (JOB,))
    session.tpc_commit()
    assert broker.asked == [("commit", 1, TAKEN)]


def test_a_broker_that_does_not_look_at_rejects_is_sent_none() -> None:
    broker = Broker()
    broker.takes_rejects = False
    session = broker.begun()
    assert refused(session._take, broker.port, Verb("reject"), (JOB,)) == "bad_command"
    session.tpc_commit()
    assert broker.asked == [("commit", 1, TAKEN)]


# -- what may not follow --------------------------------------------------------------------------


def test_what_is_prepared_takes_nothing_more() -> None:
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    assert refused(broker.work) == "bad_command"
    assert refused(session._take, broker.port, ACK, (JOB,)) == "bad_command"
    assert refused(session.tpc_prepare) == "bad_command"
    assert broker.published == [b"1"]


@pytest.mark.parametrize("prepared", [False, True])
def test_transactions_are_one_after_the_other(prepared: bool) -> None:
    session = Broker().begun()
    if prepared:
        session.tpc_prepare()
    assert refused(session.tpc_begin, OTHER) == "bad_command"
    assert refused(session.transaction().__enter__) == "bad_command"
    assert refused(session.tpc_commit, OTHER) == "bad_command"
    assert refused(session.tpc_rollback, OTHER) == "bad_command"


def test_a_local_transaction_has_no_two_phases() -> None:
    session = Broker().session
    with session.transaction():
        assert refused(session.tpc_begin, XID) == "bad_command"
        assert refused(session.tpc_prepare) == "bad_command"
        assert refused(session.tpc_commit) == "bad_command"
        assert refused(session.tpc_rollback) == "bad_command"
        assert refused(session.tpc_commit, XID) == "bad_command"


def test_without_a_transaction_there_is_nothing_to_prepare() -> None:
    session = Broker().session
    assert refused(session.tpc_prepare) == "bad_command"
    assert refused(session.tpc_commit) == "bad_command"
    session.tpc_rollback()


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["flush", "prepare"])
def test_what_cannot_be_prepared_is_rolled_back(what: str) -> None:
    broker = Broker()
    session = broker.begun()
    broker.answers = [(what, ZBrokerError("transaction_aborted", "no"))]
    assert refused(session.tpc_prepare) == "transaction_aborted"
    assert broker.port.log == ["release"]
    session.tpc_rollback()  # as a program does that knows no better
    assert ("decide", XID, "rollback") not in broker.asked
    broker.begun()


@pytest.mark.parametrize("found", [None, ZBrokerError("unknown_branch", "it was not prepared")])
def test_what_may_be_prepared_is_rolled_back_after_a_fence(found: Exception | None) -> None:
    broker = Broker()
    session = broker.begun()
    broker.answers = [unknown("prepare"), ("decide", found)]
    assert refused(session.tpc_prepare) == "outcome_unknown"
    assert refused(broker.work) == "bad_command"
    assert refused(session.tpc_commit) == "bad_command"
    session.tpc_rollback()
    assert broker.asked[1:] == [("fence",), ("decide", XID, "rollback")]
    broker.begun()


def test_a_prepare_that_is_interrupted_may_be_done() -> None:
    broker = Broker()
    session = broker.begun()
    broker.answers = [("prepare", KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        session.tpc_prepare()
    session.tpc_rollback()
    assert broker.asked[1:] == [("fence",), ("decide", XID, "rollback")]


def test_a_rollback_of_what_is_gone_says_so() -> None:
    """It was prepared: so another program has decided it."""
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    broker.answers = [("decide", ZBrokerError("unknown_branch", "gone"))]
    assert refused(session.tpc_rollback) == "unknown_branch"


@pytest.mark.parametrize("name", ["tpc_commit", "tpc_rollback"])
def test_a_session_goes_on_after_a_decision_without_an_answer(name: str) -> None:
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    broker.answers = [unknown("decide")]
    assert refused(getattr(session, name)) == "outcome_unknown"
    getattr(session, name)(XID)
    assert [each[0] for each in broker.asked] == ["prepare", "decide", "decide"]
    broker.begun()


def test_a_decision_that_an_earlier_try_has_done_has_no_result() -> None:
    broker = Broker()
    broker.begun().tpc_prepare()
    broker.decide = lambda *_: None  # type: ignore[method-assign]
    assert broker.session.tpc_commit() is None


@pytest.mark.seed("001-64")
@pytest.mark.parametrize("name", ["tpc_prepare", "tpc_commit"])
def test_what_is_not_prepared_in_time_is_rolled_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    for module in (branches, waits):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    broker = Broker()
    for end, code in ((104.9, None), (105.0, "transaction_aborted")):
        now[0] = 100.0
        broker.session.tpc_begin(XID, timeout=5.0)
        broker.work()
        now[0] = end
        if code is None:
            getattr(broker.session, name)()
            broker.session.tpc_rollback()
        else:
            assert refused(getattr(broker.session, name)) == code
    assert broker.port.log == ["taken", "release"]
    broker.begun()


def test_a_session_that_is_closed_leaves_what_is_prepared() -> None:
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    session.close()
    assert broker.asked[1:] == [("close",)]
    assert broker.port.log == ["taken"]


# -- recovery -------------------------------------------------------------------------------------


def test_others_are_decided_outside_of_a_transaction() -> None:
    broker = Broker()
    session = broker.session
    [left] = session.tpc_recover()
    since = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert left == BranchInfo(XID, "committed", "billing", since, 2, 1)
    session.tpc_commit(left)
    session.tpc_rollback(OTHER)
    session.tpc_forget(left.xid)
    assert broker.asked == [
        ("decide", XID, "commit"),
        ("decide", OTHER, "rollback"),
        ("decide", XID, "forget"),
    ]


def test_a_session_may_name_what_it_has_prepared() -> None:
    broker = Broker()
    session = broker.begun()
    session.tpc_prepare()
    session.tpc_commit(XID)
    broker.begun()


# -- xids -----------------------------------------------------------------------------------------


def test_an_xid_has_three_parts() -> None:
    session = Broker().session
    assert tuple(session.xid(0, "g" * 64, "b" * 64)) == (0, "g" * 64, "b" * 64)
    assert session.xid(1, "payment").bqual == ""


@pytest.mark.parametrize(
    "parts",
    [
        (-1, "g", ""), (1 << 31, "g", ""), (1, "", ""), (1, "g" * 65, ""), (1, "g", "b" * 65),
        (1, "ä", ""), (1, "g", "\n"), ("1", "g", ""), (1, b"g", ""), (1, "g", None),
    ],
)  # fmt: skip
def test_a_part_that_is_out_of_its_bounds_is_refused(parts: tuple[Any, Any, Any]) -> None:
    session = Broker().session
    assert refused(session.xid, *parts) == "bad_field"
    assert refused(session.tpc_begin, parts) == "bad_field"


def test_what_is_not_an_xid_is_refused() -> None:
    assert refused(Broker().session.tpc_commit, 17) == "bad_field"


# -- in an event loop -----------------------------------------------------------------------------


def test_the_same_in_an_event_loop() -> None:
    broker = Broker(AsyncSession)

    async def run() -> None:
        session = broker.session
        await session.tpc_begin(session.xid(*XID))
        broker.work()
        await session.tpc_prepare()
        assert await session.tpc_commit() == TransactionResult(2, 70, 1)
        await session.tpc_begin(XID)
        await session.tpc_rollback()
        assert len(await session.tpc_recover()) == 1
        await session.tpc_forget(XID)

    asyncio.run(run())
    assert [each[0] for each in broker.asked] == ["prepare", "decide", "decide"]
