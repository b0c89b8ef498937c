"""GET /clients: who is connected to which door; and the end of all connections of one client."""

from __future__ import annotations

from typing import Any

from zbroker.admin.process_link import ProcessLink
from zbroker.admin.requests import ClientsQuery
from zbroker.config import setting_of
from zbroker.errors import ClientError
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.wire import surveys as s


class ClientReports:
    """Answers from any thread."""

    def __init__(self, desks: ProcessLink, disconnects: DisconnectsFile) -> None:
        self._desks = desks
        self._disconnects = disconnects

    def answer(self, wanted: ClientsQuery) -> dict[str, Any]:
        """Every connection, by name. Raises: ClientError not_ready."""
        ask = s.AskClients(0, wanted.client, wanted.limit)
        told = self._desks.ask(s.Clients, ask, self._desks.rooms)
        answers = {room: answer for room, answer in told.items() if answer is not None}
        found = [(row.client, room, row) for room, one in answers.items() for row in one.rows]
        found.sort(key=lambda one: one[:2])
        shown = found[: wanted.limit]
        return {
            "silent": [room for room, answer in told.items() if answer is None],
            "left_out": sum(one.left_out for one in answers.values()) + len(found) - len(shown),
            "clients": [_told(room, row) for _, room, row in shown],
        }

    def disconnect(self, client: str) -> dict[str, Any]:
        """Ends them, and its tokens, at every door. Raises: ClientError not_found, not_ready.

        Its tokens end also where it is not connected: somebody may keep one for later.
        """
        ask = s.Disconnect(0, client, self._disconnects.add(client))
        told = self._desks.ask(s.Disconnected, ask, self._desks.rooms)
        ended = sum(one.count for one in told.values() if one is not None)
        silent = [room for room, one in told.items() if one is None]
        if silent:
            reason = f"{ended} ended, but these rooms did not answer: {', '.join(silent)}"
            raise ClientError("not_ready", reason, "ask again")
        if not ended:
            reason = f"no client {client!r} is connected; tokens that it may have count no more"
            raise ClientError("not_found", reason, "see GET /clients")
        return {"disconnected": ended}


def _told(room: str, row: s.ClientRow) -> dict[str, Any]:
    return {
        "door": setting_of(room),
        "room": room,
        "client": row.client,
        "principal": row.principal,
        "instance": row.instance,
        "address": row.address,
        "connected_s": None if row.connected_ms is None else row.connected_ms / 1_000,
        "session": row.session,
        "publisher": None if row.publisher is None else str(row.publisher),
        "acked": row.acked,
        "window_bytes": row.window_bytes,
        "messages": row.messages,
        "subscriptions": row.subscriptions,
        "heartbeat_s": row.heartbeat_s,
    }
