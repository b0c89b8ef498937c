"""The client library: publish, subscribe, replay, consume. See `connecting.py` and `sync.py`."""

from zbroker.client.committing import Commit, abort, commit
from zbroker.client.connecting import connect
from zbroker.client.consuming.consumer import Consumer
from zbroker.client.consuming.message import QueueMessage
from zbroker.client.consuming.rejecting import Reject
from zbroker.client.consuming.worker import Worker
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
    "Commit",
    "ConnectionState",
    "Consumer",
    "ListChooser",
    "Message",
    "QueueMessage",
    "Receipt",
    "Reject",
    "ServerChooser",
    "Subscription",
    "Worker",
    "abort",
    "commit",
    "connect",
]
