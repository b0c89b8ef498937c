"""Sessions with transactions in an event loop. See zbroker/client/session.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from zbroker.client.aio.consumer import AsyncConsumer
from zbroker.client.aio.transport import AsyncConsumerPort
from zbroker.client.session import BaseSession, TransactionalPort
from zbroker.client.transaction import COMMIT_S, Transaction


class AsyncTransactionalPort(TransactionalPort, AsyncConsumerPort):
    """A consumer's connection in an event loop."""


class AsyncSessionConsumer(AsyncConsumer):
    """Made by `AsyncSession.consume`."""

    _port_type = AsyncTransactionalPort


class AsyncSession(BaseSession):
    """Made by `Client.session`; used by `async with`. One task uses it at a time."""

    _consumer_type = AsyncSessionConsumer

    @asynccontextmanager
    async def transaction(self, timeout: float = COMMIT_S) -> AsyncIterator[Transaction]:
        """As `zbroker.client.Session.transaction`, by `async with`."""
        transaction = await self._begin(timeout)
        try:
            yield transaction
        except BaseException:
            await self._rollback()
            raise
        await self._commit(timeout)

    declare_queue = BaseSession._declare_queue
    delete_queue = BaseSession._delete_queue
    purge_queue = BaseSession._purge_queue
    bind = BaseSession._bind
    unbind = BaseSession._unbind

    tpc_begin = BaseSession._tpc_begin
    tpc_prepare = BaseSession._tpc_prepare
    tpc_commit = BaseSession._tpc_commit
    tpc_rollback = BaseSession._tpc_rollback
    tpc_recover = BaseSession._tpc_recover
    tpc_forget = BaseSession._tpc_forget

    close = BaseSession._close
    fail = BaseSession._fail

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
