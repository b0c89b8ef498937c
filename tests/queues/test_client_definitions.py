"""zbroker/queues/client_definitions.py: clients declare, delete and purge, by their rights."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import msgpack

from tests.queues.bench import ANN, BOB, KEY_A, KEY_B, Bench, bench, replayable, work
from zbroker.access.core import Access
from zbroker.access.format import parse
from zbroker.config import RecordConfig
from zbroker.log.format import KIND_DEFINITION, KIND_PURGE, KIND_WIRING
from zbroker.log.records import WIRING
from zbroker.queues import definition_changes
from zbroker.recording import Recording
from zbroker.server.budgets import Budget
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.replicas import Replicated

SETTINGS: dict[str, Any] = {"topic": "t", "lease": "5s", "max_deliveries": 3}


def declare(at: Bench, queue: str = "new", rid: bytes = ANN, **settings: Any) -> Any:
    """The answer, if there is one by now."""
    return at.say(q.DeclareQueue(queue, "d", settings or SETTINGS), rid)


def look(at: Bench, queue: str = "new", rid: bytes = ANN) -> Any:
    at.send(q.DeclareQueue(queue, "d", passive=True), rid=rid)
    return at.last()


def delete(at: Bench, queue: str = "new", rid: bytes = ANN, **more: Any) -> Any:
    return at.say(q.DeleteQueue(queue, "d", **more), rid)


def purge(at: Bench, queue: str = "new", rid: bytes = ANN, **more: Any) -> Any:
    return at.say(q.PurgeQueue(queue, "d", **more), rid)


def grants(*more: str, budget: Budget | None = None, **settings: Any) -> Bench:
    """One with ann, who may configure app.*; more: of her role, as in the access file."""
    text = (
        f'[principal.ann]\nkeys = ["{KEY_A}"]\nroles = ["r"]\n'
        f'[principal.bob]\nkeys = ["{KEY_B}"]\nroles = ["r"]\n'
        '[[role.r.allow]]\nactions = ["configure"]\ntopics = ["app.*"]\n'
    )
    at = Bench(work(), access=_access(text, *more), **{"budget": budget or Budget(), **settings})
    at.logon(key=KEY_A)
    at.logon(BOB, key=KEY_B)
    return at


def _access(text: str, *more: str) -> Access:
    return parse(text + "".join(f"[[role.r.allow]]\n{one}\n" for one in more), "access.toml")


REPLAY = 'actions = ["replay"]\ntopics = ["t"]'


# -- declare ----------------------------------------------------------------------------------


def test_a_queue_is_declared_once_it_is_durable() -> None:
    at = bench()
    at.holding = True
    assert declare(at) is None
    assert "new" not in at.manager.running
    at.land()
    assert at.last() == q.QueueDeclared("new", True, 1, 0, 0, "d", at.last().reading)
    config = at.one("new").definition.config
    assert (config.topic, config.lease, config.max_deliveries) == ("t", 5_000, 3)
    assert at.one("new").definition.source == "client:ann"


def test_what_is_in_the_log_enters_it() -> None:
    at = bench()
    positions = at.many(3)
    declare(at)
    assert at.here("new") == positions
    at.consume("new")
    assert at.got() == positions
    assert look(at) == q.QueueDeclared("new", False, 1, 3, 1, "d")


def test_a_queue_may_begin_at_a_place_that_is_looked_up() -> None:
    at = bench()
    first, *rest = at.many(3)
    declare(at, topic="t", recovery_point=at.bookmark(first))
    assert at.here("new") == rest
    declare(at, "now", topic="t", recovery_point="now")
    assert at.here("now") == []


def test_a_place_that_is_not_in_the_log_is_refused() -> None:
    at = bench()
    assert declare(at, topic="t", recovery_point="5|5|").code == "bookmark_not_found"
    assert "new" not in at.manager.running
    assert declare(at).created


def test_declared_again_it_is_there_already() -> None:
    at = bench()
    declare(at)
    count = len(at.log)
    again = declare(at, topic="t", lease=5_000, max_deliveries=3, regex=False, dead_letter="")
    assert (again.created, again.declaration) == (False, 1)
    assert len(at.log) == count, "nothing was written"


def test_the_topic_is_by_default_the_name() -> None:
    at = bench()
    assert declare(at, lease=1_000).created
    assert not declare(at, lease=1_000, topic="new").created
    assert at.one("new").definition.topics("new")


def test_other_settings_are_refused_with_what_differs() -> None:
    at = bench()
    declare(at)
    refused = declare(at, topic="t", lease="6s", dead_letter="dead")
    assert refused.code == "queue_exists"
    for part in ("`lease` 5000, not 6000", "`max_deliveries` 3, not 0", "`dead_letter` '', not 'd"):
        assert part in refused.reason
    assert "topic" not in refused.reason
    assert at.one("new").definition.config.lease == 5_000


def test_a_long_setting_is_named_in_part() -> None:
    at = bench()
    declare(at)
    refused = declare(at, **{**SETTINGS, "filter": " or ".join(["/a > 0"] * 100)})
    assert refused.code == "queue_exists"
    assert len(refused.reason) < 300


def test_a_queue_of_the_config_is_declared_with_its_settings_alone() -> None:
    at = bench(work(max_deliveries=2))
    assert not declare(at, "q", topic="t", max_deliveries=2).created
    assert declare(at, "q", topic="t").code == "queue_exists"


@pytest.mark.parametrize(
    ("settings", "code", "named"),
    [
        ({"leese": 5}, "bad_queue", "leese"),
        ({"lease": "soon"}, "bad_queue", "lease"),
        ({"lease": -1}, "bad_queue", "lease"),
        ({"lease": 1 << 62}, "bad_queue", "lease"),
        ({"topic": 5}, "bad_queue", "topic"),
        ({"topic": "\n"}, "bad_queue", "topic"),
        ({"topic": "(", "regex": True}, "bad_queue", "topic"),
        ({"regex": "yes", "topic": "t"}, "bad_queue", "regex"),
        ({"filter": "/a >"}, "bad_queue", "filter"),
        ({"dead_letter": "new"}, "bad_queue", "dead letters"),
        ({"dead_letter": 1}, "bad_queue", "dead_letter"),
        ({"kind": "replayable", "lease": "1s"}, "bad_queue", "lease"),
        ({"recovery_point": "yesterday"}, "bad_queue", "recovery_point"),
        ({"name": "other"}, "bad_field", "settings"),
        ({"topic": "gone"}, "bad_queue", "topic"),
        ({"retry_delay": ["1s"] * 101}, "bad_field", "settings"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    settings: dict[str, Any], code: str, named: str
) -> None:
    at = bench(record=Recording([RecordConfig("t"), RecordConfig("new")]))
    refused = declare(at, **settings)
    assert isinstance(refused, m.Error)
    assert (refused.code, refused.cid) == (code, "d")
    assert named in refused.reason
    assert "new" not in at.manager.running


@pytest.mark.parametrize("name", ["$new", "a\nb", "é" * 200])
def test_a_name_that_no_queue_has_is_refused(name: str) -> None:
    assert declare(bench(), name, topic="t").code == "bad_queue"


HOSTILE: list[dict[str, Any]] = [
    {"settings": {f"k{n}": 1 for n in range(65)}},
    {"settings": {"topic": {"a": 1}}},
    {"settings": {"topic": None}},
    {"settings": {"topic": b"t"}},
    {"settings": {"retry_delay": [[1]]}},
    {"settings": {5: 5}},
    {"settings": []},
    {"passive": 1},
    {"queue": "q" * 256},
    {"queue": 5},
]


@pytest.mark.parametrize("more", HOSTILE)
def test_what_is_no_declaration_is_refused_as_a_frame(more: dict[str, Any]) -> None:
    at = bench()
    at.frames([[msgpack.encode({"cmd": "declare_queue", "queue": "new", "cid": "c", **more})]])
    assert at.errors() == [("bad_field", "c", None)]


@pytest.mark.parametrize("cmd", ["delete_queue", "purge_queue"])
@pytest.mark.parametrize("more", [{"declaration": -1}, {"declaration": "1"}, {"queue": None}])
def test_likewise_of_the_others(cmd: str, more: dict[str, Any]) -> None:
    at = bench()
    at.frames([[msgpack.encode({"cmd": cmd, "queue": "q", "cid": "c", **more})]])
    assert at.errors() == [("bad_field", "c", None)]


def test_passive_only_looks() -> None:
    at = bench()
    assert look(at).code == "unknown_queue"
    at.send(q.DeclareQueue("q", "c", {"lease": 1}, passive=True))
    assert at.last().code == "bad_field"
    at.many(2)
    assert look(at, "q") == q.QueueDeclared("q", False, 1, 2, 0, "d")


def test_what_was_not_read_yet_is_said() -> None:
    at = bench()
    at.many(2)
    at.reading = False
    answer = declare(at)
    assert (answer.created, answer.messages, answer.reading) == (True, 0, True)
    at.fold()
    at.run()
    assert (look(at).messages, look(at).reading) == (2, False)


def test_two_declare_it_at_once() -> None:
    at = bench()
    at.logon(BOB)
    at.holding = True
    declare(at)
    assert declare(at, "new", BOB, **SETTINGS).code == "not_ready"
    at.land()
    assert not declare(at, "new", BOB, **SETTINGS).created
    assert [one.created for one in at.of(q.QueueDeclared)] == [True, False]


def test_two_that_look_something_up_make_one_queue() -> None:
    at = bench()
    at.logon(BOB)
    [position] = at.many(1)
    settings = {"topic": "t", "recovery_point": at.bookmark(position)}
    at.silent = True
    declare(at, "new", ANN, **settings)
    declare(at, "new", BOB, **settings)
    at.answer()
    assert [one.created for one in at.of(q.QueueDeclared)] == [True]
    assert at.codes() == ["not_ready"]


def test_a_journal_that_does_not_answer_is_not_ready() -> None:
    at = bench()
    at.silent = True
    declare(at, topic="t", recovery_point="5|5|")
    at.pass_ms(10_000)
    assert at.codes() == ["not_ready"]


def test_a_client_that_is_gone_is_not_answered() -> None:
    at = bench()
    [position] = at.many(1)
    at.silent = True
    declare(at, topic="t", recovery_point=at.bookmark(position))
    at.lose()
    at.answer()
    assert "new" not in at.manager.running
    at.logon()
    at.holding = True
    declare(at)
    at.lose()
    at.land()
    assert at.of(q.QueueDeclared) == []
    assert "new" in at.manager.running, "it was asked for, and was on its way"


def test_a_declaration_that_is_refused_says_so() -> None:
    at = bench()
    at.holding = True
    declare(at)
    at.refuse("too_large")
    assert at.codes() == ["too_large"]
    assert "new" not in at.manager.running
    declare(at)
    at.land()
    assert at.last().created


def test_it_survives_a_restart_and_is_there_already() -> None:
    at = bench()
    declare(at)
    positions = at.many(2)
    at.restart()
    at.logon()
    assert at.here("new") == positions
    again = declare(at)
    assert (again.created, again.declaration, again.messages) == (False, 1, 2)


def test_before_the_log_was_heard_of_nothing_is_declared() -> None:
    at = bench(welcome=False)
    at.send(q.DeclareQueue("new", "d", SETTINGS))
    assert "not_logged_on" in at.codes(), "no one can log on yet"


# -- delete -----------------------------------------------------------------------------------


def test_a_deleted_queue_is_gone_with_its_consumers() -> None:
    at = bench()
    at.logon(BOB)
    declare(at)
    positions = at.many(3)
    at.consume("new", "s", BOB)
    at.holding = True
    assert delete(at) is None
    assert "new" in at.manager.running
    at.land()
    assert at.of(q.QueueChanged) == [q.QueueChanged("new", 3, "d")]
    assert [one.sid for one in at.of(m.Error, BOB) if one.code == "unknown_queue"] == ["s"]
    at.restart()
    assert "new" not in at.manager.running
    assert at.here() == positions, "the other queue of that topic has them"


def test_a_queue_that_is_not_there_is_unknown() -> None:
    at = bench()
    assert delete(at).code == "unknown_queue"
    declare(at)
    delete(at)
    assert delete(at).code == "unknown_queue"
    assert purge(at).code == "unknown_queue"


def test_a_queue_that_was_made_since_is_another_one() -> None:
    at = bench()
    first = declare(at).declaration
    delete(at, declaration=first)
    second = declare(at).declaration
    assert first != second
    at.many(1)
    assert delete(at, declaration=first).code == "unknown_queue"
    assert purge(at, declaration=first).code == "unknown_queue"
    assert len(at.here("new")) == 1
    assert purge(at, declaration=second).count == 1
    assert isinstance(delete(at, declaration=second), q.QueueChanged)


def test_acknowledged_messages_do_not_come_back_with_a_queue_of_that_name() -> None:
    at = bench()
    declare(at, topic="t", recovery_point="now")
    at.many(2)
    delete(at)
    assert declare(at, topic="t", recovery_point="now").messages == 0
    assert at.here("new") == []


def test_a_queue_of_the_config_stays() -> None:
    at = bench()
    refused = delete(at, "q")
    assert refused.code == "bad_queue"
    assert "config" in refused.reason
    assert "[[queue]]" in refused.hint


def test_only_an_unused_one() -> None:
    at = bench()
    declare(at)
    at.consume("new")
    refused = delete(at, if_unused=True)
    assert refused.code == "queue_in_use"
    assert "1 consumers" in refused.reason
    at.send(q.Cancel("s", "x"))
    assert isinstance(delete(at, if_unused=True), q.QueueChanged)


def test_only_an_empty_one() -> None:
    at = bench()
    declare(at)
    [position] = at.many(1)
    assert delete(at, if_empty=True).code == "queue_in_use"
    at.consume("new")
    assert delete(at, if_empty=True).code == "queue_in_use", "it is leased"
    at.ack(position)
    delete(at, if_empty=True)
    assert at.of(q.QueueChanged) == [q.QueueChanged("new", 0, "d")]


def test_whether_one_is_empty_is_not_known_before_it_was_read() -> None:
    at = bench()
    at.many(1)
    at.reading = False
    declare(at)
    assert delete(at, if_empty=True).code == "not_ready"
    assert purge(at).code == "not_ready"
    assert isinstance(delete(at), q.QueueChanged)


def test_one_change_at_a_time() -> None:
    at = bench()
    declare(at)
    at.holding = True
    delete(at)
    assert delete(at).code == "not_ready"
    assert declare(at).code == "not_ready"
    assert at.ask(s.Define(7, "alter", "new", {"lease": "1s"})).code == "not_ready"
    at.land()
    assert isinstance(at.last(), q.QueueChanged)


def test_a_delete_that_is_refused_changes_nothing() -> None:
    at = bench()
    declare(at)
    at.holding = True
    delete(at)
    at.refuse("too_large")
    assert at.codes() == ["too_large"]
    assert look(at).declaration == 1


# -- purge ------------------------------------------------------------------------------------


def test_a_purge_takes_what_is_ready_and_not_what_is_leased() -> None:
    at = bench()
    declare(at)
    leased, *rest = at.many(4)
    at.consume("new", backlog=1)
    at.holding = True
    assert purge(at) is None
    at.land()
    assert at.last() == q.QueueChanged("new", len(rest), "d")
    assert at.here("new") == [leased]
    assert len(at.here()) == 4
    assert purge(at).count == 0
    at.restart()
    assert at.here("new") == [leased]


def test_a_purge_that_is_refused_says_so() -> None:
    at = bench()
    at.many(2)
    at.holding = True
    purge(at, "q")
    at.refuse("too_large")
    assert at.codes() == ["too_large"]
    assert len(at.here()) == 2


def test_a_replayable_queue_is_purged_up_to_now() -> None:
    at = bench(replayable())
    assert purge(at, "q").count == 0
    at.many(3)
    at.holding = True
    assert purge(at, "q") is None
    assert at.kinds() == [KIND_PURGE]
    at.land()
    assert at.of(q.QueueChanged)[-1].count == 3
    assert at.here() == []


def test_a_purge_that_meets_a_delete_is_answered() -> None:
    at = bench()
    declare(at)
    at.many(2)
    at.holding = True
    delete(at)
    at.send(q.PurgeQueue("new", "p"))
    at.land()
    answered = {one.cid for one in (*at.of(q.QueueChanged), *at.of(m.Error))}
    assert answered == {"d", "p"}


# -- replicated queues ------------------------------------------------------------------------


def test_a_replicated_queue_is_answered_when_other_hosts_have_it() -> None:
    at = bench(sync=True)
    declare(at, topic="t", scope="distributed")
    assert at.of(q.QueueDeclared) == []
    assert KIND_DEFINITION in [one.kind for one in at.log]
    _replicated(at)
    assert at.of(q.QueueDeclared)[-1].created
    at.many(1)
    purge(at)
    assert at.of(q.QueueChanged) == []
    _replicated(at)
    assert at.of(q.QueueChanged)[-1].count == 1
    delete(at)
    assert len(at.of(q.QueueChanged)) == 1
    _replicated(at)
    assert len(at.of(q.QueueChanged)) == 2
    assert "new" not in at.manager.running


def _replicated(at: Bench) -> None:
    at.turn.hear(Replicated(at.journal, at.position, 1))
    at.run()


def test_an_operator_alters_and_deletes_what_a_client_made() -> None:
    at = bench()
    for scope in ("local", "distributed"):
        declare(at, topic="t", scope=scope)
        assert at.ask(s.Define(7, "alter", "new", {"lease": "1s"})).code == ""
        assert at.one("new").definition.config.lease == 1_000
        assert at.one("new").definition.source == "client:ann"
        assert declare(at, topic="t", scope=scope).code == "queue_exists"
        assert at.ask(s.Define(7, "delete", "new")).code == ""
        assert "new" not in at.manager.running


def test_the_source_is_reported() -> None:
    at = bench()
    declare(at)
    rows = {row.name: row.source for row in at.ask(s.AskQueues(7)).rows}
    assert rows == {"q": "config", "new": "client:ann"}


# -- rights -----------------------------------------------------------------------------------


def test_a_queue_that_one_may_configure_and_replay_is_declared() -> None:
    at = grants(REPLAY)
    assert declare(at, "app.a", topic="t").created
    assert declare(at, "other", topic="t").code == "not_entitled"
    assert isinstance(delete(at, "app.a"), q.QueueChanged)


@pytest.mark.parametrize(
    ("settings", "more", "code"),
    [
        ({"topic": "t"}, (), "not_entitled"),
        ({"topic": "u"}, (REPLAY,), "not_entitled"),
        ({"lease": 1}, (REPLAY,), "not_entitled"),  # the topic is its name
        ({"topic": "t"}, ('actions = ["subscribe"]',), "not_entitled"),
        ({"topic": "t"}, ('actions = ["replay"]\nfilter = "/a = 1"',), "not_entitled"),
        ({"topic": "t", "regex": True}, (REPLAY,), "not_entitled"),
        ({"topic": "t", "regex": 1}, (REPLAY,), "not_entitled"),
        ({"topic": "t", "regex": True}, ('actions = ["replay"]',), ""),
        ({"topic": "t", "dead_letter": "d"}, (REPLAY,), "not_entitled"),
        ({"topic": "t", "dead_letter": "d"}, ('actions = ["replay", "publish"]',), ""),
        (
            {"topic": "t", "dead_letter": "d"},
            (REPLAY, 'actions = ["publish"]\nfilter = "/a = 1"'),
            "not_entitled",
        ),
        ({"topic": "t", "leese": 1}, (), "not_entitled"),  # before anything else is looked at
        ({"topic": "t", "recovery_point": "5|5|"}, (), "not_entitled"),
    ],
)
def test_declaring_needs_the_rights_to_what_enters_and_what_is_given_up(
    settings: dict[str, Any], more: tuple[str, ...], code: str
) -> None:
    at = grants(*more)
    answer = declare(at, "app.a", **settings)
    assert getattr(answer, "code", "") == code


def test_without_the_right_it_is_the_same_whether_there_is_a_queue() -> None:
    at = grants(REPLAY)
    for queue in ("q", "missing"):
        for found in (declare(at, queue, topic="t"), look(at, queue), delete(at, queue),
                      purge(at, queue)):  # fmt: skip
            assert found.code == "not_entitled"
            assert found.reason == f"'ann' may not configure {queue!r}"


def test_a_right_to_a_part_of_a_queue_is_none() -> None:
    at = grants(REPLAY)
    text = f'[principal.ann]\nkeys = ["{KEY_A}"]\nroles = ["r"]\n'
    text += '[[role.r.allow]]\nactions = ["configure", "replay"]\n'
    text += '[[role.r.deny]]\nactions = ["*"]\ntopics = ["app.a"]\nfilter = "/a = 1"\n'
    at.core.connections.access = parse(text, "access.toml")
    assert declare(at, "app.a", topic="t").code == "not_entitled"
    assert declare(at, "app.b", topic="t").created


def test_who_consumes_a_queue_may_look_at_it() -> None:
    at = grants('actions = ["consume"]\ntopics = ["q"]')
    assert isinstance(look(at, "q"), q.QueueDeclared)
    assert delete(at, "q").code == "not_entitled"
    assert purge(at, "q").code == "not_entitled"


def test_a_right_that_is_revoked_during_a_lookup_counts_no_more() -> None:
    at = grants(REPLAY)
    [position] = at.many(1)
    at.silent = True
    declare(at, "app.a", topic="t", recovery_point=at.bookmark(position))
    text = f'[principal.ann]\nkeys = ["{KEY_A}"]\nroles = ["r"]\n[[role.r.allow]]\n{REPLAY}\n'
    at.core.connections.access = parse(text, "access.toml")
    at.answer()
    assert at.codes() == ["not_entitled"]
    assert "app.a" not in at.manager.running


def test_the_names_of_a_principal_are_bounded_also_those_of_deleted_queues() -> None:
    at = grants(REPLAY, budget=Budget(queues=2))
    declare(at, "app.a", topic="t")
    declare(at, "app.b", topic="t", scope="distributed")
    refused = declare(at, "app.c", topic="t")
    assert refused.code == "too_many"
    assert "queues_per_principal" in refused.hint
    assert not declare(at, "app.a", topic="t").created
    delete(at, "app.a")
    delete(at, "app.b")
    assert declare(at, "app.c", topic="t").code == "too_many"
    assert declare(at, "app.a", topic="t").created
    assert declare(at, "app.c", BOB, topic="t").created, "that is another one's"
    at.restart()
    at.logon(key=KEY_A)
    assert declare(at, "app.d", topic="t").code == "too_many"
    at.ask(s.Define(7, "delete", "app.a"))
    assert declare(at, "app.d", topic="t").created, "an operator made room"


def test_what_is_on_its_way_counts_too() -> None:
    at = grants(REPLAY, budget=Budget(queues=1))
    at.holding = True
    declare(at, "app.a", topic="t")
    assert declare(at, "app.b", topic="t").code == "too_many"
    at.refuse("too_large")
    declare(at, "app.b", topic="t")
    at.land()
    assert at.last().created


def test_an_instance_has_so_many_queues_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_changes, "QUEUES_MAX", 2)
    at = bench()
    at.holding = True
    declare(at)
    assert declare(at, "more", topic="t").code == "too_many"


def test_compiling_is_of_the_budget_of_the_principal() -> None:
    at = grants('actions = ["replay"]', budget=Budget(compile_ms=1))
    for number in range(20):
        declare(at, f"app.{number}", topic=f"(a|b){{{number}}}" + "x" * 200, regex=True)
    assert "too_many" in at.codes()
    assert declare(at, "app.plain", topic="t").created, "there is nothing to compile"


def test_a_filter_that_takes_long_for_each_batch_is_refused() -> None:
    at = bench()
    dear = f"/a LIKE '{'x.' * 120}'"
    assert (
        at.ask(s.Define(7, "create", "of-an-operator", {"topic": "t", "filter": dear})).code == ""
    )
    for key in ("filter", "barrier"):
        refused = declare(at, topic="t", **{key: dear})
        assert refused.code == "bad_queue"
        assert f"`{key}`" in refused.reason
        assert "steps" in refused.reason
    assert "new" not in at.manager.running


def test_the_record_says_who_made_it() -> None:
    at = grants(REPLAY)
    declare(at, "app.a", topic="t")
    delete(at, "app.a", BOB)
    records = [WIRING.decode(one.body) for one in at.log if one.kind == KIND_WIRING]
    assert [one.source for one in records if one.name == "app.a"] == ["client:ann", "client:ann"]
