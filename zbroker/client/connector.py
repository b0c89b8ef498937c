"""`connect()`: a client with threads, logged on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

from zbroker.client import options
from zbroker.client.credentials import Credentials
from zbroker.client.options import BookmarkStore, Listener, PublishStore, PublishSync, URLs
from zbroker.client.subscriber.options import Duration
from zbroker.client.sync import Client
from zbroker.errors import ZBrokerError

TIMEOUT_S: Final = 10.0


def connect(  # noqa: PLR0913 - every option by its name
    url: URLs,
    name: str | None = None,
    *,
    publish_store: PublishStore = "memory",
    publish_sync: PublishSync = None,
    store_bytes: int | None = None,
    store_messages: int | None = None,
    bookmark_store: BookmarkStore | None = None,
    heartbeat: Duration | None = None,
    ack_interval: Duration | None = None,
    timeout: float = TIMEOUT_S,
    give_up: Duration | None = None,
    broker_behind: Literal["fail", "go_on"] = "fail",
    on_state: Listener | Iterable[Listener] | None = None,
    on_refused: Callable[[ZBrokerError], object] | None = None,
    credentials: Credentials | None = None,
    stage: str | None = None,
) -> Client:
    """A client that is logged on at an ingest door.

    url: of the door; several: one after the other until one works; or a ServerChooser.
    name: of the publisher; the broker knows by it what it has already. None makes a new one.
    publish_store: keeps what the broker has not acknowledged: "memory", or a directory, which a
    kill of this process does not touch; one client at a time has it open, under one name. What it
    holds is published first. publish_sync: what of a directory a power cut does not touch: "each",
    all that `publish` returned for; an interval, all that is older; None, nothing.
    store_bytes, store_messages: how much it holds (64 MiB, in a directory 1 GiB).
    bookmark_store: for `subscribe(name=...)`: "memory", a directory, or a store that its maker
    closes, after the client.
    heartbeat: after twice that time each side takes a silent other one for gone.
    ack_interval: the broker acknowledges once in this time (60 s at most), not with each commit:
    less traffic, while receipts and `flush` wait that much longer.
    timeout: seconds for the first session. give_up: how long a lost one is sought; None: for ever.
    broker_behind: what to do at a broker that lacks messages which were acknowledged: another
    instance, or an old copy. on_state: told of what becomes of the connection; on_refused: of each
    final refusal; both by a thread for that. credentials: the keys, where the broker asks for some.
    stage: a token of up to 64 bytes: what is published is durable, and nobody is shown it before
    `commit` names the token.
    Raises: ZBrokerError "timeout" without a session in `timeout` seconds, name_in_use,
    store_in_use, store_damaged, broker_behind, ...
    """
    wanted = options.wanted(
        url, name, publish_store=publish_store, publish_sync=publish_sync, store_bytes=store_bytes,
        store_messages=store_messages, bookmark_store=bookmark_store, heartbeat=heartbeat,
        ack_interval=ack_interval, give_up=give_up, broker_behind=broker_behind,
        on_state=on_state, on_refused=on_refused, credentials=credentials, stage=stage,
    )  # fmt: skip
    client = Client(wanted)
    try:
        client._start(timeout)
    except BaseException:
        client.close(flush=False)
        raise
    return client
