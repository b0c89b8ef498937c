"""Work in helper threads: it ends in the loop's thread, in order, and no failure is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from zbroker.journal.helper_threads import Helpers

WAIT_S = 10.0


class Woken:
    def __init__(self) -> None:
        self.times = threading.Semaphore(0)

    def __call__(self) -> None:
        self.times.release()

    def wait(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.times.acquire(timeout=WAIT_S)


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def helpers(woken: Woken) -> Iterator[Helpers]:
    made = Helpers("test", 2, woken)
    yield made
    made.close()


def test_a_result_is_handled_in_the_thread_that_finishes(helpers: Helpers, woken: Woken) -> None:
    threads: list[object] = []
    helpers.submit(threading.get_ident, lambda ident: threads.extend((ident, _me())))
    woken.wait()
    assert threads == []
    helpers.finish()
    assert threads[0] != threads[1] == _me()


def _me() -> int:
    return threading.get_ident()


def test_what_runs_still_is_left_for_later(helpers: Helpers, woken: Woken) -> None:
    go = threading.Event()
    done: list[str] = []
    helpers.submit(lambda: go.wait(WAIT_S), lambda _: done.append("slow"))
    helpers.submit(lambda: None, lambda _: done.append("fast"))
    woken.wait()
    helpers.finish()
    assert done == ["fast"]
    go.set()
    woken.wait()
    helpers.finish()
    assert done == ["fast", "slow"]


def test_what_ended_is_heard_as_events_in_order(helpers: Helpers, woken: Woken) -> None:
    helpers.submit(lambda: 1, lambda number: ("first", number))
    helpers.submit(lambda: 2, lambda _: None)
    helpers.submit(_fails, lambda _: None, lambda error: ("failed", str(error)))
    woken.wait(3)
    assert helpers.finish() == [("first", 1), ("failed", "no")]
    assert helpers.finish() == []


def test_a_failure_goes_to_who_takes_it(helpers: Helpers, woken: Woken) -> None:
    errors: list[Exception] = []
    helpers.submit(_fails, lambda _: None, errors.append)
    woken.wait()
    helpers.finish()
    assert [str(error) for error in errors] == ["no"]


def test_a_failure_that_no_one_takes_is_raised(helpers: Helpers, woken: Woken) -> None:
    helpers.submit(_fails, lambda _: None)
    woken.wait()
    with pytest.raises(ValueError, match="no"):
        helpers.finish()
    helpers.finish()  # once


def _fails() -> None:
    raise ValueError("no")


def test_one_thread_does_one_thing_after_the_other(woken: Woken) -> None:
    helpers = Helpers("test", 1, woken)
    order: list[int] = []
    try:
        for number in range(20):
            helpers.submit(partial(order.append, number), lambda _: None)
        woken.wait(20)
    finally:
        helpers.close()
    assert order == list(range(20))
