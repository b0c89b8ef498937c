"""What the admin answers: decided here, moved by the loop.

    GET /status     everything; docs/reference/cli.md, "status"

Only peers on loopback are answered, and only when the Host header names this machine's loopback: a
web page that points its own name at 127.0.0.1 would otherwise read it from the user's browser.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, NamedTuple

from zbroker.wire.internal import Status

_JOURNAL_KEYS: Final = ("first_position", "written", "persisted", "segments", "bytes", "durability")
_PROCESS_KEYS: Final = ("room", "pid", "state", "restarts", "uptime_s", "progress")
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
PATHS: Final = ("/status",)


class Request(NamedTuple):
    """What decides about a request."""

    method: str
    path: str
    host: str
    peer: str


class Refusal(NamedTuple):
    """An HTTP status and what stands in the JSON body."""

    status: int
    code: str
    reason: str

    def body(self) -> dict[str, str]:
        """For the answer."""
        return {"code": self.code, "reason": self.reason}


def refuse(request: Request) -> Refusal | None:
    """Why `request` is not answered, or None when it is."""
    if not _is_loopback(request.peer) or _host_name(request.host) not in _LOCAL_HOSTS:
        return Refusal(
            403, "forbidden", "this address answers to this host only, by its loopback name"
        )
    if request.path not in PATHS:
        return Refusal(404, "not_found", f"no such path; there are: {', '.join(PATHS)}")
    if request.method != "GET":
        return Refusal(405, "bad_command", "this path is for GET")
    return None


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def document(status: Status, running: dict[str, Any]) -> dict[str, Any]:
    """The answer to GET /status. Keys are added over time, never changed.

    running: what stands in run/instance.json.
    """
    rooms: dict[str, dict[str, Any]] = {str(room["room"]): dict(room) for room in status.rooms}
    stats = {name: dict(room.get("stats", {})) for name, room in rooms.items()}
    journal = stats.get("journal", {})
    first = {key: journal.pop(key) for key in _JOURNAL_KEYS if key in journal}
    return {
        "instance": running.get("instance", ""),
        "name": running.get("name", ""),
        "group": running.get("group", ""),
        "state": status.state,
        "url": running.get("url", ""),
        "version": running.get("version", ""),
        "started": running.get("started", ""),
        "endpoints": running.get("endpoints", {}),
        "clients": stats.get("ingest", {}).get("clients", 0),
        "subscriptions": stats.get("delivery", {}).get("subscriptions", 0),
        "journal": first | journal,
        "ingest": stats.get("ingest", {}),
        "delivery": stats.get("delivery", {}),
        "processes": [{key: room.get(key, "") for key in _PROCESS_KEYS} for room in rooms.values()],
    }
