"""Errors by whose fault it is.

    ZBrokerError           has .code, .reason, .hint; what users catch
      ClientError          a request that is wrong or cannot be served now: answered, kept on
      StorageError         the disk or what lies on it: this process stops, nothing is acknowledged
      ConfigError          the settings: exit 78, never retried
    Bug                    an assertion of ours: crash, be restarted, be counted

`CODES` is the one list of codes that may cross the wire; `docs/reference/wire.md` shows it.
"""

from __future__ import annotations

from typing import Final

#: code -> (what happened, what to do). A final refusal never succeeds when repeated unchanged.
CODES: Final[dict[str, tuple[str, str]]] = {
    "bad_frame": (
        "the frames are not a command",
        "send [msgpack map, body...] as in docs/reference/wire.md",
    ),
    "bad_command": (
        "no such command on this door",
        "see the table of commands in docs/reference/wire.md",
    ),
    "bad_field": ("a key is missing or has the wrong type or value", "the reason names the key"),
    "bad_version": ("the protocol version is not spoken here", "use version 1"),
    "not_logged_on": (
        "this connection has no logon",
        "send logon first; after a restart of the broker, again",
    ),
    "auth_failed": (
        "the credentials or the token were not accepted",
        "log on at the ingest door again",
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
        "the log does not hold this bookmark",
        "subscribe from epoch, now or a time",
    ),
    "bookmark_expired": (
        "the bookmark is older than the oldest message kept",
        "the reason names the oldest one",
    ),
    "topic_not_recorded": (
        "the topic is not recorded, so nothing of it can be replayed",
        "subscribe without a bookmark, or record it: [[record]] in the config",
    ),
    "bookmark_pending": ("this instance does not hold that sequence yet", "try again later"),
    "sequence_gap": (
        "a message before this one is missing here",
        "go back to `high` + 1 and send again",
    ),
    "too_large": (
        "a message, batch or header is over the limit",
        "the limits are in the answer to logon",
    ),
    "too_many": ("too many of these on one connection or instance", "close some first"),
    "disk_full": (
        "the disk is nearly full; publishing waits",
        "free space; sending again succeeds then",
    ),
    "not_ready": ("the journal is starting or restarting", "send the same sequence again"),
    "window_full": ("too many unacknowledged bytes", "wait for persisted acks, then send again"),
    "publisher_collision": ("two names have the same publisher id", "choose another name"),
    "gap": (
        "a damaged range of the log cannot be served",
        "the reason names the positions; resume behind them",
    ),
    "segment_held": (
        "somebody still needs this part of the log",
        "`zbroker-admin journal holders` names them",
    ),
    "unknown_sid": ("no subscription with this sid", "subscribe first"),
    "sid_in_use": (
        "this connection has a subscription with this sid",
        "unsubscribe it or choose another sid",
    ),
    "internal": (
        "the broker failed to serve this; it is counted and logged",
        "try again; report it",
    ),
}

#: After one of these the same sequence is sent again; after any other refusal it never is.
TEMPORARY: Final = frozenset({"disk_full", "not_ready", "window_full"})


class ZBrokerError(Exception):
    """What a user of zbroker catches.

    `code` is one of `CODES` (or a local one such as "timeout"), `reason` says what happened to
    this request, `hint` what to do about it.
    """

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        self.code = code
        self.reason = reason
        self.hint = hint or CODES.get(code, ("", ""))[1]
        super().__init__(f"{code}: {reason}" + (f" ({self.hint})" if self.hint else ""))

    def __reduce__(self) -> tuple[type[ZBrokerError], tuple[str, str, str]]:
        return (type(self), (self.code, self.reason, self.hint))


class ClientError(ZBrokerError):
    """A request that cannot be served: answered with its code; the connection is kept."""


class StorageError(ZBrokerError):
    """The disk failed or lies: the process stops, nothing more is acknowledged."""


class ConfigError(ZBrokerError):
    """The settings are wrong; starting again without changing them cannot help."""


class Bug(AssertionError):
    """What must never be: crash, be restarted, be counted."""
