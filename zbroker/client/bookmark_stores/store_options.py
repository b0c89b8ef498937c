"""What `subscribe` is given for the bookmark store, checked, and where the subscription begins."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from zbroker.client.bookmark_stores.format import Key
from zbroker.client.bookmark_stores.memory import MemoryBookmarkStore
from zbroker.client.bookmark_stores.progress import resume_point
from zbroker.client.bookmark_stores.tracker import Manner, Tracking
from zbroker.errors import ZBrokerError
from zbroker.ids import EPOCH, format_vector
from zbroker.wire.messages import Options, Subscribe

Discard = Literal["auto", "manual"]


class StoreOptions(NamedTuple):
    """name: of the subscription. recent: it begins where the store says. discard: by whom."""

    name: str | None
    recent: bool
    discard: Discard


def checked(store: MemoryBookmarkStore | None, client: str | None) -> None:
    """What `connect` was given. Raises: TypeError, ZBrokerError bad_field."""
    if store is not None and not isinstance(store, MemoryBookmarkStore):
        raise TypeError(f"bookmark_store is no {type(store).__name__}")
    if store is not None and client is None:
        raise ZBrokerError(
            "bad_field", "a client with a bookmark store needs a name", "it is part of the key"
        )


def tracked(
    store: MemoryBookmarkStore | None, client: str, wanted: StoreOptions, command: Subscribe
) -> Tracking | None:
    """The subscription's place in the store; None without a name. `command` gets its begin.

    Raises: ZBrokerError bad_field, name_in_use, closed, StorageError store_failed.
    """
    if wanted.discard not in get_args(Discard):
        raise ZBrokerError("bad_field", f"discard={wanted.discard!r} is neither auto nor manual")
    if wanted.name is None:
        if wanted.recent or wanted.discard == "manual":
            what = "since='recent'" if wanted.recent else "discard='manual'"
            raise ZBrokerError("bad_field", f"{what} needs the name of the subscription")
        return None
    if store is None:
        raise ZBrokerError(
            "bad_field", f"the client has no bookmark store for the subscription {wanted.name!r}",
            "give connect() a bookmark_store",
        )  # fmt: skip
    options = command.options or Options()
    by_mark = options.delivery == "live" or options.conflation_s is not None
    manner = Manner(anew=not wanted.recent, auto=wanted.discard == "auto", by_mark=by_mark)
    tracking = store._track(Key(client, wanted.name), manner)
    if wanted.recent:
        vector = resume_point(tracking.stored)
        command.bookmark = format_vector(vector) if vector else EPOCH
    return tracking
