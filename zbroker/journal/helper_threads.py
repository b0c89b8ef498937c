"""Work in helper threads that ends as an event of the loop's turn.

    submit(work, then) --> work() in a helper --> wake the loop --> finish(): [then(result)]

A failure of the work is a failure of the process, unless `failed` takes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import zmq

from zbroker import cpus
from zbroker.engine.contract import Limit, Ready

Then = Callable[[Any], Any]  # gives the event, or None
Failed = Callable[[Exception], Any]


class _Job(NamedTuple):
    future: Future[Any]
    then: Then
    failed: Failed | None


class Helpers:
    """Threads of one kind; with one thread, one after the other. `wake` is called from them."""

    def __init__(self, name: str, threads: int, wake: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(threads, name, cpus.initializer())
        self._wake = wake
        self._jobs: list[_Job] = []

    def submit(
        self, work: Callable[[], Any], then: Then, failed: Failed | None = None
    ) -> Future[Any]:
        """Has `work` done; its result goes to `then`, an error to `failed`."""
        future = self._pool.submit(work)
        self._jobs.append(_Job(future, then, failed))
        future.add_done_callback(lambda _: self._wake())
        return future

    def finish(self) -> list[Any]:
        """The events of what has ended, in the order in which it was submitted."""
        if not self._jobs:
            return []
        done: list[_Job] = []
        running: list[_Job] = []
        for job in self._jobs:
            (done if job.future.done() else running).append(job)
        self._jobs = running
        events = [_ended(job) for job in done]
        return [event for event in events if event is not None]

    def close(self) -> None:
        """Waits for what runs, drops what has not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _ended(job: _Job) -> object:
    error = job.future.exception()
    if error is None:
        return job.then(job.future.result())
    if job.failed is not None and isinstance(error, Exception):
        return job.failed(error)
    raise error


class HelpersPort:
    """All helper threads of a process, as a source of its turn."""

    drained = True
    next_wake_ms = None

    def __init__(self, poller: zmq.Poller) -> None:
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._pools: list[Helpers] = []
        poller.register(self._wake, zmq.POLLIN)

    def pool(self, name: str, threads: int) -> Helpers:
        """More threads; what ended in the pool that was made first is heard first."""
        made = Helpers(name, threads, lambda: os.eventfd_write(self._wake, 1))
        self._pools.append(made)
        return made

    def events(self, ready: Ready, limit: Limit) -> Iterable[Any]:
        """What the threads have done."""
        if self._wake not in ready:
            return ()
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return [event for pool in self._pools for event in pool.finish()]

    def close(self) -> None:
        """Waits for what runs."""
        for pool in self._pools:
            pool.close()
        os.close(self._wake)
