"""`commit` and `abort`: what becomes of messages that clients published with `connect(stage=...)`.

    find a broker --logon--> ask --answer--> done
          ^------ lost, silent, refused for now ----+   until `timeout`

Both may be said again and again: the broker knows which batch of an app it committed last.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, overload

import zmq
from msgspec import msgpack

from zbroker.client.connect_types import Credentials, ServerChooser
from zbroker.client.effects import Connected, Rejected
from zbroker.client.options import URLs, servers
from zbroker.client.ports import ClientLink
from zbroker.errors import TEMPORARY, ClientError, ZBrokerError
from zbroker.wire.messages import Ack, Error, Logoff, Logon
from zbroker.wire.stages import AbortStaged, CommitStaged, Committed

ANSWER_S: Final = 10.0  # then another try: a large commit takes milliseconds
AGAIN_S: Final = 0.2
LINGER_MS: Final = 200
TIMEOUT_S: Final = 60.0
_AGAIN: Final = TEMPORARY | {"timeout", "internal", "not_logged_on", "session_ended"}


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
    publish on all of its topics, now), bad_field, too_large, disk_full, timeout, or why nobody
    could log on.
    """
    body = msgpack.encode([(token, messages) for token, messages in stages])
    done = _ask(url, CommitStaged(app, batch), body, credentials, timeout)
    return Commit(done.position, done.count, done.already)


def abort(
    url: URLs,
    tokens: Iterable[str],
    *,
    credentials: Credentials | None = None,
    timeout: float = TIMEOUT_S,
) -> None:
    """Forgets what was staged under these tokens and not committed; what nobody aborts ends."""
    _ask(url, AbortStaged(), msgpack.encode(list(tokens)), credentials, timeout)


def principal_of(
    url: URLs, *, credentials: Credentials | None = None, timeout: float = TIMEOUT_S
) -> str:
    """Whom the broker takes these credentials for; "" where security is off.

    Raises: ZBrokerError timeout, or why nobody could log on.
    """
    return _ask(url, None, b"", credentials, timeout).principal or ""


@overload
def _ask(
    url: URLs, command: None, body: bytes, credentials: Credentials | None, timeout: float
) -> Ack: ...
@overload
def _ask(
    url: URLs,
    command: CommitStaged | AbortStaged,
    body: bytes,
    credentials: Credentials | None,
    timeout: float,
) -> Committed: ...
def _ask(
    url: URLs,
    command: CommitStaged | AbortStaged | None,
    body: bytes,
    credentials: Credentials | None,
    timeout: float,
) -> Committed | Ack:
    deadline, chooser = time.monotonic() + timeout, servers(url)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        while True:
            try:
                return _try(context, chooser, command, body, credentials, deadline)
            except ClientError as error:
                if error.code not in _AGAIN or time.monotonic() + AGAIN_S >= deadline:
                    raise
            time.sleep(AGAIN_S)
    finally:
        context.destroy(linger=LINGER_MS)


def _try(
    context: zmq.Context[zmq.Socket[bytes]],
    chooser: ServerChooser,
    command: CommitStaged | AbortStaged | None,
    body: bytes,
    credentials: Credentials | None,
    deadline: float,
) -> Committed | Ack:
    """Raises: ClientError timeout, auth_failed, or what the broker says."""
    url = chooser.choose()
    link = ClientLink(context, url, curve=credentials.curve() if credentials is not None else None)
    given = credentials.given() if credentials is not None else None
    name, until = (
        f"zbroker-commit-{secrets.token_hex(8)}",
        min(deadline, time.monotonic() + ANSWER_S),
    )
    try:
        _connected(link, url, until)
        link.send(Logon(name, secrets.token_hex(8), cid="1", credentials=given))
        done = _answer(link, url, Ack, until)
        if command is not None:
            command.cid = "2"
            link.send(command, body)
            done = _answer(link, url, Committed, min(deadline, time.monotonic() + ANSWER_S))
        link.send(Logoff())
    except ClientError as error:
        chooser.failed(url, ZBrokerError(error.code, error.reason))
        raise
    else:
        return done
    finally:
        link.close(LINGER_MS)


def _connected(link: ClientLink, url: str, until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        link.wait(int(left * 1_000) + 1)
        for event in link.events():
            if isinstance(event, Connected):
                return
            if isinstance(event, Rejected):
                raise ClientError("auth_failed", f"{url}: {event.why}", event.hint)
    raise ClientError("timeout", f"nobody answers at {url}", "is it running?")


def _answer(
    link: ClientLink, url: str, wanted: type[Ack | Committed], until: float
) -> Ack | Committed:
    while (left := until - time.monotonic()) > 0:
        link.wait(min(int(left * 1_000) + 1, 1_000))
        while (found := link.receive()) is not None:
            if isinstance(found[0], Error):
                raise ClientError(found[0].code, found[0].reason, found[0].hint)
            if isinstance(found[0], wanted):
                return found[0]
        link.events()
    raise ClientError("timeout", f"{url} does not answer", "it is safe to ask again")
