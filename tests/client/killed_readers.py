"""Subscribers that are programs of their own, so that they can be killed: what they note stays.

    start(program, url, directory[, "now"])   "now": it ends where the log ends when it begins
    start(..., most=100)                      it waits to be killed at its 100th message

Each writes a line per message that it has processed to the file `out` of its directory. A line has
LINE_BYTES, so that none lies in two pages: a kill would tear it between them.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

LINE_BYTES = 16

_BEGIN = """
import os, random, signal, sys, zbroker
url, directory, left, *until = sys.argv[1:]
left = int(left)
ends = {"until": until[0]} if until else {}
out = os.open(f"{directory}/out", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
def note(message):
    global left
    os.write(out, message.data.ljust(15) + b"\\n")
    left -= 1
    while left == 0:
        signal.pause()
"""

BY_ITERATION = (
    _BEGIN
    + """
with zbroker.FileBookmarkStore(f"{directory}/marks", commit="5ms") as store:
    with zbroker.connect(url, "reader", bookmark_store=store, timeout=60) as client:
        for message in client.subscribe("t", since="recent", name="s", **ends):
            note(message)
"""
)

OUT_OF_ORDER = (
    _BEGIN
    + """
with zbroker.FileBookmarkStore(f"{directory}/marks", sync=True) as store:
    with zbroker.connect(url, "reader", bookmark_store=store, timeout=60) as client:
        subscription = client.subscribe(
            "t", since="recent", name="s", discard="manual", **ends)
        while True:
            window = [m for m in (subscription.next() for _ in range(20)) if m is not None]
            random.shuffle(window)
            for message in window:
                note(message)
                subscription.discard(message)
            if not window:
                break
"""
)

IN_ONE_TRANSACTION = (
    _BEGIN
    + """
import sqlite3
base = sqlite3.connect(f"{directory}/base")
base.execute("CREATE TABLE IF NOT EXISTS results (number INTEGER)")
base.execute("CREATE TABLE IF NOT EXISTS place (one INTEGER PRIMARY KEY, vector TEXT)")
found = base.execute("SELECT vector FROM place").fetchone()
with zbroker.connect(url, "reader", timeout=60) as client:
    subscription = client.subscribe("t", since=found[0] if found else "epoch", **ends)
    for message in subscription:
        with base:
            base.execute("INSERT INTO results VALUES (?)", [int(message.data)])
            base.execute("REPLACE INTO place VALUES (1, ?)", [subscription.vector])
        note(message)
"""
)


def lines(directory: Path) -> list[int]:
    path = directory / "out"
    return [int(line) for line in path.read_bytes().split()] if path.exists() else []


def rows(directory: Path) -> list[int]:
    with closing(sqlite3.connect(directory / "base")) as base:
        return [number for (number,) in base.execute("SELECT number FROM results")]


def start(
    program: str, url: str, directory: Path, *until: str, most: int = 0
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, url, str(directory), str(most), *until]
    return subprocess.Popen(command, stderr=subprocess.PIPE)
