"""One history of a world from its seed, and a bug that is planted in it; a failure says how to see
it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from tests.sim.two_nodes import Violation


class SeededWorld(Protocol):
    """What has a history."""

    def run(self) -> None:
        """All of it."""


class CheckedWorld(SeededWorld, Protocol):
    """What counts what it has looked at."""

    checks: Mapping[str, int]


W = TypeVar("W", bound=SeededWorld)
C = TypeVar("C")


def run(make: Callable[[int, str], W], file: str, seed: int, bug: str = "") -> W:
    """make: of a seed, and the bug that is planted. file: the test. Raises: Violation."""
    world = make(seed, bug)
    try:
        world.run()
    except Exception as error:
        test = f"tests/sim/{Path(file).name}"
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest {test}"
        raise Violation(f"seed {seed}: {error}\nreplay: {again}") from error
    return world


def checks_of(
    make: Callable[[int, str], CheckedWorld], file: str, first: int, seeds: int, checks: set[str]
) -> None:
    """Whole histories; from 25 on all of `checks` must have been looked at in one of them. Raises:
    Violation, AssertionError."""
    found: set[str] = set()
    for seed in range(first, first + seeds):
        found |= set(run(make, file, seed).checks)
    if seeds >= 25:
        assert found >= checks, f"never looked at any more: {checks - found}"


def plant(bugs: Mapping[str, Callable[[C], None]], bug: str, core: C) -> None:
    """Makes a core do something wrong, if the bug is one of these."""
    if bug in bugs:
        bugs[bug](core)


def must_find(
    make: Callable[[int, str], W], file: str, bug: str, seeds: int,
    known: Mapping[str, int] = MappingProxyType({}),
) -> None:  # fmt: skip
    """One of so many seeds finds a planted bug. Raises: AssertionError.

    known: by bug, a seed that is tried first, where the first ones find nothing for seconds. Once
    that history is another one, the search from 0 on finds the bug as before.
    """
    tried = (*([known[bug]] if bug in known else ()), *range(seeds))
    assert any(_breaks(make, file, seed, bug) for seed in tried), "no seed finds it"


def _breaks(make: Callable[[int, str], W], file: str, seed: int, bug: str) -> bool:
    """Whether this seed finds a planted bug."""
    try:
        run(make, file, seed, bug)
    except Violation as found:
        if not isinstance(found.__cause__, AssertionError):
            raise  # the planted bug itself is broken
        return True
    return False
