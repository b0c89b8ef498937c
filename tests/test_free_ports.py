"""Ports for listeners that do not listen yet."""

from __future__ import annotations

from zbroker import free_ports


def test_none_is_given_twice() -> None:
    """Listeners of several instances get theirs one instance after the other, before any begins."""
    free_ports._given.clear()
    given = [port for _ in range(300) for port in free_ports.free_ports(5)]
    assert len({*given}) == len(given)


def test_they_do_not_run_out() -> None:
    for _ in range(200):
        assert len({*free_ports.free_ports(100)}) == 100
