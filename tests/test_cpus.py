"""zbroker/cpus.py: a thread stays on one CPU for a while."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from zbroker import cpus
from zbroker.cpus import ANY_CPU, CpuChoice

WAIT_S = 30


def in_thread(do: Callable[[], Any]) -> Any:
    """What it returns in a thread of its own, whose CPUs nobody else has."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(do()))
    thread.start()
    thread.join(WAIT_S)
    [result] = results
    return result


def allowed() -> set[int]:
    return os.sched_getaffinity(0)


def after(*choices: int) -> set[int]:
    """What a thread may use after these."""

    def choose() -> set[int]:
        choice = CpuChoice()
        for cpu in choices:
            choice.run_on(cpu)
        return allowed()

    result: set[int] = in_thread(choose)
    return result


def test_the_current_cpu_is_one_that_the_thread_may_use() -> None:
    for cpu in allowed():
        assert in_thread(lambda cpu=cpu: (CpuChoice().run_on(cpu), cpus.current())[1]) == cpu


def test_a_system_that_does_not_tell_has_any(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(cpus, "_STAT", tmp_path / "missing")
    assert cpus.current() == ANY_CPU


def test_it_stays_on_one_and_leaves_it_again() -> None:
    cpu = min(allowed())
    assert after(cpu) == {cpu}
    assert after(cpu, cpu) == {cpu}
    assert after(cpu, ANY_CPU) == after(ANY_CPU) == allowed()


def test_it_can_change_to_another_one_and_back_to_all() -> None:
    cpu, other = min(allowed()), max(allowed())
    assert after(cpu, other) == {other}
    assert after(cpu, other, ANY_CPU) == allowed()


def test_a_cpu_that_it_may_not_use_changes_nothing() -> None:
    foreign = max(allowed()) + 1
    assert after(foreign) == allowed()
    assert after(min(allowed()), foreign) == allowed()


def test_where_it_is_forbidden_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert after(min(allowed()), ANY_CPU) == allowed()


def test_threads_that_it_starts_meanwhile_may_use_all() -> None:
    def start() -> Any:
        initialize, choice = cpus.initializer(), CpuChoice()
        choice.run_on(min(allowed()))
        return in_thread(lambda: (initialize(), allowed())[1])

    assert in_thread(start) == allowed()
