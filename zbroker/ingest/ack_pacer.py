"""Merged acks of clients that asked to be told at an interval, not with each commit. Pure.

settled --nothing was told for an interval--> told
        --else--> waits for it, or for a refusal or an answer, which it must not come behind
"""

from __future__ import annotations

from msgspec.structs import replace

from zbroker.engine.effects import Answer
from zbroker.ingest.clients import ClientConnection, ClientRegistry
from zbroker.ingest.effects import Effect
from zbroker.wire.messages import Ack, Error


class AckPacer:
    """Holds back acks of `clients`, until `due`."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        self._waits: dict[bytes, ClientConnection] = {}
        self._wanted = False  # some client asked for it: others pay nothing

    def begin(self, client: ClientConnection, interval_s: float | None) -> None:
        """It logs on."""
        client.ack_interval_ms = int((interval_s or 0) * 1_000)
        self._wanted = self._wanted or client.ack_interval_ms > 0

    def pace(self, effects: list[Effect]) -> list[Effect]:
        """What of `effects` leaves now, in its order."""
        if not self._wanted:
            return effects
        now: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, Answer):
                now.append(effect)
                continue
            client = self._clients.by_rid.get(effect.rid)
            if client is None or not client.ack_interval_ms:
                now.append(effect)
                continue
            if isinstance(effect.message, Ack) and _is_merged(effect.message):
                _merge(client.acks, effect.message)
                self._waits[client.rid] = client
            else:
                if isinstance(effect.message, Ack | Error):
                    now += self._released(client)
                now.append(effect)
        return now

    def due(self, now_ms: int) -> list[Effect]:
        """What was held back for long enough."""
        effects: list[Effect] = []
        for client in list(self._waits.values()):
            if client.state == "ended":
                del self._waits[client.rid]
            elif _due_ms(client) <= now_ms:
                effects += self._released(client)
                client.ack_told_ms = now_ms
        return effects

    def next_wake_ms(self) -> int | None:
        """When `due` has something."""
        return min(map(_due_ms, self._waits.values())) if self._waits else None

    def _released(self, client: ClientConnection) -> list[Effect]:
        self._waits.pop(client.rid, None)
        acks, client.acks = client.acks, []
        return [Answer(client.rid, ack) for ack in acks]


def _due_ms(client: ClientConnection) -> int:
    return 0 if client.ack_told_ms is None else client.ack_told_ms + client.ack_interval_ms


def _is_merged(ack: Ack) -> bool:
    """An ack of all up to its `seq`, and no answer to one command."""
    return ack.cid is None and (ack.type == "persisted" or ack.unrecorded is not None)


def _merge(waiting: list[Ack], ack: Ack) -> None:
    """Of two persisted ones in a row the later says it all."""
    if waiting and waiting[-1].type == ack.type == "persisted":
        waiting[-1] = replace(ack, duplicate=ack.duplicate + waiting[-1].duplicate)
    else:
        waiting.append(ack)
