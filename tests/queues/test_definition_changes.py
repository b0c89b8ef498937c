"""zbroker/queues/definition_changes.py: records of definitions, one change of a name at a time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from tests.queues.bench import Bench, bench, code_of, work
from zbroker.config import RecordConfig
from zbroker.log.records import DefinitionRecord
from zbroker.queues import definition_changes
from zbroker.queues.core import NO_LINKS
from zbroker.queues.definition_changes import DefinitionChanges
from zbroker.recording import Recording


def _changes(at: Bench) -> DefinitionChanges:
    core = at.core
    return DefinitionChanges(core.shared, at.record, NO_LINKS, core._scopes)


def _commit(at: Bench, changes: DefinitionChanges, made: Any) -> list[tuple[str, str, int]]:
    done: list[tuple[str, str, int]] = []
    changes.commit("new", made, lambda *what: done.append(what))
    at.run()
    return done


def test_a_name_that_is_known_is_used_again_when_there_may_be_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = bench(work())
    changes = _changes(at)
    _commit(at, changes, [changes.created(work("new"), "admin", None)])
    _commit(at, changes, changes.deleted(at.one("new"), "admin"))
    monkeypatch.setattr(definition_changes, "QUEUES_MAX", 2)
    changes.check_new("new")
    assert code_of(lambda: changes.check_new("other")) == "too_many"


def test_a_queue_whose_topic_is_recorded_no_more_keeps_no_other_from_being_made() -> None:
    at = bench(work("old", "gone"), record=Recording([RecordConfig("t")]))
    changes = _changes(at)
    changes.check(work("new", "t"))
    assert code_of(lambda: changes.check(work("other", "gone"))) == "bad_queue"


def test_it_is_called_once_with_a_refusal_of_any_of_the_records() -> None:
    at = bench()
    at.holding = True
    changes = _changes(at)
    record = DefinitionRecord("new", 1, "admin", definition=to_builtins(work("new")))
    other = DefinitionRecord("new", 1, "admin", definition=to_builtins(work("new")))
    done = _commit(at, changes, [record, other])
    assert code_of(lambda: changes.check_idle("new")) == "not_ready"
    at.refuse("too_large", 1)
    assert done == []
    at.land()
    assert [one[:2] for one in done] == [("too_large", "no")]
    changes.check_idle("new")


def test_a_queue_of_the_config_that_is_on_its_way_is_not_made_twice() -> None:
    at = Bench(work(), welcome=False)
    at.holding = True
    at.welcome()
    changes = _changes(at)
    assert code_of(lambda: changes.check_idle("q")) == "not_ready"
    at.land()
    changes.check_idle("q")


def test_an_operator_who_alters_a_queue_does_not_take_it_over() -> None:
    at = bench(work())
    changes = _changes(at)
    _commit(at, changes, [changes.created(work("new"), "client:ann", None)])
    assert definition_changes.kept_source(at.one("new")) == "client:ann"
    assert definition_changes.kept_source(at.one("q")) == "admin"
