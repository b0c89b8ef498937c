"""What an admin says of queues, and how the commands are called."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from typing import Any

from click.testing import CliRunner, Result

from zbroker.cli.admin_main import main

BOUND_S = 30
ROW: dict[str, Any] = {
    "name": "work", "kind": "work", "topic": "orders", "regex": False, "source": "config",
    "life": 1, "created": 7, "state": "ready", "depth": 5, "ready": 2, "leased": 3, "delayed": 0,
    "going": 0, "consumers": 1, "first": 5, "last": 9, "oldest": "20260101T000000Z",
    "oldest_s": 3.5, "behind": 0, "barrier": None, "holding": 5, "bytes": 2048, "idle_s": 1.0,
    "elsewhere": 1, "elsewhere_first": 7, "elsewhere_s": 2.5,
    "memory_bytes": 4096, "entered": 10, "delivered": 9, "redelivered": 1, "acked": 5, "failed": 1,
    "dead": 2, "expired": 0,
    "rates": {"entered_s": 1.5, "delivered_s": 1.0, "acked_s": 0.5},
}  # fmt: skip
OWNER: dict[str, Any] = {
    "instance": "10b714bc24174273", "name": "a", "here": False, "up": False, "depth": 1, "first": 7,
    "since": "20260101T000000Z", "since_s": 2.5, "number": 0,
}  # fmt: skip
CONSUMER: dict[str, Any] = {
    "queue": "work", "client": "ann", "sid": "s1", "address": "10.0.0.1:5000", "backlog": 64,
    "held": 3, "credit": 1024, "delivered": 9, "acked": 6, "filter": "/x = 1", "next_end_ms": 500,
    "gone": False,
}  # fmt: skip
MESSAGE: dict[str, Any] = {
    "position": 5, "bookmark": "7|5|", "topic": "orders", "time": "20260101T000000Z", "size": 20,
    "state": "leased", "deliveries": 2, "failures": 1, "owner": "ann", "due_ms": 500,
}  # fmt: skip


def done(count: int = 0, text: str = "") -> Any:
    """A change that succeeds: what an admin answers to any body."""
    return lambda body: {
        "queue": "work", "dry_run": bool(body.get("dry_run")), "count": count, "text": text,
    }  # fmt: skip


def run(data: Any, *arguments: str, typed: str | None = None) -> Result:
    """`zbroker-admin queue ARGUMENTS`."""
    program = ["--data-dir", str(data), "queue", *arguments]
    return CliRunner().invoke(main, program, input=typed)


def on_terminal(
    data: Any, arguments: list[str], question: str, typed: bytes, group: str = "queue"
) -> tuple[int, str]:
    """The same on a terminal, where somebody answers; its exit code, and what it asked."""
    program = [sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir", str(data)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*program, group, *arguments])
    text, deadline = b"", time.monotonic() + BOUND_S
    try:
        while question.encode() not in b" ".join(text.split()) and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                text += os.read(terminal, 65_536)
        os.write(terminal, typed)
        while time.monotonic() < deadline:
            try:
                os.read(terminal, 65_536)
            except OSError:  # its end is closed
                break
    finally:
        os.close(terminal)
        found = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return found, " ".join(text.decode().split())
