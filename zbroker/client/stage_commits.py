"""`commit` and `abort`: what becomes of messages that clients published with `connect(stage=...)`.

    find a broker --logon--> ask --answer--> done
          ^------ lost, silent, refused for now ----+   until `timeout`

Both may be said again and again: the broker knows which batch of an app it committed last.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import zmq
from msgspec import msgpack

from zbroker.client.connect_types import Credentials
from zbroker.client.effects import Connected, Rejected
from zbroker.client.link import ClientLink, Context
from zbroker.client.options import URLs, servers
from zbroker.errors import TEMPORARY, ClientError, ZBrokerError
from zbroker.sockets import Curve
from zbroker.wire.messages import Ack, ClientCommand, Error, Logoff, Logon
from zbroker.wire.stages import AbortStaged, CommitStaged, Committed

ANSWER_S: Final = 10.0  # then another try: a large commit takes milliseconds
AGAIN_S: Final = 0.2
LINGER_MS: Final = 200
TIMEOUT_S: Final = 60.0
_AGAIN: Final = TEMPORARY | {"timeout", "internal", "not_logged_on", "session_ended"}

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit showed: `count` messages from `position` on.

    already: it was committed before. Then position and count are those of that time, or 0 if a
    newer batch of the app was committed since.
    """

    position: int
    count: int
    already: bool


def commit(
    url: URLs,
    app: str,
    batch: int,
    stages: Iterable[tuple[str, int]],
    *,
    credentials: Credentials | None = None,
    timeout: float = TIMEOUT_S,
) -> Commit:
    """Shows what was staged as one run of messages, in the order of `stages`; all of it, or none.

    app, batch: a batch of an app is committed once, whoever asks how often; its number must rise.
    app is 1 to 200 bytes. stages: each token, and how many messages were published under it.
    Returns: when it is durable.
    Raises: ZBrokerError stage_unknown (aborted, ended, or not so many messages), not_entitled (to
    publish on all of its topics, now), bad_field, too_large, disk_full, timeout, or why no
    broker accepted a logon.
    """
    body = msgpack.encode([(token, messages) for token, messages in stages])
    command = CommitStaged(app, batch, cid="2")
    done = _ask(url, credentials, timeout, lambda to, _: to.ask(Committed, command, body))
    return Commit(done.position, done.count, done.already)


def abort(
    url: URLs,
    tokens: Iterable[str],
    *,
    credentials: Credentials | None = None,
    timeout: float = TIMEOUT_S,
) -> None:
    """Forgets what was staged under these tokens and not committed; else it ends later."""
    command, body = AbortStaged(cid="2"), msgpack.encode(list(tokens))
    _ask(url, credentials, timeout, lambda to, _: to.ask(Committed, command, body))


def principal_of(
    url: URLs, *, credentials: Credentials | None = None, timeout: float = TIMEOUT_S
) -> str:
    """Whom the broker takes these credentials for; "" where security is off.

    Raises: ZBrokerError timeout, or why no broker accepted a logon.
    """
    return _ask(url, credentials, timeout, lambda _, logon: logon.principal or "")


class _Asker:
    """A connection to one broker, for one question.

    Its methods raise: ClientError timeout, auth_failed, or what the broker says.
    """

    def __init__(self, context: Context, url: str, deadline: float, curve: Curve | None) -> None:
        self._url, self._deadline = url, deadline
        self._link = ClientLink(context, url, curve=curve)

    def log_on(self, credentials: Credentials | None) -> Ack:
        self._connect()
        name = f"zbroker-commit-{secrets.token_hex(8)}"
        given = credentials.given() if credentials is not None else None
        return self.ask(Ack, Logon(name, secrets.token_hex(8), cid="1", credentials=given))

    def ask(self, wanted: type[A], command: ClientCommand, body: bytes | None = None) -> A:
        self._link.send(command, body)
        for answer in self._link.answers(self._until()):
            if isinstance(answer, Error):
                raise ClientError(answer.code, answer.reason, answer.hint)
            if isinstance(answer, wanted):
                return answer
        raise ClientError("timeout", f"{self._url} does not answer", "it is safe to ask again")

    def close(self) -> None:
        self._link.send(Logoff())
        self._link.close(LINGER_MS)

    def _connect(self) -> None:
        until = self._until()
        while (left := until - time.monotonic()) > 0:
            self._link.wait(int(left * 1_000) + 1)
            for event in self._link.events():
                if isinstance(event, Connected):
                    return
                if isinstance(event, Rejected):
                    raise ClientError("auth_failed", f"{self._url}: {event.why}", event.hint)
        raise ClientError("timeout", f"no broker answers at {self._url}", "is it running?")

    def _until(self) -> float:
        return min(self._deadline, time.monotonic() + ANSWER_S)


def _ask(
    url: URLs, credentials: Credentials | None, timeout: float, question: Callable[[_Asker, Ack], A]
) -> A:
    """What `question` returns for a connection that is logged on, tried until `timeout`."""
    deadline, chooser = time.monotonic() + timeout, servers(url)
    context: Context = zmq.Context()
    try:
        while True:
            tried = chooser.choose()
            curve = credentials.curve() if credentials is not None else None
            asker = _Asker(context, tried, deadline, curve)
            try:
                return question(asker, asker.log_on(credentials))
            except ClientError as error:
                chooser.failed(tried, ZBrokerError(error.code, error.reason))
                if error.code not in _AGAIN or time.monotonic() + AGAIN_S >= deadline:
                    raise
            finally:
                asker.close()
            time.sleep(AGAIN_S)
    finally:
        context.destroy(linger=LINGER_MS)
