"""zbroker/ingest/stage_commits.py: who may commit and abort what, and how much at once."""

from __future__ import annotations

import msgspec
import pytest

from tests.ingest.rig import item
from tests.ingest.test_authorization import ANN, BOB, PEOPLE, logon, rules
from tests.ingest.test_core import A, B, Bench, error
from zbroker.engine.effects import Answer, Say
from zbroker.engine.events import Commands
from zbroker.ingest.stage_commits import OF_ONE_MAX
from zbroker.server.peers import Received
from zbroker.wire import messages as m
from zbroker.wire.stages import (
    BODY_MAX_BYTES,
    STAGES_MAX,
    AbortStaged,
    AbortStages,
    CommitStaged,
    CommitStages,
    Committed,
    StagesDone,
)

FEED = """
[[role.feed.allow]]
actions = ["publish"]
topics = ["open", "more"]
[[role.feed.allow]]
actions = ["publish"]
topics = ["half"]
filter = "/n < 5"
"""
pack = msgspec.msgpack.encode


@pytest.fixture
def listener() -> Bench:
    made = Bench(access=rules(PEOPLE + FEED), clients=100)
    made.turn(logon("ann", ANN))
    return made


def commit(body: object = None, rid: bytes = A, key: str = ANN, **more: object) -> Received:
    stages = [["one", 2]] if body is None else body
    data = stages if isinstance(stages, bytes) else pack(stages)
    return item(rid, CommitStaged("app", 7, "c"), data, key=key, **more)  # type: ignore[arg-type]


def asked(listener: Bench, command: Received) -> CommitStages | AbortStages:
    [effect] = listener.core.handle(Commands([command]), listener.now)
    assert isinstance(effect, Say)
    assert isinstance(effect.message, CommitStages | AbortStages)
    return effect.message


def test_without_rights_to_look_at_it_goes_straight_to_the_journal() -> None:
    listener = Bench()
    listener.logon()
    ask = asked(listener, item(A, CommitStaged("app", 7, "c"), pack([["one", 2]])))
    assert isinstance(ask, CommitStages)
    assert (ask.principal, ask.asks_topics) == ("", False)
    done = StagesDone(ask.cid, 40, 2)
    assert listener.core.handle(done, listener.now) == [Answer(A, Committed("c", 40, 2))]
    assert listener.core.handle(done, listener.now) == [], "once"


def test_who_may_publish_on_all_of_it_commits_it(listener: Bench) -> None:
    ask = asked(listener, commit())
    assert isinstance(ask, CommitStages)
    assert (ask.principal, ask.asks_topics) == ("ann", True)
    [again] = listener.core.handle(StagesDone(ask.cid, topics=["open", "more"]), listener.now)
    assert isinstance(again, Say)
    assert isinstance(again.message, CommitStages)
    assert (again.message.principal, again.message.asks_topics) == ("ann", False)
    done = StagesDone(again.message.cid, 40, 2)
    assert listener.core.handle(done, listener.now) == [Answer(A, Committed("c", 40, 2))]


@pytest.mark.parametrize("topic", ["shut", "half"])
def test_who_may_not_publish_on_some_of_it_shows_nothing(listener: Bench, topic: str) -> None:
    ask = asked(listener, commit())
    [refused] = listener.core.handle(StagesDone(ask.cid, topics=["open", topic]), listener.now)
    assert isinstance(refused, Answer)
    assert isinstance(refused.message, m.Error)
    assert (refused.message.code, refused.message.cid) == ("not_entitled", "c")


def test_what_counts_are_the_rights_as_they_are_when_it_is_shown(listener: Bench) -> None:
    ask = asked(listener, commit())
    listener.entitle(rules(PEOPLE + FEED.replace('"open", ', "")))
    [refused] = listener.core.handle(StagesDone(ask.cid, topics=["open"]), listener.now)
    assert isinstance(refused, Answer)
    assert isinstance(refused.message, m.Error)
    assert refused.message.code == "not_entitled"


@pytest.mark.parametrize("command", [CommitStaged("app", 2**63 - 1, "c"), AbortStaged("c")])
def test_who_may_publish_nothing_is_refused_before_anything_is_decoded(
    listener: Bench, command: m.ClientCommand
) -> None:
    listener.turn(logon("bob", BOB, B))
    body = b"\xdd\xff\xff\xff\xff" + bytes(100)
    assert error(listener.turn(item(B, command, body, key=BOB))).code == "not_entitled"


@pytest.mark.parametrize("command", [CommitStaged("app", 1, "c"), AbortStaged("c")])
def test_a_body_says_how_much_it_names_and_is_refused_by_that(
    listener: Bench, command: m.ClientCommand
) -> None:
    many = b"\xdd" + (STAGES_MAX + 1).to_bytes(4, "big")
    for body in (many, bytes(BODY_MAX_BYTES + 1)):
        assert error(listener.turn(item(A, command, body, key=ANN))).code == "too_large"
    wrong = [[1], ["x" * 65], [["", 1]], [["x", -1]]]
    for body in (b"\xdc\xff\xff", None, *map(pack, wrong)):
        assert error(listener.turn(item(A, command, body, key=ANN))).code == "bad_frame"


def test_an_abort_is_of_what_the_principal_staged(listener: Bench) -> None:
    ask = asked(listener, item(A, AbortStaged("c"), pack(["one", "two"]), key=ANN))
    assert isinstance(ask, AbortStages)
    assert (ask.principal, ask.stages) == ("ann", ["one", "two"])


def test_one_connection_has_so_many_of_them_under_way(listener: Bench) -> None:
    asks = [asked(listener, commit()) for _ in range(OF_ONE_MAX)]
    assert error(listener.turn(commit())).code == "not_ready"
    listener.core.handle(StagesDone(asks[0].cid, 1, 1), listener.now)
    asked(listener, commit())


def test_who_is_gone_is_not_answered(listener: Bench) -> None:
    ask = asked(listener, commit())
    listener.gone(A)
    assert listener.core.handle(StagesDone(ask.cid, topics=["open"]), listener.now) == []


@pytest.mark.parametrize(("topic", "code"), [("half", "not_entitled"), ("shut", "not_entitled")])
def test_what_depends_on_content_cannot_be_staged(listener: Bench, topic: str, code: str) -> None:
    """It is not looked at again when it is shown, and the rules may be others then."""
    publish = m.Publish(1, topic, count=1, prev=0, stage="one")
    assert error(listener.turn(item(A, publish, pack([b'{"n": 1}']), key=ANN))).code == code
    listener.turn(
        item(A, m.Publish(1, "open", count=1, prev=0, stage="one"), pack([b"x"]), key=ANN)
    )
    assert len(listener.appended) == 1
