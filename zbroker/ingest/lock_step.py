"""Whether publishers wait for each acknowledgement before they publish again. Pure.

Only then spinning pays: nothing but the journal and one client has work, in turn. With more under
way, all processes have work, and a core on which ingest spins is one that the system takes for
busy, so what wakes up waits for the other core. For the same reason ingest and the journal share
one CPU meanwhile: by itself the system has the journal wake up on the other, which sleeps.
"""

from __future__ import annotations

from typing import Final

MESSAGES_MAX: Final = 4  # of one burst; more are not published one at a time
PROMPT_NS: Final = 500_000  # from an ack to the next message: two hops, and the client's turn
WEIGHT: Final = 0.05  # of the newest burst
SHARE_MIN: Final = 0.9  # of bursts: those at a steady rate come promptly now and then


class LockStep:
    """Looks at each burst of messages, and at each acknowledgement."""

    def __init__(self) -> None:
        self._share = 0.0  # of bursts that came in lock step, a moving mean
        self._acked_ns = 0

    @property
    def lasts(self) -> bool:
        """True while nearly all bursts come in lock step."""
        return self._share >= SHARE_MIN

    def published(self, messages: int, now_ns: int, *, outstanding: bool) -> None:
        """A burst came. outstanding: others were not acknowledged yet."""
        prompt = now_ns - self._acked_ns <= PROMPT_NS
        in_step = prompt and not outstanding and messages <= MESSAGES_MAX
        self._share += WEIGHT * (in_step - self._share)

    def acknowledged(self, now_ns: int) -> None:
        """The journal has settled something."""
        self._acked_ns = now_ns
