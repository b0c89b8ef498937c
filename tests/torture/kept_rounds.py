"""The place of rounds on hosts that a test makes: removed at the end, kept if they failed.

A place that a test names stays whatever happens, for rounds that go on there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tests.torture.network import Network, network


class Closable(Protocol):
    """Rounds: what happens is a line of `log`, and `close` ends all that was started."""

    def log(self, text: str) -> None: ...

    def close(self) -> None: ...


R = TypeVar("R", bound=Closable)


@contextmanager
def kept_rounds(
    names: Sequence[str], seed: int, make: Callable[[Path, Network, int], R],
    named: Path | None = None,
) -> Iterator[R]:  # fmt: skip
    """All of it for one seed; what failed is kept if ZB_KEEP says where, else the story of it."""
    keep = None if named else os.environ.get("ZB_KEEP")
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        place = named or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="zbroker-rounds-"))
        )
        place.mkdir(parents=True, exist_ok=True)
        made = make(place, stack.enter_context(network(names)), seed)
        try:
            yield made
        except BaseException as error:
            made.log(f"failed: {error}")
            made.close()
            if keep:
                kept = Path(keep) / f"seed-{seed}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(place, kept, ignore=shutil.ignore_patterns("run"))
            raise
        made.close()
        if keep:
            shutil.copy(place / "logs" / "story", Path(keep) / f"seed-{seed}.story")
