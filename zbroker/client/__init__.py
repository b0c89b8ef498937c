"""The client library: publish, subscribe, replay, consume. See `connector.py` and `sync.py`."""

from zbroker.client.connector import connect
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.rejection import Reject
from zbroker.client.consumer.worker import Worker
from zbroker.client.message import Message
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.servers import ListChooser, ServerChooser
from zbroker.client.stage_commits import Commit, abort, commit
from zbroker.client.states import ConnectionState
from zbroker.client.subscriber.combined import Combined
from zbroker.client.subscriber.subscription import Subscription
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
