"""Reads all of a bookmark store's file; run in a process of its own, by its path.

LMDB may end the process on damaged pages: then that is the finding. Nothing is changed: a
transaction writes and is given up again, which shows whether the lists of free pages can be read.
"""

from __future__ import annotations

import sys

import lmdb


def main() -> int:
    """0 when all of it can be read; why not goes to stderr."""
    with lmdb.open(sys.argv[1], lock=False, map_size=int(sys.argv[2])) as env:
        txn = env.begin(write=True)
        for key, value in list(txn.cursor()):
            txn.put(key, value + b"?")
        txn.abort()
    return 0


if __name__ == "__main__":
    sys.exit(main())
