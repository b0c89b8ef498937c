"""`declare_queue`, `delete_queue`, `purge_queue`: each a question of its own (questions.py).

    look (delete only) --> command --answer--> done
                              +--lost--> declare and delete: again; a purge may have been done

A declare says what there is to be, so it is repeated; not one without a name, which makes another
queue each time. A delete looks first, and names the
declaration that it found: a queue that was made since by another program stays. A purge that is
repeated would take messages that came after it, so it is not.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, NamedTuple

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.questions import NOT_READY, LostError, QuestionLink, ask
from zbroker.client.subscriber.options import TIMEOUT_S, queue_name
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.wire.queue_messages import (
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    QueueChanged,
    QueueDeclared,
    Setting,
)

_MS: Final = timedelta(milliseconds=1)
_AGAIN: Final = TEMPORARY | NOT_READY
_HINT: Final = "it may have been done: ask again"


class QueueInfo(NamedTuple):
    """A queue as it was when the broker answered.

    created: by this call; false, too, if an earlier try of it was not answered. messages: that are
    in it, with those that consumers hold; consumers: of the instance that answered. declaration:
    which queue of this name it is. reading: the broker still reads the log for it, and there may be
    more messages.
    """

    name: str
    created: bool
    messages: int
    consumers: int
    declaration: int
    reading: bool = False


class DeclareOptions(NamedTuple):
    """What `declare_queue` is given."""

    command: DeclareQueue
    timeout: float


class DeleteOptions(NamedTuple):
    """What `delete_queue` is given."""

    command: DeleteQueue
    timeout: float


class PurgeOptions(NamedTuple):
    """What `purge_queue` is given."""

    command: PurgeQueue
    timeout: float


def declare_options(
    name: str = "",
    *,
    topic: str = "",
    passive: bool = False,
    timeout: float = TIMEOUT_S,
    **settings: Any,  # noqa: ANN401 - as a [[queue]] table has them
) -> DeclareOptions:
    """See `Client.declare_queue`. Raises: ZBrokerError bad_field; TypeError."""
    given = {key: _setting(key, value) for key, value in settings.items()}
    if topic:
        given["topic"] = _setting("topic", topic)
    if passive and given:
        reason = f"passive=True looks only: it does not go with {', '.join(given)}"
        raise ZBrokerError("bad_field", reason, "leave one of them out")
    if passive or name != "":
        queue_name(name)
    command = DeclareQueue(name, settings=given, passive=bool(passive))
    return DeclareOptions(command, timeout)


def delete_options(
    name: str, *, if_unused: bool = False, if_empty: bool = False, timeout: float = TIMEOUT_S
) -> DeleteOptions:
    """See `Client.delete_queue`. Raises: ZBrokerError bad_field; TypeError."""
    command = DeleteQueue(queue_name(name), if_unused=bool(if_unused), if_empty=bool(if_empty))
    return DeleteOptions(command, timeout)


def purge_options(name: str, *, timeout: float = TIMEOUT_S) -> PurgeOptions:
    """See `Client.purge_queue`. Raises: ZBrokerError bad_field; TypeError."""
    return PurgeOptions(PurgeQueue(queue_name(name)), timeout)


def _setting(key: str, value: object) -> Setting:
    """A value as a [[queue]] table has it. Raises: TypeError."""
    if isinstance(value, timedelta):
        return f"{value // _MS}ms"
    if isinstance(value, list | tuple):
        return [_setting(key, each) for each in value]  # type: ignore[misc]
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"the setting {key} of a queue is not a {type(value).__name__}")


# -- asking ---------------------------------------------------------------------------------------


def declare(listeners: ListenerEndpoints, command: DeclareQueue, timeout: float) -> QueueInfo:
    """Raises: ZBrokerError with the broker's code, or "timeout"."""

    def declare_it(to: QuestionLink) -> object:
        try:
            return to.ask(command)
        except LostError as lost:
            if command.queue:
                raise
            raise _unnamed(lost) from None  # the next one would make another queue

    what = f"declare_queue({command.queue!r})"
    answer = ask(listeners, timeout, what, declare_it, _AGAIN, _HINT)
    assert isinstance(answer, QueueDeclared)
    return QueueInfo(
        answer.queue, answer.created, answer.messages, answer.consumers, answer.declaration,
        answer.reading,
    )  # fmt: skip


def delete(listeners: ListenerEndpoints, command: DeleteQueue, timeout: float) -> None:
    """Raises: as `declare`."""
    meant: int | None = None  # the declaration that a try was about which was not answered

    def delete_it(to: QuestionLink) -> object:
        nonlocal meant
        if meant is None:
            look = DeclareQueue(
                command.queue, passive=True, session=command.session, epoch=command.epoch
            )
            found = to.ask(look)
            assert isinstance(found, QueueDeclared)
            command.declaration = found.declaration
        try:
            answer = to.ask(command)
        except LostError:
            meant = command.declaration
            raise
        except ZBrokerError as error:
            if error.code == "unknown_queue" and meant is not None:
                return None  # the try before this one has done it
            raise
        return answer

    ask(listeners, timeout, f"delete_queue({command.queue!r})", delete_it, _AGAIN, _HINT)


def purge(listeners: ListenerEndpoints, command: PurgeQueue, timeout: float) -> int:
    """Raises: as `declare`, and outcome_unknown."""

    def purge_it(to: QuestionLink) -> object:
        try:
            return to.ask(command)
        except LostError as lost:
            raise _unknown(command.queue, lost) from None

    answer = ask(listeners, timeout, f"purge_queue({command.queue!r})", purge_it, _AGAIN, _HINT)
    assert isinstance(answer, QueueChanged)
    return answer.count


def _unnamed(lost: LostError) -> ZBrokerError:
    reason = f"declare_queue('') was not answered {_after(lost)}: there may be a queue or not"
    hint = "declare another one; with `expires` or `exclusive` one that was made goes by itself"
    return ZBrokerError("outcome_unknown", reason, hint)


def _after(lost: LostError) -> str:
    return "in time" if lost.late else "before the connection was lost"


def _unknown(queue: str, lost: LostError) -> ZBrokerError:
    after = _after(lost)
    reason = f"purge_queue({queue!r}) was not answered {after}: it may have been done or not"
    hint = "purge it again if messages that came since may go, too"
    return ZBrokerError("outcome_unknown", reason, hint)
