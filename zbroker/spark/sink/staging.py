"""What a task of a writing job does: it publishes its rows under a token that it makes up.

A task that is tried again has another token, and so has its copy in another executor: what counts
is in the commit, which names the tokens of the attempts that Spark chose. The others expire.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa

from zbroker.client import Client, connect
from zbroker.client.connect_types import Credentials
from zbroker.client.stage_commits import principal_of
from zbroker.errors import ClientError, NameInUse
from zbroker.limits import MIB
from zbroker.spark.sink.rows import SinkMessages, messages

CONNECT_S: Final = 60.0
NAMES_MAX: Final = 100  # that are tried, before one is made up
STORE_BYTES: Final = 4 * MIB  # on their way: more would have other publishers wait, nothing else
FLUSH_S: Final = 600.0  # a broker that restarts, or has a full disk for a while


class Staged(NamedTuple):
    """A token, and how many messages were staged under it."""

    token: str
    messages: int


class SinkTarget(NamedTuple):
    """Where to: `topic` "" for the column of that name."""

    url: str
    topic: str
    credentials: Credentials | None


def stage(batches: Iterable[pa.RecordBatch], to: SinkTarget, name: str) -> Staged:
    """Stages all rows, in their order; durable when this returns.

    name: of the publisher. The broker keeps each name for ever, so it should come again.
    Raises: ZBrokerError, with nothing shown to anybody.
    """
    token, count = secrets.token_hex(16), 0
    client: Client | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if client is None:
                client = _connect(to, name, token)
            _publish(client, messages(batch, to.topic))
            count += batch.num_rows
        if client is not None:
            client.flush(FLUSH_S)
    finally:
        if client is not None:
            client.close(flush=False)
    return Staged(token, count)


def _connect(to: SinkTarget, name: str, token: str) -> Client:
    """Another job's task may have the name, or one that lives on although Spark gave it up.

    With security on names begin with the principal: its own, which nobody else can take first.
    """
    principal = _principal(to.url, to.credentials) if to.credentials is not None else ""
    names = [f"{principal}.{name}", name] if principal else [name]

    def log_on(as_who: str) -> Client:
        return connect(
            to.url, as_who, timeout=CONNECT_S, credentials=to.credentials, stage=token,
            store_bytes=STORE_BYTES,
        )  # fmt: skip

    for base in names:
        for number in range(1, NAMES_MAX):
            try:
                return log_on(base if number == 1 else f"{base}-{number}")
            except NameInUse:
                continue
            except ClientError as error:
                if error.code != "not_entitled":
                    raise
                break  # its names are listed in the access file, or this one is another's
    return log_on(f"{name}-{token[:8]}")


@lru_cache(maxsize=100)
def _principal(url: str, credentials: Credentials) -> str:
    """Asked once by each worker process of Spark."""
    return principal_of(url, credentials=credentials, timeout=CONNECT_S)


def _publish(client: Client, rows: SinkMessages) -> None:
    if rows.keys is None:
        client.publish_many(rows.topics, rows.payloads)
        return
    topics = [rows.topics] * len(rows.payloads) if isinstance(rows.topics, str) else rows.topics
    for topic, payload, key in zip(topics, rows.payloads, rows.keys, strict=True):
        client.publish(topic, payload, key=key)
