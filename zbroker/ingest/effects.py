"""What ingest's core wants done. Pure."""

from __future__ import annotations

from msgspec import Struct

from zbroker.engine import effects as e


class Verify(Struct, gc=False):
    """See whether `password` is the one of `hashed`. Answered by Verified, with this number."""

    number: int
    password: str
    hashed: str

    def __repr__(self) -> str:
        return f"Verify(number={self.number})"


Effect = (
    e.Answer | e.Say | e.Reconnect | e.LoggedOff | e.LoggedOn | e.Tell | e.NoteDisconnected
    | e.Gate | e.Pace | e.Ready | e.Exit | Verify
)  # fmt: skip
