"""The settings of an instance: one frozen tree with every default in one place.

Sizes are integers of bytes here and `"256MiB"` in the file, durations milliseconds and `"30s"`.
Each field's description is its comment in conf/zbroker.example.toml, which is generated from these
classes (`zbroker config example`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from zbroker import endpoints, limits
from zbroker.config.journal import JournalConfig, RecordConfig
from zbroker.config.queues import QueueConfig
from zbroker.config.units import (
    BYTES,
    DURATION,
    LAUNCH,
    UNITS,
    Bytes,
    Duration,
    Name,
    Natural,
    Positive,
    about,
    read_unit,
)
from zbroker.paths import Paths

WORKERS_MAX: Final = 64  # each costs a port, a process and a copy of unrecorded messages


class InstanceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The identity of this instance, and where it keeps its files."""

    name: Annotated[Name, about("Shown by status and to clients.")] = "zbroker"
    group: Annotated[Name, about("Instances that belong together.")] = "default"
    data_dir: Annotated[
        str, about("All files of this instance; created if missing.", min_length=1)
    ] = "zbroker-data"


class ListenConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses to which clients connect. Port 0 picks a free one; `status` shows it.

    IPv6 addresses are written in brackets; "tcp://[::]:9101" listens on both kinds.
    """

    ingest: Annotated[str, about("Publishers; this is the URL that clients use.")] = (
        "tcp://127.0.0.1:9101"
    )
    delivery: Annotated[
        str,
        about(
            "Subscribers; with several delivery workers, the first one: the others\n"
            "get the following ports."
        ),
    ] = "tcp://127.0.0.1:9102"
    queues: Annotated[str, about("Consumers of queues.")] = "tcp://127.0.0.1:9103"
    admin: Annotated[str, about("HTTP for zbroker-admin; loopback only.")] = "http://127.0.0.1:9105"
    advertise: Annotated[
        str, about('Host that clients connect to, instead of the bound one; "" is none.')
    ] = ""


class RetentionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules for old segments; 0 is never. By default nothing is removed.

    Ages are in log time: from a segment's last message to now, or, with journal.time = "publisher",
    to the newest message of the log.
    """

    archive_after: Annotated[Duration, about("Moved to the archive directory at this age.")] = 0
    compress_after: Annotated[Duration, about("Compressed at this age, wherever it is.")] = 0
    remove_after: Annotated[Duration, about("Removed at this age.")] = 0
    max_bytes: Annotated[Bytes, about("The oldest are removed while the log is larger.")] = 0
    min_free: Annotated[Bytes, about("The oldest are removed while less of the disk is free.")] = 0
    remove_share_max: Annotated[
        Positive, about("The largest part of the log, in percent, that one run removes.", le=100)
    ] = 50
    every: Annotated[int, about("How often these rules are applied.", extra=DURATION, ge=1_000)] = (
        60_000
    )
    held_alarm: Annotated[
        Bytes,
        about(
            "Alarm that names the reader that holds back the removal of more than "
            "this, or a tenth of max_bytes or min_free. A queue is named at once."
        ),
    ] = 10 << 30


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits; beyond them requests are refused with a code. The logon gives clients the sizes."""

    message_bytes: Annotated[
        int,
        about(
            "One published message; larger ones in the log are still read.",
            extra=BYTES,
            ge=1024,
            le=limits.MESSAGE_LARGEST_BYTES,
        ),
    ] = limits.MESSAGE_MAX_BYTES
    batch_bytes: Annotated[
        int, about("A packed batch of several messages.", extra=BYTES, ge=1024, le=64 << 20)
    ] = limits.BATCH_MAX_BYTES
    window_bytes: Annotated[
        int, about("Unacknowledged, per publisher.", extra=BYTES, ge=1024, le=1 << 40)
    ] = limits.WINDOW_BYTES
    clients: Annotated[Positive, about("Logged-on connections of one listener.")] = (
        limits.CLIENTS_MAX
    )
    clients_per_principal: Annotated[
        Natural,
        about(
            "Logged-on connections of one principal at a listener, with security on;\n"
            "0 is half of `clients`."
        ),
    ] = 0
    names_per_principal: Annotated[
        Positive,
        about(
            "Client names under which one principal has published, with security on.\n"
            "The log keeps each of them for ever."
        ),
    ] = limits.NAMES_MAX
    staged_per_principal: Annotated[
        int,
        about(
            "Stages of one principal that are not committed: their bytes, and how\n"
            "much of the log they may hold back from removal.",
            extra=BYTES,
            ge=limits.MIB,
            le=1 << 40,
        ),
    ] = limits.STAGED_BYTES
    connections: Annotated[
        Positive, about("Connections of one listener, whether logged on or not.")
    ] = limits.CONNECTIONS_MAX
    subscriptions_per_principal: Annotated[
        Positive, about("Subscriptions, or consumers, of one principal at one listener.")
    ] = limits.PRINCIPAL_SUBSCRIPTIONS_MAX
    credit_bytes_per_principal: Annotated[
        int, about("Bytes sent to one principal and not read yet.", extra=BYTES, ge=1 << 20)
    ] = limits.PRINCIPAL_CREDIT_BYTES
    lookups_per_principal: Annotated[
        int, about("Bookmarks that one principal looks up or waits for.", ge=1000)
    ] = limits.LOOKUPS_MAX
    compile_ms_per_principal: Annotated[
        Positive,
        about(
            "Time to compile filters, topic patterns and selectors of one principal:\n"
            "ms per second, estimated from their texts. Ten seconds of it may accumulate."
        ),
    ] = limits.COMPILE_MS

    @property
    def clients_of_one(self) -> int:
        """The connections that one principal may have logged on at ingest."""
        return self.clients_per_principal or max(1, self.clients // 2)


class DeliveryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Subscriptions."""

    workers: Annotated[
        Positive,
        about(
            "Processes, 64 at most. Each has its own listener, and each client gets one"
            "\nof them; more than one pays off if one core is not enough for all subscribers.",
            le=WORKERS_MAX,
        ),
    ] = 1


class FiltersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Content filters."""

    functions: Annotated[
        list[str],
        about(
            'Additional functions for filters of subscriptions, such as ["REGION"]:\n'
            "installed packages offer them as entry points of the group zbroker_functions."
        ),
    ] = []


class IngestConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The publishers' side."""

    spin_us: Annotated[
        Natural,
        about(
            "How long ingest and the journal poll for work before they sleep, in us:\n"
            "lower latency for some CPU time. 0 is off, as on a machine with one core.",
            le=1_000_000,
        ),
    ] = 300


class SecurityConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Authentication and rights. With a key every connection is encrypted and authenticated."""

    key: Annotated[
        str,
        about(
            "Secret key file of this instance (`zbroker-admin key new`). With it\n"
            "security is on: CURVE on every listener, and only what `access` permits is\n"
            'allowed. "" is off.'
        ),
    ] = ""
    access: Annotated[
        str, about("File with principals, their keys and roles; read again when it changes.")
    ] = ""
    allow_unauthenticated: Annotated[
        bool,
        about(
            "true: every client that reaches the port may publish and read. Without\n"
            "it or a key, an address that is not loopback is refused."
        ),
    ] = False

    @property
    def on(self) -> bool:
        """True if every connection is authenticated."""
        return bool(self.key)


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The log lines of the processes, on stderr by default."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        about('"debug", "info", "warning" or "error".'),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        about(
            '"text", or "json": one object per line with time, level, room, code, '
            "message, and the values of the message by name."
        ),
    ] = "text"
    file: Annotated[str, about('File to append to (may be rotated); "" is stderr.')] = ""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of one instance."""

    instance: InstanceConfig = field(default_factory=InstanceConfig)
    listen: ListenConfig = field(default_factory=ListenConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    record: list[RecordConfig] = []
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    queue: list[QueueConfig] = []
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    filters: FiltersConfig = field(default_factory=FiltersConfig)
    ingest: IngestConfig = field(default_factory=IngestConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def records_nothing(self) -> bool:
        """True if no topic is recorded: everything is live only."""
        return not self.record and self.journal.record == "nothing"

    def accepting(self, *, tail_loss: bool = False, missing: bool = False) -> Config:
        """These settings for a journal that accepts a loss, once.

        tail_loss: a damaged acknowledged tail. missing: the oldest segments, which are not there.
        """
        journal = msgspec.structs.replace(
            self.journal, accept_tail_loss=tail_loss, accept_missing=missing
        )
        return msgspec.structs.replace(self, journal=journal)

    def paths(self, instance: int) -> Paths:
        """The paths of the instance with this id."""
        data = Path(self.instance.data_dir).absolute()
        journal, archive = self.journal.directory, self.journal.archive_directory
        return Paths(
            data,
            Path(journal).absolute() if journal else data / "journal",
            Path(archive).absolute() if archive else data / "archive",
            instance,
        )


class Section(NamedTuple):
    """A table of the file; `many`: there may be any number, `[[name]]`."""

    name: str
    type: type[Struct]
    many: bool


class ConfigKey(NamedTuple):
    """A key of a table. type: of its values; bounded: the same with its bounds."""

    name: str
    type: Any
    meta: Meta
    bounded: Any

    @property
    def description(self) -> str:
        """What it is for, in one line."""
        return " ".join((self.meta.description or "").splitlines())

    @property
    def hint(self) -> str:
        """How a value is written in the unit of this key, "" without one."""
        unit = (self.meta.extra or {}).get("unit")
        return UNITS[unit].hint if unit else ""

    def read(self, value: Any) -> Any:  # noqa: ANN401 - what a file may hold
        """A value of the file in the unit of this key. Raises: ValueError."""
        return read_unit(value, (self.meta.extra or {}).get("unit"))

    def convert(self, value: Any, *, strict: bool = True) -> object:  # noqa: ANN401 - as above
        """The same, checked. Raises: ValueError, msgspec.ValidationError."""
        return msgspec.convert(self.read(value), self.bounded, strict=strict)


@cache
def sections() -> list[Section]:
    """The tables of a file, in order."""
    rows = []
    for name, kind in get_type_hints(Config).items():
        many = get_origin(kind) is list
        rows.append(Section(name, get_args(kind)[0] if many else kind, many))
    return rows


@cache
def fields(type_: type[Struct]) -> list[ConfigKey]:
    """The keys of a table that the file may set."""
    hints = get_type_hints(type_, include_extras=True)
    rows = []
    for name in type_.__struct_fields__:
        hint = hints[name]
        metas = getattr(hint, "__metadata__", ())
        described = "".join(meta.description or "" for meta in metas)
        extra = next((meta.extra for meta in metas if meta.extra), None)
        if extra != LAUNCH:
            meta = Meta(description=described, extra=extra)
            rows.append(ConfigKey(name, getattr(hint, "__origin__", hint), meta, hint))
    return rows


def default_of(type_: type[Struct], name: str) -> object:
    """The default of a key of a table; None if it has to be given."""
    found = next(each for each in msgspec.structs.fields(type_) if each.name == name)
    if found.default is not msgspec.NODEFAULT:
        return found.default
    factory = found.default_factory
    return None if factory is msgspec.NODEFAULT else factory()


DELIVERY: Final = "delivery"
QUEUES: Final = "queues"
_PORT_MAX: Final = 65_535


def delivery_rooms(config: Config) -> tuple[str, ...]:
    """The rooms of its delivery workers, the first one first."""
    more = (f"{DELIVERY}-{worker}" for worker in range(2, config.delivery.workers + 1))
    return (DELIVERY, *more)


def reader_rooms(config: Config) -> tuple[str, ...]:
    """The rooms that read the log, each with cursors of its own: what they need stays."""
    return (*delivery_rooms(config), QUEUES)


def socket_of(name: str, room: str) -> str:
    """What the ipc socket `name` of this delivery room is called."""
    return name + room.removeprefix(DELIVERY)


def doors(config: Config) -> dict[str, str]:
    """What each room with clients listens on, as the config has it."""
    found = {"ingest": config.listen.ingest}
    first = endpoints.split(config.listen.delivery)
    for behind, room in enumerate(delivery_rooms(config)):
        port = first.port + behind if first.port else 0
        found[room] = str(first._replace(port=port)) if behind else config.listen.delivery
    return found | {QUEUES: config.listen.queues, "admin": config.listen.admin}


def setting_of(room: str) -> str:
    """The key of [listen] that a room's door comes from."""
    return room.partition("-")[0]


def clashes(config: Config) -> Iterator[tuple[str, str, str]]:
    """Doors that cannot be: the setting to change, what is wrong, what to write instead."""
    found = doors(config)
    workers = config.delivery.workers
    last = endpoints.split(config.listen.delivery).port + workers - 1
    if last > _PORT_MAX:
        reason = f"{workers} delivery workers need the ports up to {last}; the last is {_PORT_MAX}"
        yield DELIVERY, reason, "choose a lower port, or 0: each worker gets a free one"
        return
    for (one, left), (other, right) in combinations(found.items(), 2):
        if _meet(endpoints.split(left), endpoints.split(right)):
            reason = f"{one} and {other} would both listen on port {endpoints.split(right).port}"
            hint = "choose another; several delivery workers take consecutive ports"
            yield setting_of(other), reason, hint


def _meet(one: endpoints.Endpoint, other: endpoints.Endpoint) -> bool:
    """True if both are the same port of the same address."""
    if one.port != other.port or not one.port:
        return False
    hosts = {endpoints.split(endpoints.told(str(at), "")).host for at in (one, other)}
    return len(hosts) == 1 or "*" in hosts
