"""A program to be killed: the journal's own code on a real directory, which says what it promised.

    python -m tests.torture.target

It imports everything once and then forks a child for each line of JSON on stdin (a `Job`), whose
process id it prints. The child waits for SIGUSR1, so that a tracer can take hold of it first. Each
line that it adds to the job's file of acks is one promise: {"ann": 17, ...}, written after the
acknowledgement would have left. When it has ended, its exit code (or minus the signal) is printed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, convert

from tests.torture.engine import Acked, Engine, play
from zbroker.cli.admin_main import main
from zbroker.errors import StorageError
from zbroker.log.disk import RealDisk
from zbroker.server.process import EX_STORAGE

FOR_EVER: Final = 1 << 30


class Job(Struct):
    """What one child does. lives: how often it starts on what it left, without a crash.

    bug: planted, so that a rig can prove that it finds it.
    """

    directory: str
    acks: str
    rounds: int = 10
    lives: int = 1
    segment_bytes: int = 32 * 1024
    bug: Literal["", "no sync", "sync retried", "ack before write"] = ""
    command: list[str] = []  # of zbroker-admin, instead of publishing


class Retrying(RealDisk):
    """Takes the second sync's word for it."""

    def sync(self, name: str) -> None:
        try:
            super().sync(name)
        except StorageError:
            super().sync(name)


class Unsynced(RealDisk):
    """Says that everything is durable."""

    def sync(self, name: str) -> None:
        """Nothing."""

    def sync_dir(self) -> None:
        """Nothing."""


def work(job: Job) -> None:
    """Publishes and says what was acknowledged; ends or is ended."""
    out = os.open(job.acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def reported(acked: Acked) -> None:
        os.write(out, json.dumps(acked).encode() + b"\n")

    make = {"no sync": Unsynced, "sync retried": Retrying}.get(job.bug, RealDisk)
    for life in range(job.lives):
        disk = make(Path(job.directory))
        engine = Engine(disk, segment_bytes=job.segment_bytes)
        if job.bug == "ack before write":
            engine.before_turn = reported
        play(engine, job.rounds, reported, first=life * job.rounds)
        disk.close()


def admin(command: list[str]) -> int:
    """Runs zbroker-admin and says nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        return int(main.main(command, standalone_mode=False) or 0)
    except SystemExit as end:
        return int(end.code or 0)


def child(job: Job) -> int:
    """Waits for the signal, then works; a failed disk ends it as it ends the journal process."""
    signal.sigwait({signal.SIGUSR1})
    try:
        if job.command:
            return admin(job.command)
        work(job)
    except StorageError as error:
        os.write(2, f"{error.code}: {error.reason}\n".encode())
        return EX_STORAGE
    return 0


def serve() -> None:
    """Forks one child per line, one after the other."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for line in sys.stdin:
        job = convert(json.loads(line), Job)
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                status = child(job)
            finally:
                os._exit(status)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
