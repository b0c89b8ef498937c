"""How one text serves both clients: what waits is a coroutine, which `run` or an event loop drives.

In an event loop a wait suspends its task. With threads the same wait blocks inside, so a coroutine
comes to its end without ever being suspended, and `run` gives what it returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What `coroutine` returns, all of whose waits block. Raises: what it raises."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a wait of the client with threads was suspended")


def blocking(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The method of a client with threads that does what `method` does in an event loop."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(*args, **kwargs))

    del call.__wrapped__  # it is a coroutine function, and this is none
    call.__name__ = method.__name__.removeprefix("_")
    call.__signature__ = signature(method)  # type: ignore[attr-defined]
    return call


def end_of(timeout: float | None) -> float | None:
    """The time of the monotonic clock at which a wait of `timeout` seconds is over."""
    return None if timeout is None else time.monotonic() + timeout


def left_until(end: float | None) -> float | None:
    """The seconds until then; None: for ever."""
    return None if end is None else max(0.0, end - time.monotonic())
