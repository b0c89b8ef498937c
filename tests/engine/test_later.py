"""zbroker/engine/later.py: each thing comes at its time, in the order in which it was put off."""

from __future__ import annotations

from zbroker.engine.later import Later


def test_each_thing_is_due_at_its_time() -> None:
    later: Later[str] = Later()
    assert later.due(10**9) == []
    later.put("second", 20)
    later.put("first", 10)
    later.put("third", 20)
    assert (later.next_wake_ms, len(later)) == (10, 3)
    assert later.due(9) == []
    assert later.due(10) == ["first"]
    assert later.next_wake_ms == 20
    assert later.due(25) == ["second", "third"]
    assert (later.next_wake_ms, len(later)) == (None, 0)


def test_what_is_put_off_again_while_it_is_done_waits_for_its_new_time() -> None:
    later: Later[str] = Later()
    later.put("read", 10)
    for what in later.due(10):
        later.put(what, 20)
    assert later.due(19) == []
    assert later.due(20) == ["read"]
