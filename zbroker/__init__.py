"""zbroker: a durable message broker whose log is the product.

    with zbroker.LocalBroker() as broker, zbroker.connect(broker.url, name="pricer") as client:
        client.publish("orders", b"...").wait(timeout=5)

Names are imported when they are first used, so that the broker never pays for the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from zbroker import aio, errors
    from zbroker.client import connect
    from zbroker.client.bookmark_stores.file import FileBookmarkStore
    from zbroker.client.bookmark_stores.memory import MemoryBookmarkStore
    from zbroker.client.command import Command
    from zbroker.client.connect_types import Credentials
    from zbroker.client.consumer.message import Reject
    from zbroker.client.subscriber.points import Range
    from zbroker.local import LocalBroker

__version__ = "0.1.0"
__all__ = [
    "Command",
    "Credentials",
    "FileBookmarkStore",
    "LocalBroker",
    "MemoryBookmarkStore",
    "Range",
    "Reject",
    "__version__",
    "aio",
    "connect",
    "errors",
]

#: name -> module that has it; an empty attribute is the module itself
_LAZY: Final = {
    "Command": ("zbroker.client.command", "Command"),
    "Credentials": ("zbroker.client.connect_types", "Credentials"),
    "FileBookmarkStore": ("zbroker.client.bookmark_stores.file", "FileBookmarkStore"),
    "LocalBroker": ("zbroker.local", "LocalBroker"),
    "MemoryBookmarkStore": ("zbroker.client.bookmark_stores.memory", "MemoryBookmarkStore"),
    "Range": ("zbroker.client.subscriber.points", "Range"),
    "Reject": ("zbroker.client.consumer.message", "Reject"),
    "aio": ("zbroker.aio", ""),
    "connect": ("zbroker.client", "connect"),
    "errors": ("zbroker.errors", ""),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name not in _LAZY:
        raise AttributeError(f"module 'zbroker' has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    module = import_module(module_name)
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
