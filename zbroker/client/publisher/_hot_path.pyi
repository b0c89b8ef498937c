"""The compiled module has what pure_python.py has."""

from zbroker.client.publisher.pure_python import Inbox as Inbox
from zbroker.client.publisher.pure_python import MappedRecords as MappedRecords
from zbroker.client.publisher.pure_python import QueuedMessage as QueuedMessage
from zbroker.client.publisher.pure_python import StagingArea as StagingArea
from zbroker.client.publisher.pure_python import gated as gated
from zbroker.client.publisher.pure_python import number as number
from zbroker.client.publisher.pure_python import payloads as payloads
from zbroker.client.publisher.pure_python import receipts as receipts
from zbroker.client.publisher.pure_python import untracked as untracked
