"""A broker with small segments, what was published to it, and its admin."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.process.load import until
from zbroker.client import connect
from zbroker.local import LocalBroker

BODY_BYTES = 4_000
FAST = {"segment_size": "1MiB"}


class AdminBroker:
    """A broker with small segments, what was published to it, and its admin."""

    def __init__(self, data: Path, **retention: str | int) -> None:
        settings = {"journal": FAST, "retention": {"every": "1s", **retention}}
        self.broker = LocalBroker(data, settings=settings)
        self.rng = random.Random(1)
        self.sent: list[bytes] = []

    def publish(self, mebibytes: int) -> None:
        """Half of each body can be compressed away; small groups, so that segments stay small."""
        with connect(self.broker.url, "writer", timeout=60) as client:
            for number in range(mebibytes * 1_048_576 // BODY_BYTES):
                if number % 50 == 0:
                    client.flush(60)
                half = BODY_BYTES // 2
                body = b"%d:" % len(self.sent) + self.rng.randbytes(half) + b"." * half
                client.publish("t", body, timeout=60)
                self.sent.append(body)
            client.flush(60)

    def replayed(self, since: str = "epoch") -> list[bytes]:
        with connect(self.broker.url, timeout=60) as client:
            return [
                bytes(message.data) for message in client.subscribe("t", since=since, until="now")
            ]

    def ask(self, method: str, path: str, **body: object) -> tuple[int, Any]:
        """One request to the admin; (0, None) while it is down."""
        try:
            running = json.loads((self.broker.data_dir / "run" / "instance.json").read_text())
            at = running["endpoints"]["admin"].removeprefix("http://")
            token = (self.broker.data_dir / "run" / "admin.token").read_text()
            peer = http.client.HTTPConnection(at, timeout=10)
            text = json.dumps(body) if method == "POST" else None
            peer.request(method, path, text, {"X-ZBroker-Token": token})
            answer = peer.getresponse()
            found = answer.status, json.loads(answer.read())
            peer.close()
        except (OSError, http.client.HTTPException, KeyError, ValueError):
            return 0, None
        return found

    def segments(self) -> list[dict[str, Any]]:
        _, found = self.ask("GET", "/journal")
        return found["segments"] if found and "segments" in found else []

    def sealed(self) -> set[tuple[str, bool]]:
        """Where the sealed segments are, and whether they are packed."""
        return {(s["place"], s["packed"]) for s in self.segments() if not s["open"]}

    def actions(self, *names: str) -> list[dict[str, Any]]:
        _, found = self.ask("GET", "/actions")
        return [entry for entry in (found or {}).get("actions", []) if entry["action"] in names]

    def files(self) -> dict[str, list[str]]:
        """The files of segments in both directories."""
        return {
            folder: sorted(p.name for p in (self.broker.data_dir / folder).glob("*.journal*"))
            for folder in ("journal", "archive")
        }

    def wait(self, done: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        try:
            until(lambda: bool(done()), what, seconds)
        except AssertionError as error:
            reported = (
                f"{error}\n{self.files()}\n{self.actions('archive', 'compress', 'remove')[:5]}"
            )
            raise AssertionError(f"{reported}\n{self.broker.log_tail(40)}") from None
