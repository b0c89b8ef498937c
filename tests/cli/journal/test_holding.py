"""zbroker/cli/journal/holders.py and admin_actions.py: what is asked of an instance over time."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.cli.journal.admin_actions import follow
from zbroker.cli.journal.holders import RENEW_MS, TTL_S, hold
from zbroker.cli.progress import silent
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError


class Clock:
    now = 0

    def wall_ns(self) -> int:
        return 0

    def mono_ms(self) -> int:
        return self.now


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(Admin, "tell", lambda _self, _path, body: found.append(body) or {})
    return found


def test_a_hold_is_renewed_long_before_it_ends(reported: list[dict[str, Any]]) -> None:
    clock = Clock()
    with hold(Admin("x"), "export to DIR", 7, clock) as renew:
        for clock.now in range(0, 3 * RENEW_MS, 1_000):
            renew()
    assert [body["ttl_s"] for body in reported] == [TTL_S, TTL_S, TTL_S, 0]
    assert {body["position"] for body in reported} == {7}
    assert len({body["who"] for body in reported}) == 1
    assert RENEW_MS * 3 <= TTL_S * 1_000


def test_a_hold_ends_with_a_failure_too(reported: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeError), hold(Admin("x"), "export", 7, Clock()):
        raise RuntimeError
    assert reported[-1]["ttl_s"] == 0


def test_without_an_instance_nothing_is_held() -> None:
    with hold(None, "export", 7) as renew:
        renew()


def test_a_person_may_stop_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """The action goes on, and that is what is said."""
    monkeypatch.setattr(Admin, "ask", lambda *_: {"result": "running", "action": "archive"})

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(ZBrokerError, match="action 5 goes on in the background"):
        follow(Admin("x"), "5", silent, interrupt)
