"""The client library: publish, subscribe, replay. See `connecting.py` and `sync.py`."""

from zbroker.client.connecting import connect
from zbroker.client.message import Message
from zbroker.client.publishing.receipt import Receipt
from zbroker.client.servers import ListChooser, ServerChooser
from zbroker.client.states import ConnectionState
from zbroker.client.subscribing.combined import Combined
from zbroker.client.subscribing.subscription import Subscription
from zbroker.client.sync import Client

__all__ = [
    "Client",
    "Combined",
    "ConnectionState",
    "ListChooser",
    "Message",
    "Receipt",
    "ServerChooser",
    "Subscription",
    "connect",
]
