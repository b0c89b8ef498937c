"""A process that does what a file `<data>/<process>.does` says; and a supervisor of five of them.

python -m tests.supervisor.fakes DATA_DIR [DELIVERY_WORKERS]
"""

from __future__ import annotations

import signal
import sys

from zbroker import config
from zbroker.errors import ConfigError, StorageError
from zbroker.limits import MIB
from zbroker.server.heap import Allocator
from zbroker.server.process import Process
from zbroker.supervisor import loop
from zbroker.supervisor.processes import ProcessPlan

FREED_BYTES = 24 * MIB  # more than is kept at the end of a heap


def run(process: Process) -> int:
    """The process."""
    note = process.paths.data / f"{process.name}.does"
    does = note.read_text() if note.exists() else ""
    if does == "wrong config":
        raise ConfigError("bad_config", "on purpose")
    if does == "bad storage":
        raise StorageError("io", "on purpose")
    if does == "accept":
        (process.paths.data / "accepted").write_text(str(process.config.journal.accept_tail_loss))
    process.stats = {"listens": process.listen}
    process.ready(process.listen)
    process.stats["kept_bytes"] = _kept_bytes()
    if does == "ignores stop":
        signal.pause()
    while not process.stopping:
        process.link.poll(process.wait_ms())
        process.turn()
    return 0


def _kept_bytes() -> int:
    """What the allocator has not given back of a block that was freed."""
    bytes(FREED_BYTES)
    return Allocator().free_bytes()


def main() -> int:
    """The supervisor."""
    rooms = (
        ProcessPlan("journal", "tests.supervisor.fakes"),
        ProcessPlan("ingest", "tests.supervisor.fakes", ("journal",)),
        ProcessPlan("delivery", "tests.supervisor.fakes", ("journal",)),
        ProcessPlan("queues", "tests.supervisor.fakes", ("journal",)),
        ProcessPlan("admin", "zbroker.admin.loop"),
    )
    overrides: dict[str, str | int | bool] = {
        "instance.data_dir": sys.argv[1],
        "listen.ingest": "tcp://127.0.0.1:0",
        "listen.delivery": "tcp://127.0.0.1:0",
        "listen.queues": "tcp://127.0.0.1:0",
        "listen.admin": "http://127.0.0.1:0",
        "delivery.workers": int(sys.argv[2]) if len(sys.argv) > 2 else 1,
    }
    settings = config.load(None, overrides).accepting(tail_loss=True)
    return loop.run(settings, lambda url: sys.stdout.write(f"ready {url}\n"), rooms)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main())
