"""One client's publishing between its inbox and its link. A shell runs it: see loop.py.

The application appends receipts to `inbox` and wakes the shell when it finds it longer than
`wake_at`; no lock is taken. The shell takes `inbox[:n]`, then deletes as many: appends of other
threads in between stay. With a store in a file a message is in that before it is in the inbox.
"""

from __future__ import annotations

import logging
import random
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar, Final, Protocol

import zmq
from msgspec import Struct

from zbroker import endpoints
from zbroker.client import effects as e
from zbroker.client.connect_types import ConnectionState, Name, ServerChooser
from zbroker.client.connection import Phase
from zbroker.client.link import CLOSE_LINGER_MS, ClientLink, Context
from zbroker.client.ports import Calls, LinkPort, defect, turn_of
from zbroker.client.publisher import hot_path, packer
from zbroker.client.publisher.core import Policy, PublisherCore
from zbroker.client.publisher.receipt import AckTracker, Receipt
from zbroker.client.publisher.store import MemoryStore
from zbroker.clock import Clock, SystemClock
from zbroker.engine.contract import Limit, Now, Performers, Ready
from zbroker.errors import ZBrokerError
from zbroker.limits import MESSAGE_MAX_BYTES
from zbroker.sockets import Curve
from zbroker.wire.messages import Ack, Logon

NEVER: Final = 1 << 62
TURN_BATCHES: Final = 16  # then acks are read: they free the window
SMALL_BYTES: Final = 1_024  # larger messages are counted one by one before they are queued
INBOX_MESSAGES: Final = 16_384
TOKEN_EVERY_MS: Final = 1_000  # a logon costs the publisher a round
SPACE_AGAIN_MS: Final = 1_000  # how often a store on a full disk looks for space
HOLD_MS: Final = 10  # so long messages of a transaction wait for more of it, or for its commit

_log: Final = logging.getLogger("zbroker.client")


class LogonResult(Struct):
    """The answer to the newest logon, for other connections; `number` counts the logons."""

    number: int
    url: str
    answer: Ack


class PublisherSettings(Struct):
    """store_bytes, store_messages: what may wait for the broker.

    on_state: called with each state of the connection; on_refused: with each final refusal. curve:
    the keys of this client and of its broker.
    """

    store_bytes: int
    store_messages: int = NEVER
    policy: Policy = Policy()
    on_state: list[Callable[[ConnectionState], object]] = []
    on_refused: Callable[[ZBrokerError], object] | None = None
    curve: Curve | None = None


class Follower(Protocol):
    """A connection to another listener, which the client's session keeps alive."""

    def client_ended(self, error: ZBrokerError) -> None:
        """There will be no session any more. In the publisher's thread or event loop."""

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on; None: none."""


class PublisherPort(hot_path.Inbox):
    """The inbox, which is a source of the core's turn. Threads read what has no underscore."""

    drained = True

    track_type: ClassVar[type[AckTracker]] = AckTracker

    def __init__(
        self,
        servers: ServerChooser,
        logon: Logon,
        publisher: int,
        settings: PublisherSettings,
        store: MemoryStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.context: Context = zmq.Context()
        self.track: AckTracker = self.track_type(publisher)
        self.inbox: list[Receipt] = []
        self.store = MemoryStore() if store is None else store
        self.staging = self.store.staging
        self.settings = settings
        self.inbox_max = max(16, min(INBOX_MESSAGES, settings.store_bytes // (4 * SMALL_BYTES)))
        # how long the inbox may get; 0 before the logon, when full and when ended
        self.inbox_limit = 0
        self.wake_at = NEVER
        self.largest = 0  # message that was ever queued, in bytes
        self.taken_large = 0  # bytes of larger messages taken out of the inbox so far
        self.stored_bytes = 0
        self.unsettled = self.store.messages  # taken out of the inbox and not settled
        self.message_max = MESSAGE_MAX_BYTES
        self.batch_max = packer.BATCH_BYTES
        self.session: LogonResult | None = None
        self.url = ""  # the one that is tried, or connected
        self.heartbeat_s = logon.heartbeat_s
        self._servers = servers
        self.clock = clock or SystemClock()
        self._name = logon.client
        self._core = PublisherCore(
            logon, self.clock.wall_ns(), random.Random().random, self.store, settings.policy
        )
        self._calls = Calls()  # requests between two turns
        self._space_again_ms: int | None = None  # the disk of the store was full; look again then
        self._held_to_ms: int | None = None  # messages of a transaction; None: there are none
        self._asked_ms = -TOKEN_EVERY_MS  # when a new session was asked for
        track = self.track
        track.last_refusal, track.unrecorded = self._last_refusal, self._core.unrecorded
        track.returned = self._core.returned
        track.ask_numbers, track.call, track.wake = self.numbers, self.call, self.wake
        track.hurry = self.hurry
        self.inbox += [
            Receipt(self.track, one.topic, one.value, one.time, one.extra)
            for one in self.store.leftover
        ]
        self.store.leftover = ()
        self.largest = max((len(one.value) for one in self.inbox), default=0)  # type: ignore[arg-type]
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._following = threading.Lock()
        self._link = self._prepare()
        self._link.handled = self._publish_state  # at once: somebody may wait for this ack
        self._renew_turn()

    def _renew_turn(self) -> None:
        more: list[tuple[Any, Limit]] = [(self, Limit(TURN_BATCHES)), *self._after_sending()]
        performers: Performers = {
            e.LogonAccepted: self._logged_on,
            e.MessagesRefused: self._refused,
            e.Ended: lambda effect: self._fail(effect.error),
            e.ConnectionLost: lambda _: self.tell("disconnected"),
            e.Republished: lambda _: self.tell("republished"),
            e.Behind: self._behind,
        }
        self._turn = turn_of(self._core, self._link, self._calls, self.now, performers, more)

    def follow(self, follower: Follower) -> None:
        """Has `follower` end with the client; at once if it has ended. From any thread."""
        with self._following:
            self._followers.add(follower)
            error = self.track.error
        if error is not None:
            follower.client_ended(error)

    def newer_session(self, than: int) -> LogonResult | None:
        """The newest session if its number is above `than`, else None; asks for one then."""
        session = self.session
        if session is not None and session.number > than:
            return session
        now_ms = self.clock.mono_ms()
        if now_ms >= self._asked_ms + TOKEN_EVERY_MS:
            self._asked_ms = now_ms
            self._ask_session()
        return None

    def numbers(self) -> int:
        """The sequence of the newest message, now that it has one.

        Raises: ZBrokerError, what ended the client.
        """
        return self._ask(self._number_all)

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats for all its connections; None: none. Raises: as above."""
        self.heartbeat_s = interval_s
        self._ask(self._beat_each)
        with self._following:
            followers = list(self._followers)
        for follower in followers:
            follower.beat_each(interval_s)

    def stage(self, token: str | None) -> None:
        """Stages all that is published from now on under this token; None: publishes it.

        To be called when nothing is unsettled: so the shell looks at nothing of this meanwhile.
        Raises: ZBrokerError, what ended the client.
        """
        if self.track.error is not None:
            raise self.track.error
        self._core.stage(token)

    def hurry(self) -> None:
        """Somebody waits for a message, which may be held."""
        if self._core.stages:
            self._held_to_ms = 0
            self.wake()

    def forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: it may not use its sockets, nor has it a thread."""
        self.track.error, self.inbox_limit = error, -1

    # -- what a shell adds --------------------------------------------------------------------

    def _prepare(self) -> LinkPort:
        """Makes what the shell has besides. Returns: what moves its bytes."""
        raise NotImplementedError

    def _after_sending(self) -> list[tuple[Any, Limit]]:
        """Sources that are looked at once more after messages were sent."""
        return []

    def start(self) -> None:
        """Begins to connect."""
        raise NotImplementedError

    def wake(self) -> None:
        """Ends the shell's sleep."""
        raise NotImplementedError

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Has a function of the user called where it may take its time."""
        raise NotImplementedError

    def abandon(self) -> None:
        """The client was forgotten, or the program ends."""
        raise NotImplementedError

    def _ask_session(self) -> None:
        """Has `_log_on_again` called, soon."""
        raise NotImplementedError

    def _ask(self, work: Callable[[], int], timeout: float | None = 10.0) -> int:
        """What `work` returns, between two turns. Raises: ZBrokerError, what ended the client."""
        raise NotImplementedError

    # -- a turn -------------------------------------------------------------------------------

    def _have_turn(self, ready: Ready) -> int | None:
        """Returns: for how many ms nothing is due then; None: until something arrives."""
        self._core.queued = len(self.inbox)
        wait_ms = self._turn.run(ready)
        self._publish_state()
        return wait_ms

    def _have_part(self, ready: Ready) -> bool:
        """The urgent part of a turn: hears the next answer, and sends one batch if that may leave.

        Returns: False if there is more to do, which a whole turn does.
        """
        core, inbox = self._core, self.inbox
        if core.stages or self._space_again_ms is not None or self._calls.next_wake_ms() == 0:
            return False
        if len(inbox) >= self._full_batch:
            return False
        if ready:
            answer = self._link.next_answer(ready)
            if answer is None:
                return False
            self._turn.hear(answer)
        elif not inbox:
            return False
        if inbox and core.can_send:
            for called in self._take():
                self._turn.hear(called)
        self._publish_state()
        return True

    def _rest(self, wait_ms: int | None, soon: bool = False) -> int | None:
        """Sets when it is woken. Returns: the same, or 0 if so much was queued meanwhile.

        soon: there is another turn soon, which small batches can wait for.
        """
        leaves = self._core.can_send and not soon and self._held_to_ms is None
        self.wake_at = 1 if leaves else self._full_batch
        waiting = len(self.inbox) >= self.wake_at and self._space_again_ms is None
        return 0 if waiting else wait_ms

    def next_wake_ms(self) -> int | None:
        """When it has to be looked whether the store has space, or to be sent what is held."""
        times = (self._space_again_ms, self._held_to_ms if self._core.can_send else None)
        return min((each for each in times if each is not None), default=None)

    def now(self) -> Now:
        """The time, for a core."""
        return Now(self.clock.mono_ms(), 0)

    @property
    def _full_batch(self) -> int:
        """While nothing can be sent, packing waits for as much: fewer, larger batches."""
        return min(packer.BATCH_MESSAGES, self.inbox_max // 2)

    def events(self, ready: Ready, limit: Limit) -> Iterator[e.Called]:
        """Takes messages while they can be sent, or make full batches."""
        if self._space_again_ms is not None:
            self._has_space()  # also while nothing can be sent: publishing threads wait for it
        for _ in range(limit.count):
            waiting = len(self.inbox)
            if not waiting or (waiting < self._full_batch and self._waits()):
                return
            if not (yield from self._take()):
                return

    def _waits(self) -> bool:
        """Whether messages that make no full batch stay in the inbox."""
        if not self._core.can_send:
            return True
        if not self._core.stages:
            return False
        now_ms = self.clock.mono_ms()
        if self._held_to_ms is None:
            self._held_to_ms = now_ms + HOLD_MS
        return now_ms < self._held_to_ms

    def _take(self) -> Generator[e.Called, None, bool]:
        """Packs, numbers and sends up to a batch of messages; False if the store has no space."""
        self._held_to_ms = None
        items = self.inbox[: packer.BATCH_MESSAGES]
        self.unsettled += len(items)
        del self.inbox[: len(items)]
        taken = large = 0
        for batch, some, sizes in packer.batches(items, self.batch_max):
            if not self._has_space():
                self.inbox[:0] = items[taken:]
                break
            effects = self._core.add(batch, self.clock.mono_ms())
            hot_path.number(some, batch.first)
            yield e.Called(effects)
            taken += len(some)
            if max(sizes, default=0) > SMALL_BYTES:
                large += sum(size for size in sizes if size > SMALL_BYTES)
        self.stored_bytes = self.store.bytes
        self.taken_large += large
        return taken == len(items)

    def _number_all(self) -> int:
        for called in self._take_all():
            self._calls.add(called.effects)
        return self._core.next_sequence - 1 + len(self.inbox)

    def _take_all(self) -> Iterator[e.Called]:
        while self.inbox and self.session is not None and (yield from self._take()):
            pass

    def _beat_each(self) -> int:
        self._calls.add(self._core.beat_each(self.heartbeat_s, self.clock.mono_ms()))
        return 0

    def _log_on_again(self) -> int:
        self._calls.add(self._core.log_on_again(self.clock.mono_ms()))
        return 0

    def _log_off(self) -> None:
        """At once."""
        self._turn.hear(e.Called(self._core.log_off()))

    def _has_space(self) -> bool:
        """Whether the store can take another batch."""
        now_ms = self.clock.mono_ms()
        if self._space_again_ms is not None and now_ms < self._space_again_ms:
            return False
        full = not self.store.secure(max(self.batch_max, self.largest))
        self._space_again_ms = now_ms + SPACE_AGAIN_MS if full else None
        return not full

    def _publish_state(self) -> None:
        """Tells the application how far it is and how much it may publish."""
        store, track = self.store, self.track
        self.stored_bytes, self.unsettled = store.bytes, store.messages
        if self._core.state is not Phase.ENDED and self.session is not None:
            track.settled = self._core.settled
            self.inbox_limit = self._inbox_limit()
        track.changed()

    def _inbox_limit(self) -> int:
        settings, store = self.settings, self.store
        if store.bytes >= settings.store_bytes * 3 // 4 or self._space_again_ms is not None:
            return 0
        return max(0, min(self.inbox_max, settings.store_messages - store.messages))

    # -- effects ------------------------------------------------------------------------------

    def _behind(self, effect: e.Behind) -> None:
        error = e.broker_behind(effect.last, effect.first - 1)
        _log.warning("client.broker_behind: going on as was wished; %s", error.reason)
        self.tell("broker_behind", error)

    def tell(self, state: Name, error: ZBrokerError | None = None) -> None:
        """Tells the listeners."""
        reported = ConnectionState(state, self.url, error)
        for listener in self.settings.on_state:
            self.call(listener, reported)

    def _connect(self) -> ClientLink:
        """Another link, to the same broker or the next one. The one before is over."""
        if self.url:
            self._servers.failed(self.url, self._refusal())
        self.url = endpoints.ingest_url(self._servers.choose())
        self.tell("connecting")
        return ClientLink(self.context, self.url, self.heartbeat_s, self.settings.curve)

    def _logged_on(self, effect: e.LogonAccepted) -> None:
        answer = effect.answer
        self.message_max = answer.max_message_bytes or self.message_max
        self.batch_max = min(packer.BATCH_BYTES, answer.max_batch_bytes or packer.BATCH_BYTES)
        number = self.session.number + 1 if self.session else 1
        self.session = LogonResult(number, self.url, answer)
        self._servers.connected(self.url)
        self.tell("logged_on")

    def _refused(self, effect: e.MessagesRefused) -> None:
        first, last, error = effect.first, effect.last, effect.error
        self.track.refuse(first, last, error)
        _log.warning("client.refused: messages %d to %d are given up: %s", first, last, error)
        if self.settings.on_refused is not None:
            self.call(self.settings.on_refused, error)

    def _fail(self, error: ZBrokerError) -> None:
        """Nothing more is published: tells everybody who waits or will ask."""
        if self.track.error is None:
            self.tell("closed", error)
        with self._following:
            first, self.track.error = self.track.error is None, error
            followers = list(self._followers) if first else []
        self.inbox_limit = -1
        self.track.changed()
        for follower in followers:
            follower.client_ended(error)

    def _failure(self, error: Exception, which: str, what: str) -> ZBrokerError:
        """What ends the client after a turn that failed."""
        if isinstance(error, ZBrokerError):  # the store's
            _log.error("client.store_failed: nothing more is published: %s", error)
            return error
        means = "messages that are not persisted stay unsent"
        return defect(error, f"client.{which}_failed: {means}", what)

    def _end(self) -> None:
        """Lets go of everything. What a store in a file holds stays there."""
        self._fail(self.track.error or ZBrokerError("closed", "this client is closed"))
        self._link.close(CLOSE_LINGER_MS)
        self.context.term()
        self.store.close()

    @property
    def looks_alone(self) -> bool:
        """It tries a URL, and there is no other one."""
        return bool(self.url) and not self.settings.policy.several

    def _refusal(self) -> ZBrokerError | None:
        refusal = self._core.refusal
        return e.raised(refusal) if refusal else None

    def _last_refusal(self) -> str:
        """Why it takes so long, as far as that is known."""
        if self._space_again_ms is not None:
            return "the disk of the publish store is full"
        refusal = self._core.refusal
        return f"the broker said {refusal.code}: {refusal.reason}" if refusal else ""
