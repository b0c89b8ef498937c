"""Peers that a person has called gone for good: a generation is closed without their answer. Pure.

It is in the log, so a restart knows it, and in state snapshots. It ends when the peer answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from msgspec import DecodeError, Struct

from zbroker.log.format import Batch
from zbroker.log.records import FORGOTTEN, ForgottenRecord


class ForgottenRow(Struct, array_like=True, gc=False):
    """A forgotten peer in a state snapshot, by the name that the config has for it."""

    peer: str


class ForgottenPeers:
    """Those of one log. changes: since the start."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.changes = 0

    def fold(self, batch: Batch) -> None:
        """Learns from a record; one whose body is damaged changes nothing."""
        with suppress(DecodeError, UnicodeDecodeError):
            record: ForgottenRecord = FORGOTTEN.decode(batch.body)
            self.changes += 1
            if record.forgotten:
                self.names.add(record.peer)
            else:
                self.names.discard(record.peer)

    def rows(self) -> Iterable[ForgottenRow]:
        """What a snapshot tells of them."""
        return [ForgottenRow(peer) for peer in sorted(self.names)]

    def fold_row(self, row: ForgottenRow) -> None:
        """Learns from a snapshot."""
        self.names.add(row.peer)
