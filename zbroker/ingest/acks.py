"""What publishers are told of the batches that were forwarded for them. Pure.

forwarded --receipt--> one merged `persisted` per client, or a refusal alone and in its place
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from zbroker.errors import TEMPORARY
from zbroker.ingest.clients import Client
from zbroker.ingest.effects import Send
from zbroker.ingest.link import Outstanding
from zbroker.wire import internal as i
from zbroker.wire import messages as m


class Ask(NamedTuple):
    """What a publish asked for: a persisted ack, and the `cid` of an error."""

    persisted: bool
    cid: str | None


@dataclass(slots=True)
class Pending:
    """A forwarded batch: whose it is and what its publisher wants to hear."""

    client: Client
    seq: int
    last: int
    bytes: int
    ask: Ask


class Acks:
    """Batches that wait for their receipt, by ordinal."""

    def __init__(self) -> None:
        self._pending: dict[int, Pending] = {}

    def forwarded(self, ordinal: int, client: Client, entry: i.Entry, size: int, ask: Ask) -> None:
        """A batch of `size` bytes is on its way; it takes room in its client's window."""
        client.window_used += size
        client.last_ordinal = ordinal
        last = entry.seq + entry.count - 1
        self._pending[ordinal] = Pending(client, entry.seq, last, size, ask)

    def waits(self, client: Client) -> bool:
        """True if something of this client is not settled."""
        return client.last_ordinal in self._pending

    def settle(
        self, settled: list[tuple[Outstanding, i.ReceiptItem]], durability: str | None
    ) -> list[Send]:
        """Answers to the clients whose batches these are."""
        sends: list[Send] = []
        told: dict[bytes, tuple[Client, int]] = {}  # whom to ack, and how many were duplicates
        for out, item in settled:
            pending = self._pending.pop(out.ordinal)
            client = pending.client
            client.window_used -= pending.bytes
            if item.code:
                if client.rid in told:
                    duplicate = told.pop(client.rid)[1]
                    sends.append(Send(client.rid, persisted(client, durability, None, duplicate)))
                sends.append(_refused(pending, item))
            else:
                client.acked = max(client.acked, pending.last)
                if pending.ask.persisted:
                    duplicate = told.get(client.rid, (client, 0))[1] + item.duplicate
                    told[client.rid] = (client, duplicate)
            if client.flushes:
                sends += _flushed(client, out.ordinal, durability)
        for rid, (client, duplicate) in told.items():
            if client.state == "live":
                sends.append(Send(rid, persisted(client, durability, None, duplicate)))
        return sends

    def check(self, clients: Iterable[Client]) -> None:
        """Asserts what is always true."""
        for client in clients:
            mine = sum(p.bytes for p in self._pending.values() if p.client is client)
            assert client.window_used == mine


def persisted(client: Client, durability: str | None, cid: str | None, duplicate: int = 0) -> m.Ack:
    """Everything of this client up to its highest settled sequence is durable."""
    return m.Ack("persisted", cid, seq=client.acked, durability=durability, duplicate=duplicate)


def _refused(pending: Pending, item: i.ReceiptItem) -> Send:
    client = pending.client
    if item.code in TEMPORARY:
        client.held_code = item.code  # the journal holds what follows
    cid, seq = pending.ask.cid, pending.seq
    return Send(client.rid, m.Error(item.code, item.reason, cid=cid, seq=seq, high=item.high))


def _flushed(client: Client, ordinal: int, durability: str | None) -> list[Send]:
    done = [cid for wanted, cid in client.flushes if wanted <= ordinal]
    client.flushes = [(wanted, cid) for wanted, cid in client.flushes if wanted > ordinal]
    return [Send(client.rid, persisted(client, durability, cid)) for cid in done]
