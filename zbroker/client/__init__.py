"""The client library: publish, subscribe, replay. See `zbroker.client.sync`."""

from zbroker.client.message import Message
from zbroker.client.publishing.receipt import Receipt
from zbroker.client.subscribing.combined import Combined
from zbroker.client.subscribing.subscription import Subscription
from zbroker.client.sync import Client, connect

__all__ = ["Client", "Combined", "Message", "Receipt", "Subscription", "connect"]
