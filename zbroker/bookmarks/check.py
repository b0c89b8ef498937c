"""Reads every entry of an index: `python -m zbroker.bookmarks.check <directory>`.

Runs in a process of its own because LMDB may end it on damaged pages. Exit codes: 0 nothing wrong,
3 damaged (why is on stdout), 2 usage; a signal says damaged too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lmdb

from zbroker.bookmarks import keys
from zbroker.bookmarks.files import EX_DAMAGED


def damage_in(path: Path) -> str:
    """The damage of the index at `path`; "" when every entry is good."""
    try:
        with lmdb.open(str(path), readonly=True, lock=False, create=False) as env:
            return _damage(env)
    except lmdb.Error as error:
        return f"LMDB says: {error}"


def _damage(env: lmdb.Environment) -> str:
    before = b""
    with env.begin() as txn:
        for key, value in txn.cursor():
            if key <= before:
                return "its entries are out of order"
            before, stamped = key, key == keys.STAMP
            read = keys.decode_stamp(value) if stamped else keys.decode_place(key, value)
            if isinstance(read, keys.BadKey):
                return read.why
    return ""


def main() -> int:
    """Returns: the exit code; the damage goes to stdout."""
    if len(sys.argv) != 2:
        return 2
    why = damage_in(Path(sys.argv[1]))
    sys.stdout.write(why)
    return EX_DAMAGED if why else 0


if __name__ == "__main__":
    sys.exit(main())
