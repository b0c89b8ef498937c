"""A worker that takes jobs, and for each makes a row and a message in one distributed transaction.

python -m tests.process.branch_worker URL NAME DATABASE CHANCE

It is killed by itself, too, with that chance at each step. When it begins it decides what the one
before it with its name has left prepared.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

import zbroker
from tests.process.decision_store import DecisionStore
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.session import Session
from zbroker.errors import ZBrokerError
from zbroker.xids import Xid

TOGETHER: Final = 4  # jobs of one transaction
T: Final = 30.0


def main() -> None:
    """Connects again after every trouble."""
    url, name, database, chance = sys.argv[1:]
    rng = random.Random()

    def step() -> None:
        if rng.random() < float(chance):
            os.kill(os.getpid(), signal.SIGKILL)

    while True:
        try:
            run(url, name, database, step)
        except Exception as error:
            if not is_expected(error):
                raise
            time.sleep(0.1)


def is_expected(error: Exception) -> bool:
    """Whether the broker, or the database, may have been killed."""
    module = type(error).__module__.partition(".")[0]
    return isinstance(error, ZBrokerError) or module in ("psycopg", "sqlite3")


def run(url: str, name: str, database: str, step: Callable[[], None]) -> None:
    with (
        zbroker.connect(url, name, timeout=T) as client,
        client.session(name, timeout=T) as session,
        DecisionStore(database) as store,
        session.consume("jobs", backlog=5 * TOGETHER, timeout=T) as consumer,
    ):
        for branch in session.tpc_recover(T):
            if branch.xid.bqual == name:
                settle(session, store, branch.xid)
        while True:
            work(session, consumer, store, step)


def work(
    session: Session, consumer: Consumer, store: DecisionStore, step: Callable[[], None]
) -> None:
    """Raises: what the broker or the database does; then what is prepared is not decided."""
    jobs = consumer.fetch(TOGETHER, timeout=0.2)
    if not jobs:
        return
    xid = session.xid(1, secrets.token_hex(16), session.name)
    session.tpc_begin(xid)
    for job in jobs:
        session.publish("results", job.data)
        job.ack()
    step()
    try:
        session.tpc_prepare(T)
    except ZBrokerError as error:
        if error.code != "transaction_aborted":
            raise
        return
    step()
    store.insert(str(xid), (int(job.data) for job in jobs))
    store.commit()
    step()
    session.tpc_commit(timeout=T)


def settle(session: Session, store: DecisionStore, xid: Xid) -> None:
    """Decides a transaction by what the database has."""
    decide = session.tpc_commit if store.settle(str(xid)) else session.tpc_rollback
    try:
        decide(xid, timeout=T)
    except ZBrokerError as error:
        if error.code != "unknown_branch":  # another program has decided it, by the same row
            raise


if __name__ == "__main__":
    main()
