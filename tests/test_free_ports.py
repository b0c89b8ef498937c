"""Ports for listeners that do not listen yet."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from zbroker import free_ports

GIVES_ONE = "from zbroker.free_ports import free_ports; print(*free_ports(1), flush=True); input()"


def test_none_is_given_twice() -> None:
    """Listeners of several instances get theirs one instance after the other, before any begins."""
    given = [port for _ in range(free_ports.CLAIMS_MAX // 5) for port in free_ports.free_ports(5)]
    assert len({*given}) == len(given)


def test_they_do_not_run_out() -> None:
    for _ in range(200):
        assert len({*free_ports.free_ports(100)}) == 100
    assert len(free_ports._claims) <= free_ports.CLAIMS_MAX


def test_what_another_process_was_given_is_not_given_while_that_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its broker does not listen yet: one of the two would not start."""
    command = [sys.executable, "-c", GIVES_ONE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        port, [next_one] = int(other.stdout.readline()), free_ports.free_ports(1)
        free_ports._claims.pop().close()
        choices = iter((port, next_one))
        monkeypatch.setattr(random, "choice", lambda _: next(choices))
        assert free_ports.free_ports(1) == [next_one]
        other.communicate("\n")
    monkeypatch.setattr(random, "choice", lambda _: port)
    assert free_ports.free_ports(1) == [port]


def test_the_end_of_a_process_is_quiet() -> None:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", GIVES_ONE]
    done = subprocess.run(command, input="\n", capture_output=True, text=True, check=True)
    assert done.stderr == ""
