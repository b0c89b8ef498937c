"""Errors, by fault, and by what a program can do about them.

    ZBrokerError         has .code, .reason, .hint; users catch it
      ClientError        a request that is wrong or cannot be served now: answered, kept on
        Refused          the same again never succeeds: change it
        Unavailable      not now: the same again succeeds later
        NotInLog         the log does not have that: begin elsewhere
        NameInUse        another client has this name
      StorageError       the disk or its content: the process stops, nothing is acknowledged
        StoreDamaged     a store of this client cannot be read: move it away
      ConfigError        the settings: exit 78, never retried
      Timeout            also a TimeoutError: it goes on, the wait was too short
      StoreFull          no space to keep another message until the broker acknowledges some
      ClientEnded        this client publishes nothing more: connect again
        Closed, Forked, SessionEnded, BrokerBehind, GaveUp
    Bug                  an assertion of ours: crash, be restarted, be counted

`CODES` is the one list of codes that may cross the wire; `docs/reference/errors.md` shows it.
`LOCAL_CODES` are the others. Each code has one class: `ZBrokerError("timeout", ...)` makes a
Timeout, `ClientError` and `StorageError` likewise if that class is a subclass of theirs.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

#: code -> (what happened, what to do). A final refusal never succeeds when repeated unchanged.
CODES: Final[dict[str, tuple[str, str]]] = {
    "bad_frame": (
        "the frames are not a command",
        "send [msgpack map, body...] as in docs/reference/wire.md",
    ),
    "bad_command": (
        "this listener has no such command",
        "see the table of commands in docs/reference/wire.md",
    ),
    "bad_field": ("a key is missing or has the wrong type or value", "the reason names the key"),
    "bad_version": ("this protocol version is not supported", "use version 1"),
    "not_logged_on": (
        "this connection has no logon",
        "send logon first; after a restart of the broker, again",
    ),
    "auth_failed": (
        "the credentials or the token were not accepted",
        "your key must be in the access file; a token ends after a day: log on at ingest again",
    ),
    "not_entitled": (
        "this principal has no right to do that",
        "see the roles in the access file: `zbroker-admin access explain`",
    ),
    "name_in_use": ("another connection publishes under this client name", "choose another name"),
    "session_ended": (
        "a newer logon of this publisher ended this session",
        "log on again, or stop the other one",
    ),
    "reserved_name": ("names that begin with '$' belong to the broker", "choose another name"),
    "bad_topic": ("a topic is 1 to 255 bytes of printable UTF-8", "change the topic"),
    "bad_filter": ("the filter or pattern cannot be used", "the reason says why"),
    "bad_bookmark": ("this is not a bookmark, time or vector", "see docs/reference/bookmarks.md"),
    "bookmark_not_found": (
        "the log does not have this bookmark",
        "subscribe from epoch, now or a time",
    ),
    "bookmark_expired": (
        "the bookmark is older than the oldest message kept",
        "the reason names the oldest one",
    ),
    "topic_not_recorded": (
        "the topic is not recorded, so it cannot be replayed",
        "subscribe without a bookmark, or record it: [[record]] in the config",
    ),
    "bookmark_pending": ("this instance does not have that sequence yet", "try again later"),
    "sequence_gap": (
        "a message before this one is missing here",
        "go back to `high` + 1 and send again",
    ),
    "too_large": (
        "a message, batch or header is over the limit",
        "the limits are in the answer to logon",
    ),
    "stage_unknown": (
        "a stage of the commit is not here, or not complete",
        "it was aborted, or got nothing for a day: stage it again, under new tokens",
    ),
    "stage_ended": (
        "a message for a stage that was committed or aborted",
        "stage under a new token: one that ended is not used again",
    ),
    "unknown_session": (
        "there is no session with this name",
        "`zbroker-admin session ls` names them, with their principals",
    ),
    "session_elsewhere": (
        "the session began last on another instance, which did not hand it over",
        "attach there; or with force, where that one is gone: what it committed and is not here "
        "yet comes later",
    ),
    "session_fenced": (
        "the session began again, on another connection or instance, or ended; nothing of the "
        "transaction holds",
        "attach again if this is the one that is to go on",
    ),
    "transaction_aborted": (
        "the transaction can hold no more: nothing of it does, its messages come again",
        "begin another one with the messages that come",
    ),
    "branch_exists": (
        "there is a distributed transaction of this name, prepared or not forgotten",
        "take another xid, or decide that one first: `zbroker-admin transaction ls`",
    ),
    "unknown_branch": (
        "there is no prepared transaction of this name: it was decided, or never prepared",
        "list those that are left to decide: an operator with `zbroker-admin transaction ls`",
    ),
    "branch_elsewhere": (
        "the transaction was prepared on another instance, which alone may commit it",
        "connect to that one; if it is gone for good: `zbroker-admin transaction rollback --force`",
    ),
    "branch_decided": (
        "an operator decided this transaction before, and not this way",
        "compare what the other systems did, mend it by hand, then `zbroker-admin transaction "
        "forget`",
    ),
    "too_many": ("too many of these on one connection or instance", "close some first"),
    "disk_full": (
        "the disk is nearly full; publishing waits",
        "free space; sending again succeeds then",
    ),
    "not_ready": (
        "the journal, or the whole instance, is starting or restarting",
        "send the same sequence, or log on, again",
    ),
    "window_full": ("too many unacknowledged bytes", "wait for persisted acks, then send again"),
    "publisher_collision": ("two names have the same publisher id", "choose another name"),
    "gap": (
        "a damaged range of the log cannot be served",
        "the reason names the positions; resume after them",
    ),
    "segment_held": (
        "this part of the log is still needed",
        "`zbroker-admin journal holders` names the readers",
    ),
    "unknown_sid": ("no subscription with this sid", "subscribe first"),
    "sid_in_use": (
        "this connection has a subscription with this sid",
        "unsubscribe it or choose another sid",
    ),
    "bad_queue": ("the queue definition is not valid", "the reason says why"),
    "unknown_queue": ("there is no queue with this name", "`zbroker-admin queue ls` names them"),
    "unknown_exchange": (
        "there is no exchange with this name",
        "declare it first, or look whether its name is right",
    ),
    "exchange_exists": (
        "there is an exchange with this name, of another kind or with another alternate",
        "declare it as it is, delete it first, or choose another name",
    ),
    "exchange_in_use": (
        "the exchange is bound, or another one has it as its alternate, and is deleted only if not",
        "unbind the queues, or delete the other exchange first",
    ),
    "unknown_binding": (
        "the queue is not bound to the exchange with this key and these arguments",
        "name key and arguments as they were bound",
    ),
    "queue_exists": (
        "there is a queue with this name",
        "alter it, delete it first, or choose another name",
    ),
    "queue_full": (
        "a queue that the message goes to is full and refuses more; nothing of the publish is in "
        "the log",
        "publish it again later; publish more slowly, or start more consumers of that queue",
    ),
    "queue_in_use": (
        "the queue has consumers or messages, and is deleted only without them",
        "wait until it has none, or delete it without that condition",
    ),
    "resource_locked": (
        "another consumer has this replayable queue, or another client this exclusive one",
        "close that consumer first; an exclusive queue goes with its session or connection",
    ),
    "credit_left": (
        "the consumer has credit, and its flow mode changes only without",
        "stop it first, and give credit afterwards",
    ),
    "stale_epoch": (
        "these positions are of an older generation of the log",
        "take the messages again, or name them by bookmarks",
    ),
    "unknown_point": ("there is no point with this name", "`zbroker-admin point ls` names them"),
    "internal": (
        "the broker failed to serve this; it is counted and logged",
        "try again; report it",
    ),
}

#: codes that come from the library, the tools or a start, and never cross the wire
LOCAL_CODES: Final[dict[str, tuple[str, str]]] = {
    # between instances
    "principal_differs": (
        "this name belongs to another principal on the peer",
        "give it one owner in the access files of both instances",
    ),
    "same_instance": (
        "two instances have one instance id",
        "one is a copy of the other: keep its data directory, and start it on a new one",
    ),
    # the client library
    "timeout": (
        "no answer in the given time",
        "it continues; wait again, or find out why it takes long",
    ),
    "outcome_unknown": (
        "there was no answer to something that is not repeated by itself",
        "it may have been done or not: look, and ask again if that does no harm",
    ),
    "store_full": (
        "no space in the publish store in the given time",
        "publish again later, or connect with larger store_bytes",
    ),
    "store_in_use": ("another client or process has this store open", "give each one its own"),
    "store_failed": ("a store cannot be written any longer", "the reason says why; connect again"),
    "store_damaged": (
        "a store cannot be read",
        "move its directory away; the reason names what is lost",
    ),
    "broker_behind": (
        "the broker lacks messages that were acknowledged",
        'check its disk; broker_behind="go_on" continues without them',
    ),
    "gave_up": (
        "no session for the time `give_up`",
        "connect again; a store in a directory keeps its messages",
    ),
    "closed": ("the client, subscription or store was closed", "connect or subscribe again"),
    "forked": ("the client was made before a fork", "connect again in the child process"),
    "bad_checksum": (
        "a batch was changed on its way; nothing of it was handed out",
        "subscribe again after the last message",
    ),
    "bad_payload": ("a payload is not of its type", "the reason says where"),
    # a start
    "not_started": ("LocalBroker did not start", "the reason has the end of its log"),
    "already_running": ("another instance runs on the data directory", "stop it first"),
    "bad_config": ("the settings are wrong", "the reason has file, line and what to write"),
    "sockets": ("the directory for sockets cannot be made", "the reason names it"),
    # the storage: docs/howto/a-file-is-damaged.md
    "disk_error": ("the operating system failed a read or write", "check disk and permissions"),
    "io": ("a file of the data directory cannot be read or written", "check its permissions"),
    "file_missing": ("a file is not there", "put it back from a copy"),
    "segments_missing": ("segments are missing that were not removed", "put them back"),
    "serial_gap": ("a segment between others is missing", "put it back"),
    "foreign_instance": ("a segment belongs to another instance", "take it away"),
    "unknown_version": ("a newer zbroker wrote this", "use that one"),
    "second_writer": ("another process writes here", "stop it first"),
    "tail_damaged": ("the acknowledged end of the log is damaged", "repair it"),
    "damaged": ("a file of the data directory was changed", "put back a copy"),
    "unreadable": ("a segment cannot be repaired alone", "the reason says what can be done"),
    "index_failed": ("the index of bookmarks cannot be made", "the reason says why"),
    # archiving, packing and the tools
    "copy_differs": ("a copy differs from the original", "the original stays; try again"),
    "segment_open": ("the segment is the open one", "wait until the next one begins"),
    "segment_unreadable": ("the segment is damaged", "repair it first"),
    "not_found": ("no instance, file or segment there", "the reason names it"),
    "bad_url": ("this is not a URL of an instance", "the reason says what one looks like"),
    "forbidden": ("the admin endpoint did not accept the token", "the hint names its file"),
    "exists": ("a file or directory is there already", "name another place"),
    "blocked": ("an obstacle blocks that action", "the reason names it"),
    "failed": ("an action of the instance failed", "the reason says why"),
    "refused": ("an action of the instance was refused", "the reason says why"),
    "interrupted": ("you left before the action ended", "the instance continues it"),
    # Spark and the demo
    "missing_package": ("a package is not installed", "the hint has the command"),
    "no_java": ("there is no Java 17 or later", "the hint says how to get one"),
    "no_spark": ("pyspark is not installed", "install the extra `spark`"),
    "spark_failed": ("a job of Spark failed", "the reason has the error of Spark"),
    "no_journal": ("no journal there", "name a data or journal directory"),
    "no_table": ("the demo has no table of flights", "the hint says how to get it"),
    "not_a_demo": ("the directory was not made by the demo", "name another one"),
    "running": ("the demo runs there already", "stop it first"),
}

#: After one of these the same sequence is sent again; after any other refusal it never is.
TEMPORARY: Final = frozenset({"disk_full", "not_ready", "window_full"})


class ZBrokerError(Exception):
    """The base of all errors that zbroker raises.

    `code` is one of `CODES` or `LOCAL_CODES`, `reason` says what happened to this request, `hint`
    what to do about it. `codes` of a class are those for which it is raised, and no subclass.
    """

    codes: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, code: str, reason: str, hint: str = "") -> Self:
        """Make an instance of the code's class, if that is a subclass of `cls`."""
        kind = class_of(code) if cls in _MAKERS else cls
        kind = kind if issubclass(kind, cls) else cls
        # one argument: with two, an OSError would take them for number and text
        return super(ZBrokerError, kind).__new__(kind, _text(code, reason, hint))

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        self.code = code
        self.reason = reason
        self.hint = hint or hint_of(code)
        super().__init__(_text(code, reason, hint))

    def __reduce__(self) -> tuple[type[ZBrokerError], tuple[str, str, str]]:
        return (type(self), (self.code, self.reason, self.hint))


class ClientError(ZBrokerError):
    """A request that cannot be served: answered with its code; the connection is kept."""


def unknown_point(name: str) -> ClientError:
    """The error for a name that no point has now; removed names are not remembered."""
    reason = f"there is no point {name!r}: it was removed, or never set"
    return ClientError("unknown_point", reason)


class Refused(ClientError):
    """The request is wrong or not allowed; repeating it never succeeds. Change it."""

    codes = frozenset(
        {"bad_frame", "bad_command", "bad_field", "bad_version", "bad_topic", "bad_filter"}
        | {"bad_bookmark", "auth_failed", "not_entitled", "reserved_name", "topic_not_recorded"}
        | {"too_large", "bad_url", "sequence_gap", "unknown_sid", "sid_in_use"}
        | {"bad_queue", "unknown_queue", "queue_exists", "stale_epoch", "stage_unknown"}
        | {"stage_ended", "unknown_exchange", "exchange_exists", "unknown_binding"}
        | {"session_elsewhere", "transaction_aborted", "unknown_session"}
        | {"branch_exists", "unknown_branch", "branch_elsewhere", "branch_decided"}
    )


class Unavailable(ClientError):
    """The request succeeds later, or once something else was closed."""

    codes = frozenset(
        {"not_ready", "window_full", "too_many", "bookmark_pending", "segment_held"}
        | {"not_logged_on", "resource_locked", "queue_in_use", "exchange_in_use", "credit_left"}
        | {"queue_full"}
    )


class NotInLog(ClientError):
    """The log does not have the requested message. Begin elsewhere."""

    codes = frozenset({"bookmark_not_found", "bookmark_expired", "gap", "unknown_point"})


class NameInUse(ClientError):
    """Another client has this name. Choose another one, or stop the other client."""

    codes = frozenset({"name_in_use", "publisher_collision", "session_fenced"})


class StorageError(ZBrokerError):
    """The disk failed: the process stops, nothing more is acknowledged."""

    codes = frozenset(
        {"disk_full", "disk_error", "file_missing", "second_writer", "unknown_version", "io"}
        | {"store_in_use", "store_failed", "segments_missing", "serial_gap", "foreign_instance"}
        | {"tail_damaged", "damaged", "unreadable", "copy_differs", "index_failed", "sockets"}
    )


class StoreDamaged(StorageError):
    """A publish or bookmark store cannot be read. Move it away; its content is not changed."""

    codes = frozenset({"store_damaged"})


class ConfigError(ZBrokerError):
    """The settings are wrong; starting again without changing them cannot help."""

    codes = frozenset({"bad_config"})


class Timeout(ZBrokerError, TimeoutError):
    """The operation took longer than you waited, and continues. Wait again, or find out why."""

    codes = frozenset({"timeout"})


class StoreFull(ZBrokerError):
    """The publish store is full: the broker does not acknowledge. The message is not kept."""

    codes = frozenset({"store_full"})


class ClientEnded(ZBrokerError):
    """This client publishes nothing more. Connect again, if that is right."""


class Closed(ClientEnded):
    """You closed it: the client, the subscription, or its store."""

    codes = frozenset({"closed"})


class Forked(ClientEnded):
    """The client was made before a fork and belongs to the parent process. Connect in the child."""

    codes = frozenset({"forked"})


class SessionEnded(ClientEnded):
    """Another client logged on, or published, under this name. Find it before you continue."""

    codes = frozenset({"session_ended"})


class BrokerBehind(ClientEnded):
    """The broker lacks acknowledged messages: find out what happened to its disk first."""

    codes = frozenset({"broker_behind"})


class GaveUp(ClientEnded):
    """There was no session for the time `give_up`."""

    codes = frozenset({"gave_up"})


class Bug(AssertionError):
    """An assertion of zbroker failed: the process ends, is restarted, and the crash is counted."""


def class_of(code: str) -> type[ZBrokerError]:
    """The class that is raised for a code; for an unknown one, ZBrokerError."""
    return _CLASSES.get(code, ZBrokerError)


def _text(code: str, reason: str, hint: str) -> str:
    hint = hint or hint_of(code)
    return f"{code}: {reason}" + (f" ({hint})" if hint else "")


def hint_of(code: str) -> str:
    """The general hint for a code; "" for an unknown one."""
    return (CODES.get(code) or LOCAL_CODES.get(code) or ("", ""))[1]


def tree(root: type[ZBrokerError] = ZBrokerError) -> list[type[ZBrokerError]]:
    """`root` and the classes of this module below it, each before those below it."""
    below = [kind for kind in root.__subclasses__() if kind.__module__ == __name__]
    return [root, *(each for kind in below for each in tree(kind))]


_CLASSES: Final = {code: kind for kind in tree() for code in kind.codes}
_MAKERS: Final = frozenset({ZBrokerError, ClientError, StorageError})
