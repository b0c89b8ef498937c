"""Work in helper threads that ends in the loop's thread.

    submit(work, then) --> work() in a helper --> wake the loop --> finish(): then(result)

A failure of the work is a failure of the process, unless `failed` takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

Then = Callable[[Any], None]
Failed = Callable[[Exception], None]


class _Job(NamedTuple):
    future: Future[Any]
    then: Then
    failed: Failed | None


class Helpers:
    """Threads of one kind; with one thread, one after the other. `wake` is called from them."""

    def __init__(self, name: str, threads: int, wake: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
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

    def finish(self) -> None:
        """Handles what has ended, in the order in which it was submitted."""
        if not self._jobs:
            return
        done: list[_Job] = []
        running: list[_Job] = []
        for job in self._jobs:
            (done if job.future.done() else running).append(job)
        self._jobs = running
        for job in done:
            error = job.future.exception()
            if error is None:
                job.then(job.future.result())
            elif job.failed is not None and isinstance(error, Exception):
                job.failed(error)
            else:
                raise error

    def close(self) -> None:
        """Waits for what runs, drops what has not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)
