"""What an admin says of clients."""

from __future__ import annotations

from typing import Any

INGEST: dict[str, Any] = {
    "door": "ingest", "room": "ingest", "client": "pricer", "principal": "ann", "instance": "a1",
    "address": "10.0.0.1:5000", "connected_s": 60, "session": 1, "publisher": "7", "acked": 40,
    "window_bytes": 512, "messages": 41, "subscriptions": 0, "heartbeat_s": None,
}  # fmt: skip
DELIVERY = INGEST | {
    "door": "delivery", "room": "delivery-2", "acked": None, "window_bytes": None,
    "subscriptions": 2,
}  # fmt: skip
FOUND: dict[str, Any] = {"clients": [INGEST, DELIVERY], "silent": [], "left_out": 0}
