"""What the journal learns from its own log when it starts: publishers, and what the index lacks."""

from __future__ import annotations

from typing import Protocol

from google_crc32c import value as crc32c
from msgspec import DecodeError, Struct, ValidationError, msgpack

from zbroker.journal.disk import Disk
from zbroker.journal.format import KIND_PUBLISHER, Batch
from zbroker.journal.segments import segment_name
from zbroker.journal.sessions import Sessions


class PublisherRecord(Struct):
    """Body of a KIND_PUBLISHER record: the name stands in the log once."""

    name: str
    principal: str = ""


class Learns(Protocol):
    """What takes batches in log order: the bookmark index."""

    def add(self, batch: Batch, serial: int) -> None: ...


_RECORD = msgpack.Decoder(PublisherRecord)


class Fold:
    """Takes every batch of the log in order; the publisher table is complete afterwards.

    index: gets the batches from position `index_from` on; those before it hold already.
    """

    def __init__(self, disk: Disk, index: Learns | None = None, index_from: int = 0) -> None:
        self.sessions = Sessions()
        self._disk = disk
        self._index = index
        self._index_from = index_from

    def __call__(self, batch: Batch, serial: int) -> None:
        if batch.kind == KIND_PUBLISHER:
            self._name(batch, serial)
        else:
            self.sessions.fold(batch)
        if self._index is not None and batch.position >= self._index_from:
            self._index.add(batch, serial)

    def _name(self, batch: Batch, serial: int) -> None:
        """A record whose body is damaged is left out: its next logon brings the name again."""
        at = batch.offset + batch.header_length
        body = self._disk.read(segment_name(serial), at, batch.body_length)
        if crc32c(body) != batch.body_crc:
            return
        try:
            record = _RECORD.decode(body)
        except (DecodeError, ValidationError):
            return
        self.sessions.fold_name(batch.publisher, record.name, record.principal)
