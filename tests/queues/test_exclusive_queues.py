"""zbroker/queues/exclusive_queues.py: queues of one session, or of one connection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import ANN, BOB, Bench, bench
from tests.queues.test_session_timeouts import MINE, MINUTE, OTHER, Kept, join, kept, logon
from tests.queues.test_transaction_commands import attach
from zbroker.log.format import KIND_WIRING
from zbroker.log.records import WIRING
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.transactions import DetachSession

LOCKED = "resource_locked"


def declare(at: Bench, rid: bytes = ANN, name: str = "new", **more: Any) -> Any:
    settings = {"topic": "nothing", "exclusive": True}
    return at.say(q.DeclareQueue(name, "d", settings, **more), rid)


def of_session(at: Kept) -> dict[str, Any]:
    return {"session": "bills", "epoch": at.epoch}


def mine() -> Kept:
    """A session of ann has the queue."""
    at = kept()
    assert declare(at, MINE, **of_session(at)).created
    return at


def there(at: Bench) -> bool:
    return "new" in at.manager.running


def commands(**more: Any) -> list[Any]:
    return [
        q.DeclareQueue("new", "d", {"topic": "nothing", "exclusive": True}, **more),
        q.DeclareQueue("new", "d", passive=True, **more),
        q.PurgeQueue("new", "d", **more),
        q.BindQueue("new", "amq.direct", "d", **more),
        q.UnbindQueue("new", "amq.direct", "d", **more),
        q.Consume("x", "new", "d", **more),
        q.DeleteQueue("new", "d", **more),
    ]


# -- of a connection --------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(7))
def test_another_connection_is_refused(number: int) -> None:
    at = bench()
    at.logon(BOB)
    assert declare(at).created
    command = commands()[number]
    assert at.say(command, BOB).code == LOCKED
    answer = at.say(command)
    # it is fed by a topic, so to bind it is refused for that
    assert getattr(answer, "code", "bad_queue") == "bad_queue"


def test_it_goes_with_its_connection() -> None:
    at = bench()
    declare(at)
    at.consume("new")
    at.logon(BOB)
    at.lose()
    assert not there(at)
    records = [WIRING.decode(one.body) for one in at.log if one.kind == KIND_WIRING]
    assert (records[-1].name, records[-1].definition) == ("new", None)


@pytest.mark.parametrize("how", [m.Logoff("bye"), None])
def test_however_that_ends(how: Any) -> None:
    at = bench()
    declare(at)
    if how is None:
        at.logon()  # another logon is another connection
    else:
        at.send(how)
    assert not there(at)


def test_it_does_not_go_with_another_one() -> None:
    at = bench()
    at.logon(BOB)
    declare(at)
    at.lose(BOB)
    at.pass_ms(1_000)
    assert there(at)


def test_a_connection_that_is_gone_when_it_lands_has_none() -> None:
    at = bench()
    at.holding = True
    declare(at)
    at.lose()
    at.holding = False
    at.land()
    assert not there(at)


def test_a_restart_ends_it() -> None:
    at = bench()
    declare(at)
    at.restart()
    assert not there(at)


def test_its_name_may_be_used_again() -> None:
    at = bench()
    at.logon(BOB)
    declare(at)
    at.lose()
    assert declare(at, BOB).created
    at.logon()
    assert declare(at).code == LOCKED


# -- of a session -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(7))
def test_only_its_session_may_use_it(number: int) -> None:
    at = mine()
    for rid in (ANN, BOB, OTHER):
        assert at.say(commands()[number], rid).code == LOCKED
    other = {"session": "other", "epoch": 1}
    assert at.say(commands(**other)[number], OTHER).code == LOCKED
    assert at.say(commands(**of_session(at))[number], BOB).code == LOCKED, "of another principal"
    answer = at.say(commands(**of_session(at))[number], OTHER)
    assert getattr(answer, "code", "bad_queue") == "bad_queue"


def test_it_is_there_as_long_as_its_session_is_waited_for() -> None:
    at = mine()
    at.lose(MINE)
    at.lose()
    at.pass_ms(MINUTE - 1)
    assert there(at)
    at.pass_ms(1)
    at.pass_ms(1)
    assert not there(at)


def test_the_same_program_keeps_it_in_a_higher_epoch() -> None:
    at = mine()
    at.lose()
    at.logon()
    at.epoch = attach(at, timeout_ms=MINUTE, holder="me").epoch
    assert there(at)
    assert not declare(at, MINE, **of_session(at)).created


def test_another_program_that_attaches_the_session_has_not() -> None:
    at = mine()
    logon(at, b"\0ann4")
    attach(at, rid=b"\0ann4", timeout_ms=MINUTE, holder="other")
    assert not there(at)


def test_it_goes_when_its_session_is_detached() -> None:
    at = mine()
    at.say(DetachSession("bills", at.epoch, cid="d"))
    assert not there(at)


def test_after_a_restart_its_session_is_waited_for() -> None:
    at = mine()
    at.restart()
    assert there(at)
    logon(at, OTHER)
    assert at.say(commands()[0], OTHER).code == LOCKED
    at.pass_ms(MINUTE)
    at.pass_ms(1)
    assert not there(at)


def test_after_a_restart_its_program_has_it_again() -> None:
    at = mine()
    at.restart()
    at.logon()
    logon(at, MINE)
    at.epoch = attach(at, timeout_ms=MINUTE, holder="me").epoch
    assert not declare(at, MINE, **of_session(at)).created
    join(at, queue="new", sid="n")
    at.pass_ms(10 * MINUTE)
    assert there(at)


def test_a_session_that_is_not_attached_owns_none() -> None:
    at = kept()
    assert declare(at, MINE, session="bills", epoch=1).code == "session_fenced"
    assert declare(at, MINE, session="none", epoch=1).code == "session_fenced"


# -- operators --------------------------------------------------------------------------------


def test_operators_declare_none_and_alter_none_to_be_so() -> None:
    at = bench()
    refused = at.ask(s.Define(0, "create", "new", {"topic": "t", "exclusive": True}))
    assert (refused.code, "client" in refused.reason) == ("bad_queue", True)
    at.ask(s.Define(0, "create", "new", {"topic": "t"}))
    assert at.ask(s.Define(0, "alter", "new", {"exclusive": True})).code == "bad_queue"


def test_operators_alter_and_delete_it() -> None:
    at = mine()
    assert at.ask(s.Define(0, "alter", "new", {"lease": "5s"})).code == ""
    assert at.say(commands()[1], OTHER).code == LOCKED, "it has its owner still"
    assert at.ask(s.Define(0, "delete", "new")).code == ""
    assert not there(at)
