"""What `connect` is given, checked, for the client with threads and the asynchronous one alike."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

from zbroker.client.bookmark_stores.file import FileBookmarkStore
from zbroker.client.bookmark_stores.memory import MemoryBookmarkStore
from zbroker.client.connect_types import ConnectionState, Credentials, ListChooser, ServerChooser
from zbroker.client.publisher.core import Policy
from zbroker.client.publisher.file_store import FileStore, Sync
from zbroker.client.publisher.publisher import NEVER, PublisherSettings
from zbroker.client.publisher.store import MemoryStore
from zbroker.client.subscriber.options import TIMEOUT_S, Duration, choice, seconds, whole_number
from zbroker.errors import ZBrokerError
from zbroker.ids import check_client_name, publisher_id
from zbroker.limits import GIB, MIB
from zbroker.wire.messages import Logon

MEMORY_BYTES = 64 * MIB
FILE_BYTES = 1 * GIB
STAGE_MAX_BYTES = 64

URLs = str | Sequence[str] | ServerChooser
PublishStore = Literal["memory"] | str | PathLike[str]
PublishSync = Literal["each"] | Duration | None
BookmarkStore = Literal["memory"] | str | PathLike[str] | MemoryBookmarkStore
Listener = Callable[[ConnectionState], object]


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


class ConnectOptions(NamedTuple):
    """How a client publishes and what it remembers. `owned`: the bookmark store ends with it.

    timeout: for the first session.
    """

    servers: ServerChooser
    logon: Logon
    publisher: int
    settings: PublisherSettings
    store: MemoryStore
    bookmarks: MemoryBookmarkStore | None
    owned: bool
    timeout: float


def takes(build: Callable[P, T]) -> Callable[[Callable[[Callable[[], T]], R]], Callable[P, R]]:
    """Gives a function the parameters of `build`: it is called with what builds them.

    So an option has its name, its default and its check in one place.
    """

    def decorate(function: Callable[[Callable[[], T]], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(partial(build, *args, **kwargs))

        return _signed(call, build, function)

    return decorate


def method_takes(
    build: Callable[P, T],
) -> Callable[[Callable[[C, Callable[[], T]], R]], Callable[Concatenate[C, P], R]]:
    """The same for a method."""

    def decorate(method: Callable[[C, Callable[[], T]], R]) -> Callable[Concatenate[C, P], R]:
        @wraps(method)
        def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return method(self, partial(build, *args, **kwargs))

        return _signed(call, build, method)

    return decorate


def _signed(call: F, build: Callable[..., object], function: Callable[..., object]) -> F:
    """What `help` shows of it, and tools that complete its options."""
    own = inspect.signature(function)
    selves = list(own.parameters.values())[:-1]
    parameters = [*selves, *inspect.signature(build).parameters.values()]
    signature = own.replace(parameters=parameters)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def connect_options(  # noqa: PLR0913 - every option by its name
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
) -> ConnectOptions:
    """See `zbroker.connect`.

    Raises: TypeError, ZBrokerError bad_field, reserved_name, store_in_use, store_failed, ...
    """
    if name is not None:
        check_client_name(name)
    elif publish_store != "memory":
        raise ZBrokerError(
            "bad_field", "a client with a publish store in a file needs a name",
            "the broker knows by it what it has already",
        )  # fmt: skip
    client = name or f"client-{secrets.token_hex(8)}"
    heartbeat_s = None if heartbeat is None else seconds("heartbeat", heartbeat)
    interval_s = None if ack_interval is None else seconds("ack_interval", ack_interval)
    size = MEMORY_BYTES if publish_store == "memory" else FILE_BYTES
    settings = PublisherSettings(
        size if store_bytes is None else whole_number("store_bytes", store_bytes),
        NEVER if store_messages is None else whole_number("store_messages", store_messages),
        _policy(give_up, broker_behind, stage, _brokers(url)),
        [on_state] if callable(on_state) else list(on_state or ()),
        on_refused,
        credentials.curve() if credentials is not None else None,
    )
    chooser = servers(url)
    bookmarks = _bookmarks(bookmark_store, name)
    try:
        store = _store(publish_store, publish_sync, client)
    except BaseException:
        if bookmarks is not None and bookmarks is not bookmark_store:
            bookmarks.close()
        raise
    given = credentials.given() if credentials is not None else None
    logon = Logon(
        client, secrets.token_hex(8), credentials=given, heartbeat_s=heartbeat_s,
        ack_interval_s=interval_s,
    )  # fmt: skip
    owned = bookmarks is not bookmark_store
    return ConnectOptions(
        chooser, logon, publisher_id(client), settings, store, bookmarks, owned, timeout
    )


def _brokers(url: URLs) -> int:
    """How many there are; of a ServerChooser of the program it is only known that it chooses."""
    if isinstance(url, str):
        return 1
    return len(url) if isinstance(url, Sequence) else 2


def servers(url: URLs) -> ServerChooser:
    if isinstance(url, str):
        return ListChooser([url])
    return ListChooser(list(url)) if isinstance(url, Sequence) else url


def _store(wish: PublishStore, sync: PublishSync, client: str) -> MemoryStore:
    if wish != "memory":
        return FileStore(wish, client, sync=_sync(sync))
    if sync is not None:
        raise ZBrokerError("bad_field", "publish_sync goes with a publish_store in a directory")
    return MemoryStore()


def _sync(wish: PublishSync) -> Sync:
    if wish is None:
        return None
    return "each" if wish == "each" else float(seconds("publish_sync", wish))


def _bookmarks(wish: BookmarkStore | None, name: str | None) -> MemoryBookmarkStore | None:
    """Raises: TypeError, ZBrokerError bad_field; StorageError of a store in a file."""
    if wish is None:
        return None
    if wish == "memory":
        store = MemoryBookmarkStore()
    elif isinstance(wish, str | PathLike):
        store = FileBookmarkStore(Path(wish))
    else:
        store = wish
    if not isinstance(store, MemoryBookmarkStore):
        raise TypeError(f"bookmark_store is not a {type(store).__name__}")
    if name is None:
        raise ZBrokerError(
            "bad_field", "a client with a bookmark store needs a name", "it is part of the key"
        )
    return store


def _policy(
    give_up: Duration | None, broker_behind: str, stage: str | None, brokers: int
) -> Policy:
    choice("broker_behind", broker_behind, ("fail", "go_on"))
    give_up_ms = None if give_up is None else int(seconds("give_up", give_up) * 1_000)
    if stage is not None and not 0 < len(stage.encode()) <= STAGE_MAX_BYTES:
        raise ZBrokerError("bad_field", f"a stage has a token of 1 to {STAGE_MAX_BYTES} bytes")
    return Policy(broker_behind == "go_on", give_up_ms, brokers, stage)
