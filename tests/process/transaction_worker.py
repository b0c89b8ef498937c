"""A worker that takes jobs and publishes their results in transactions, until it is killed.

python -m tests.process.transaction_worker URL NAME
"""

from __future__ import annotations

import sys
import time
from typing import Final

import zbroker
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.session import Session
from zbroker.errors import ZBrokerError

TOGETHER: Final = 20  # jobs of one transaction
T: Final = 30.0


def main() -> None:
    """Connects again after every trouble."""
    url, name = sys.argv[1:]
    while True:
        try:
            with (
                zbroker.connect(url, name, timeout=T) as client,
                client.session(name, timeout=T) as session,
                session.consume("jobs", backlog=10 * TOGETHER, timeout=T) as consumer,
            ):
                work(session, consumer)
        except ZBrokerError:
            time.sleep(0.1)


def work(session: Session, consumer: Consumer) -> None:
    """Raises: ZBrokerError, if it is not known what became of a transaction."""
    while True:
        jobs = consumer.fetch(TOGETHER, timeout=0.2)
        try:
            with session.transaction(T):
                for job in jobs:
                    session.publish("results", job.data)
                    job.ack()
        except ZBrokerError as error:
            if error.code != "transaction_aborted":
                raise


if __name__ == "__main__":
    main()
