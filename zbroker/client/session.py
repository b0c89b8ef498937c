"""Sessions with transactions: all that one publishes and acknowledges holds, or nothing of it.

    with client.session("billing") as session:
        for message in session.consume("orders"):
            with session.transaction():
                session.publish("invoices", invoice(message))
                message.ack()

A session has a publisher of its own. In a transaction its messages are staged at the broker, where
they are durable and shown to no subscriber; acknowledgements are kept here. The commit makes all of
it one unit of the log. `BaseSession` is what sessions with threads and in event loops share.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import asdict

from zbroker.client.branch_link import BranchLink
from zbroker.client.branches import BranchMethods
from zbroker.client.consumer.consumer import BaseConsumer, Consumer
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import ACK, Verb
from zbroker.client.consumer.transport import ConsumerThread, ConsumerTransport
from zbroker.client.options import ConnectOptions
from zbroker.client.publisher.core import Policy
from zbroker.client.publisher.publisher import PublisherSettings
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.publisher.store import MemoryStore
from zbroker.client.session_keeper import SessionKeeper
from zbroker.client.session_link import SessionEnd, SessionLink, Takes, TransactionId
from zbroker.client.session_queues import SessionQueues
from zbroker.client.transaction import COMMIT_S, Transaction, TransactionResult
from zbroker.client.waits import blocking, run
from zbroker.errors import ZBrokerError
from zbroker.ids import check_client_name, publisher_id
from zbroker.limits import SESSION_MAX_BYTES
from zbroker.wire.messages import Logon
from zbroker.wire.transactions import RESTATED_MAX, RejectedMessages

if TYPE_CHECKING:
    from zbroker.client.base_client import BaseClient
    from zbroker.client.endpoints import ListenerEndpoints
    from zbroker.client.subscriber.options import ConsumeOptions

ROLLBACK_S: Final = 10.0
PUBLISHER: Final = "session."  # how the name of its publisher begins
#: names of its publisher: a program that hangs may still have one, and names are known for ever
SLOTS: Final = 8
_RELEASE: Final = Verb("release")

T = TypeVar("T")


def session_options(name: str, options: ConnectOptions, slot: int) -> ConnectOptions:
    """Those of the client of a session. options: of the client that it is made by. slot: which of
    the names for it.

    Raises: ZBrokerError bad_field, reserved_name.
    """
    check_client_name(name)
    if len(name.encode()) > SESSION_MAX_BYTES:
        text = f"the name of a session has at most {SESSION_MAX_BYTES} bytes"
        raise ZBrokerError("bad_field", text)
    client, before = f"{PUBLISHER}{name}" + (f".{slot}" if slot else ""), options.settings
    policy = Policy(True, before.policy.give_up_ms, before.policy.brokers)
    settings = PublisherSettings(
        before.store_bytes, before.store_messages, policy, curve=before.curve
    )
    logon = Logon(
        client, secrets.token_hex(8), credentials=options.logon.credentials,
        heartbeat_s=options.logon.heartbeat_s,
    )  # fmt: skip
    return options._replace(
        logon=logon, publisher=publisher_id(client), settings=settings, store=MemoryStore(),
        bookmarks=None, owned=False,
    )  # fmt: skip


class TransactionalPort(ConsumerTransport):
    """A consumer's connection whose acks and rejects belong to the transaction that is open, if one
    is."""

    session: BaseSession | None = None

    def ack(self, message: QueueMessage) -> None:
        if self.session is None or not self.session._take(self, ACK, (message,)):
            super().ack(message)

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        session = self.session if verb.kind in ("ack", "reject") else None
        if session is None or not session._take(self, verb, messages):
            super().settle(verb, messages)


class BaseSession(BranchMethods, SessionQueues):
    """Made by `Client.session`; one thread or task uses it at a time."""

    _consumer_type: type[Any]

    def __init__(
        self, client: BaseClient[Any, Any, Any, Any], name: str, *, force: bool,
        timeout_ms: int = 0,
    ) -> None:  # fmt: skip
        client._consumer_type = self._new_consumer  # type: ignore[assignment]
        self.name = name
        self._client = client
        self._link = SessionLink(
            client._queues, name, force=force, timeout_ms=timeout_ms, on_attached=self._attached,
            consumers=self._restated,
        )  # fmt: skip
        self._branches = BranchLink(client._queues, self._link)
        self._keeper = SessionKeeper(self._link) if timeout_ms else None
        #: one that its program keeps in no variable goes on: what it gave is to be committed
        self._consumers: list[BaseConsumer] = []
        self._transaction: Transaction | None = None
        self._staged = False  # what its client publishes has the token of a transaction
        self._error: ZBrokerError | None = None  # what ended it
        self._over = False  # it is being detached
        self._ended_before: SessionEnd | None = None

    # -- what both do -------------------------------------------------------------------------

    def publish(self, topic: str, data: bytes, **options: Any) -> Receipt:  # noqa: ANN401 - as there
        """As `Client.publish`; in a transaction it is shown when that is committed.

        The receipt says that it is durable, not that it is shown.
        """
        if self._error is not None:
            raise self._error
        if self._transaction is not None:
            self._transaction.check_open()
        elif self._staged:
            self._client._publisher.stage(None)
            self._staged = False
        receipt: Receipt = self._client.publish(topic, data, **options)  # type: ignore[attr-defined]
        if self._transaction is not None:
            self._transaction.messages += 1
        return receipt

    def consume(self, queue: str, **options: Any) -> Any:  # noqa: ANN401 - as its client has them
        """As `Client.consume`; in a transaction acks and rejects are kept until that is committed.

        Releases count at once. A replayable queue has no part in transactions. With a
        session_timeout its messages have no lease: they last as long as the session. It is open
        until it is closed, or the session is.
        """
        consumer = self._client.consume(queue, **options)
        consumer._port.session = self
        return consumer

    @property
    def last(self) -> TransactionId | None:
        """The transaction of this name that was committed last when the session was attached."""
        return self._link.last

    @property
    def ended_before(self) -> SessionEnd | None:
        """Why the session of this name was over when it was attached; None: it was not."""
        return self._ended_before

    def _new_consumer(self, listeners: ListenerEndpoints, options: ConsumeOptions) -> Any:  # noqa: ANN401
        if self._keeper is not None:
            options.command.session, options.command.epoch = self.name, self._link.epoch
        consumer = self._consumer_type(listeners, options)
        if self._keeper is not None:
            consumer._port.core.session_lasts = self._lasts
        self._consumers = [*(one for one in self._consumers if not one._closed), consumer]
        return consumer

    def _lasts(self) -> bool:
        """Whether it may be attached again, and its consumers with it."""
        return self._link.error is None and not self._over

    def _attached(self, epoch: int) -> None:
        """Consumers that begin again say the newest epoch."""
        for consumer in [*self._consumers] if self._keeper is not None else ():
            consumer._command.epoch = epoch

    def _restated(self) -> list[tuple[str, str]] | None:
        """Queues and holders of the consumers that it has, where these hold messages."""
        cores = [(one._port.core, one._command) for one in self._consumers if not one._closed]
        commands = [command for core, command in cores if not (core.replays or core.once)]
        if len(commands) > RESTATED_MAX:
            return None
        return [(command.queue, command.holder) for command in commands]

    def _take(self, port: ConsumerTransport, verb: Verb, messages: Iterable[QueueMessage]) -> bool:
        """Whether a transaction takes these acks or rejects. Raises: ZBrokerError bad_command."""
        if self._transaction is None:
            return False
        if verb.kind == "reject" and not self._link.takes_rejects:
            text = "an earlier release of the broker takes no rejects in a transaction"
            raise ZBrokerError("bad_command", text, "update it, or reject after the transaction")
        self._transaction.take(port, verb, messages)
        return True

    async def _open(self, timeout: float) -> None:
        """Raises: as `Client.session`; it is closed."""
        try:
            await self._client._open(timeout)
            await self._client._aside(self._link.attach, timeout)
        except BaseException:
            await self._close()
            raise
        self._ended_before = self._link.ended
        if self._keeper is not None:
            self._keeper.start()

    async def _begin(self, timeout: float) -> Transaction:
        if self._error is not None:
            raise self._error
        if self._transaction is not None:
            text = f"a transaction of session {self.name!r} is open"
            raise ZBrokerError("bad_command", text, "they are one after the other")
        client = self._client
        if client.unpersisted:
            await client._flush(timeout)
        id_, token = await client._aside(self._link.begin, timeout)
        client._publisher.stage(token)
        self._staged, self._transaction = True, Transaction(id_)
        return self._transaction

    async def _commit(self, timeout: float) -> None:
        transaction = self._transaction
        assert transaction is not None, "it was begun"
        done = await self._hand_in(self._link.commit, timeout)
        if done is not None:
            transaction.committed = TransactionResult(
                done.messages, done.position, done.accepted, rejected=done.rejected
            )
        self._transaction = None

    async def _hand_in(
        self, ask: Callable[[int, Takes, float], T], timeout: float, *, empty: bool = False
    ) -> T | None:
        """The answer to all that the transaction has; it is rolled back if there is none.

        empty: asks also where it has nothing.
        """
        transaction = self._transaction
        assert transaction is not None, "it was begun"
        try:
            await self._client._flush(timeout)
            takes = Takes([], [])
            for port, verb, messages in transaction.taken:
                taken = port.read(partial(_accepting, messages))
                if verb.kind == "reject":
                    takes.rejects.append(RejectedMessages(**asdict(taken), reason=verb.reason))
                else:
                    takes.accepts.append(taken)
            answer = None
            if transaction.messages or any(takes) or empty:
                hand_in = partial(ask, transaction.messages, takes, timeout)
                answer = await self._client._aside(hand_in)
        except BaseException as error:
            if isinstance(error, ZBrokerError) and error.code == "session_fenced":
                self._error = error
            await self._rollback()
            raise
        for port, _, messages in transaction.taken:
            port.read(partial(_accepted, messages))
        return answer

    async def _rollback(self) -> None:
        """Its messages end at the broker by themselves; what it took comes again. One that is
        prepared stays."""
        transaction, self._transaction = self._transaction, None
        if transaction is None or not transaction.is_open:
            return
        for port, _, messages in transaction.taken:
            with suppress(ZBrokerError):  # the consumer is over: they come again all the same
                port.settle(_RELEASE, messages)
        try:
            await self._client._flush(ROLLBACK_S)
        except ZBrokerError as error:
            if self._client.unpersisted:  # the next transaction must not get mixed with it
                self._error = self._error or error

    async def _close(self, *, timeout: float | None = ROLLBACK_S) -> None:
        """Ends it; a transaction that is open is rolled back, one that is prepared waits for its
        decision. Its consumers end, too.

        Another program may attach the session at any time. One with a session_timeout is detached:
        what its consumers hold comes back at once.
        """
        await self._rollback()
        if self._keeper is not None and not self._over:
            self._over = True
            self._keeper.close()
            await self._client._close_consumers(timeout, flush=self._error is None)
            with suppress(ZBrokerError):  # then it times out
                await self._client._aside(self._link.detach, "", "", ROLLBACK_S)
        await self._client._aside(self._link.close)
        await self._client._close(flush=self._error is None, timeout=timeout)

    async def _fail(self, code: str, text: str = "", timeout: float = ROLLBACK_S) -> None:
        """Ends the session on every instance, and says why to the next program that attaches it.

        A transaction that is open is rolled back; what its consumers hold comes back, as deliveries
        that failed. It is closed then. code: up to 64 characters; text: up to 1,024.
        Raises: ZBrokerError session_fenced (it is over), bad_field, "timeout"; closed all the same.
        """
        await self._rollback()
        self._over = True
        if self._keeper is not None:
            self._keeper.close()
        try:
            await self._client._aside(self._link.detach, code, text, timeout)
        finally:
            await self._close()

    def __repr__(self) -> str:
        state = "in a transaction" if self._transaction is not None else "idle"
        return f"{type(self).__name__}({self.name!r}, {state})"


def _accepting(messages: Sequence[QueueMessage], core: ConsumerCore) -> Any:  # noqa: ANN401
    return core.accepting(messages)


def _accepted(messages: Sequence[QueueMessage], core: ConsumerCore) -> None:
    core.accepted(messages)


class TransactionalThread(TransactionalPort, ConsumerThread):
    """The same with a thread."""


class SessionConsumer(Consumer):
    """Made by `Session.consume`."""

    _port_type = TransactionalThread


class Session(BaseSession):
    """Made by `Client.session`; a context manager. One thread uses it at a time."""

    _consumer_type = SessionConsumer

    @contextmanager
    def transaction(self, timeout: float = COMMIT_S) -> Iterator[Transaction]:
        """All messages that the session publishes, acknowledges and rejects in the block hold when
        it ends, or none of them if it raises.

        Acknowledged and rejected messages come again then. timeout: seconds for the commit.
        Raises: ZBrokerError transaction_aborted (nothing holds: a message was not held any more, or
        the broker had waited for a minute), session_fenced (the session was attached elsewhere:
        this one is over), outcome_unknown, or what a publish was refused with.
        """
        transaction = run(self._begin(timeout))
        try:
            yield transaction
        except BaseException:
            run(self._rollback())
            raise
        run(self._commit(timeout))

    declare_queue = blocking(BaseSession._declare_queue)
    delete_queue = blocking(BaseSession._delete_queue)
    purge_queue = blocking(BaseSession._purge_queue)
    bind = blocking(BaseSession._bind)
    unbind = blocking(BaseSession._unbind)

    tpc_begin = blocking(BaseSession._tpc_begin)
    tpc_prepare = blocking(BaseSession._tpc_prepare)
    tpc_commit = blocking(BaseSession._tpc_commit)
    tpc_rollback = blocking(BaseSession._tpc_rollback)
    tpc_recover = blocking(BaseSession._tpc_recover)
    tpc_forget = blocking(BaseSession._tpc_forget)

    close = blocking(BaseSession._close)
    fail = blocking(BaseSession._fail)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
