"""tests/waiting.py: a limit that a busy machine extends."""

from __future__ import annotations

import os
import time

import pytest

from tests import waiting


@pytest.mark.parametrize(
    ("load", "cores", "times"), [(0.1, 2, 1.0), (2, 2, 1.0), (8, 2, 4.0), (100, 2, 8.0)]
)
def test_the_load_on_each_core_extends_a_limit(load: float, cores: int, times: float) -> None:
    assert waiting.busy(load, cores) == times


def test_a_limit_is_over_later_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    now, load = [100.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "getloadavg", lambda: (load[0], 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    limit = waiting.Limit(10)
    now[0] = 111.0
    assert limit.is_over
    load[0] = 8.0
    assert not limit.is_over
    now[0] = 141.0
    assert limit.is_over


def test_what_never_comes_fails() -> None:
    with pytest.raises(AssertionError, match="rain"):
        waiting.until(lambda: False, "rain", 0)


@pytest.mark.parametrize(
    ("waited_s", "pause_s"), [(0.0, 0.01), (0.1, 0.01), (1.0, 0.05), (2.0, 0.1), (60.0, 0.1)]
)
def test_it_looks_less_often_with_time(waited_s: float, pause_s: float) -> None:
    assert waiting.pause_s(waited_s, 0.01) == pause_s


def test_a_pause_is_never_shorter_than_asked_for() -> None:
    assert waiting.pause_s(60.0, 0.5) == 0.5
