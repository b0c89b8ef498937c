"""The client library: publish, subscribe, replay, consume. `sync.py` has `connect` and `Client`."""

from zbroker.client.branches import BranchInfo
from zbroker.client.connect_types import ConnectionState, ListChooser, ServerChooser
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.consumer.message import QueueMessage, Reject
from zbroker.client.consumer.worker import Worker
from zbroker.client.exchange_lists import BindingInfo, ExchangeInfo
from zbroker.client.message import Message, MessageBatch
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.queue_commands import QueueInfo
from zbroker.client.queue_rows import BrowsedMessage
from zbroker.client.session import Session
from zbroker.client.stage_commits import Commit, abort, commit
from zbroker.client.subscriber.subscription import Combined, Subscription
from zbroker.client.sync import Client, connect
from zbroker.client.transaction import Transaction, TransactionResult
from zbroker.xids import Xid

__all__ = [
    "BindingInfo",
    "BranchInfo",
    "BrowsedMessage",
    "Client",
    "Combined",
    "Commit",
    "ConnectionState",
    "Consumer",
    "ExchangeInfo",
    "ListChooser",
    "Message",
    "MessageBatch",
    "QueueInfo",
    "QueueMessage",
    "Receipt",
    "Reject",
    "ServerChooser",
    "Session",
    "Subscription",
    "Transaction",
    "TransactionResult",
    "Worker",
    "Xid",
    "abort",
    "commit",
    "connect",
]
