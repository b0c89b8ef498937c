"""The settings of an instance: one frozen tree with every default in one place.

Sizes are integers of bytes here and `"256MiB"` in the file, durations milliseconds and `"30s"`.
What the docstring of a table says of each key is its comment in conf/zbroker.example.toml, which is
generated from these classes (`zbroker config example`): `key: text`, further lines are indented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from zbroker import endpoints, limits
from zbroker.config.journal import JournalConfig, RecordConfig
from zbroker.config.queues import QueueConfig
from zbroker.config.replication import DestinationConfig, ReplicationConfig
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
    read_unit,
)
from zbroker.paths import Paths

WORKERS_MAX: Final = 64  # each costs a port, a process and a copy of unrecorded messages
_KEY: Final = re.compile(r"\n+(?=\w+:\s)")  # where a docstring begins to describe one


class InstanceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The identity of this instance, and where it keeps its files.

    name: Shown by status and to clients.
    group: Instances that belong together.
    data_dir: All files of this instance; created if missing.
    """

    name: Name = "zbroker"
    group: Name = "default"
    data_dir: Annotated[str, Meta(min_length=1)] = "zbroker-data"


class ListenConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses to which clients connect. Port 0 picks a free one; `status` shows it.

    IPv6 addresses are written in brackets; "tcp://[::]:9101" listens on both kinds.

    ingest: Publishers; this is the URL that clients use.
    delivery: Subscribers; with several delivery workers, the first one: the others
        get the following ports.
    queues: Consumers of queues.
    replication: Other instances that send their logs here, "tcp://0.0.0.0:9104"; "" is none.
    admin: HTTP for zbroker-admin; loopback only.
    advertise: Host that clients connect to, instead of the bound one; "" is none.
    """

    ingest: str = "tcp://127.0.0.1:9101"
    delivery: str = "tcp://127.0.0.1:9102"
    queues: str = "tcp://127.0.0.1:9103"
    replication: str = ""
    admin: str = "http://127.0.0.1:9105"
    advertise: str = ""


class RetentionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules for old segments; 0 is never. By default nothing is removed.

    Ages are in log time: from a segment's last message to now, or, with journal.time = "publisher",
    to the newest message of the log.

    archive_after: Moved to the archive directory at this age.
    compress_after: Compressed at this age, wherever it is.
    remove_after: Removed at this age.
    max_bytes: The oldest are removed while the log is larger.
    min_free: The oldest are removed while less of the disk is free.
    remove_share_max: The largest part of the log, in percent, that one run removes.
    every: How often these rules are applied.
    held_alarm: Alarm that names the reader that holds back the removal of more than this, or \
        a tenth of max_bytes or min_free. A queue is named at once.
    """

    archive_after: Duration = 0
    compress_after: Duration = 0
    remove_after: Duration = 0
    max_bytes: Bytes = 0
    min_free: Bytes = 0
    remove_share_max: Annotated[Positive, Meta(le=100)] = 50
    every: Annotated[int, Meta(extra=DURATION, ge=1_000)] = 60_000
    held_alarm: Bytes = 10 << 30


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits; beyond them requests are refused with a code. The logon gives clients the sizes.

    message_bytes: One published message; larger ones in the log are still read.
    batch_bytes: A packed batch of several messages.
    window_bytes: Unacknowledged, per publisher.
    clients: Logged-on connections of one listener.
    clients_per_principal: Logged-on connections of one principal at a listener, with security on;
        0 is half of `clients`.
    names_per_principal: Client names under which one principal has published, with security on.
        The log keeps each of them for ever.
    staged_per_principal: Stages of one principal that are not committed: their bytes, and how
        much of the log they may hold back from removal.
    connections: Connections of one listener, whether logged on or not.
    subscriptions_per_principal: Subscriptions, or consumers, of one principal at one listener.
    credit_bytes_per_principal: Bytes sent to one principal and not read yet.
    queues_per_principal: Names of queues that clients of one principal have declared, also of those
        that they deleted, with security on. The log keeps each name for ever.
    lookups_per_principal: Bookmarks that one principal looks up or waits for.
    compile_ms_per_principal:
        Time to compile filters, topic patterns and selectors of one principal:
        ms per second, estimated from their texts. Ten seconds of it may accumulate.
    """

    message_bytes: Annotated[int, Meta(extra=BYTES, ge=1024, le=limits.MESSAGE_LARGEST_BYTES)] = (
        limits.MESSAGE_MAX_BYTES
    )
    batch_bytes: Annotated[int, Meta(extra=BYTES, ge=1024, le=64 << 20)] = limits.BATCH_MAX_BYTES
    window_bytes: Annotated[int, Meta(extra=BYTES, ge=1024, le=1 << 40)] = limits.WINDOW_BYTES
    clients: Positive = limits.CLIENTS_MAX
    clients_per_principal: Natural = 0
    names_per_principal: Positive = limits.NAMES_MAX
    staged_per_principal: Annotated[int, Meta(extra=BYTES, ge=limits.MIB, le=1 << 40)] = (
        limits.STAGED_BYTES
    )
    connections: Positive = limits.CONNECTIONS_MAX
    subscriptions_per_principal: Positive = limits.PRINCIPAL_SUBSCRIPTIONS_MAX
    credit_bytes_per_principal: Annotated[int, Meta(extra=BYTES, ge=1 << 20)] = (
        limits.PRINCIPAL_CREDIT_BYTES
    )
    queues_per_principal: Annotated[Positive, Meta(le=10_000)] = limits.QUEUES_OF_ONE_MAX
    lookups_per_principal: Annotated[int, Meta(ge=1000)] = limits.LOOKUPS_MAX
    compile_ms_per_principal: Positive = limits.COMPILE_MS

    @property
    def clients_of_one(self) -> int:
        """The connections that one principal may have logged on at ingest."""
        return self.clients_per_principal or max(1, self.clients // 2)


class DeliveryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Subscriptions.

    workers: Processes, 64 at most. Each has its own listener, and each client gets one
        of them; more than one pays off if one core is not enough for all subscribers.
    """

    workers: Annotated[Positive, Meta(le=WORKERS_MAX)] = 1


class QueuesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The process that serves queues; each queue has a [[queue]] table, or is declared by programs.

    session_timeout_max: The longest time for which a session with transactions may ask to be kept
        without a connection, with what its consumers hold.
    branch_alarm: Alarm if a distributed transaction is prepared that long and not decided; 0 is
        none.
    """

    session_timeout_max: Annotated[Duration, Meta(le=366 * 86_400_000)] = (
        limits.SESSION_TIMEOUT_MAX_MS
    )
    branch_alarm: Duration = 3_600_000


class FiltersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Content filters.

    functions: Additional functions for filters of subscriptions, such as ["REGION"]:
        installed packages offer them as entry points of the group zbroker_functions.
    """

    functions: list[str] = []


class IngestConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The publishers' side.

    spin_us: How long ingest polls for work before it sleeps while a client publishes
        one message at a time, in us: lower latency for some CPU time. Meanwhile it and
        the journal run on one CPU. 0 is off, as on a machine with one core.
    """

    spin_us: Annotated[Natural, Meta(le=1_000_000)] = 300


class SecurityConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Authentication and rights. With a key every connection is encrypted and authenticated.

    key: Secret key file of this instance (`zbroker-admin key new`). With it
        security is on: CURVE on every listener, and only what `access` permits is
        allowed. "" is off.
    access: File with principals, their keys and roles; read again when it changes.
    allow_unauthenticated: true: every client that reaches the port may publish and read. Without
        it or a key, an address that is not loopback is refused.
    """

    key: str = ""
    access: str = ""
    allow_unauthenticated: bool = False

    @property
    def on(self) -> bool:
        """True if every connection is authenticated."""
        return bool(self.key)


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The log lines of the processes, on stderr by default.

    level: "debug", "info", "warning" or "error".
    format: "text", or "json": one object per line with time, level, room, code, message, and \
        the values of the message by name.
    file: File to append to (may be rotated); "" is stderr.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: str = ""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of one instance."""

    instance: InstanceConfig = field(default_factory=InstanceConfig)
    listen: ListenConfig = field(default_factory=ListenConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    record: list[RecordConfig] = []
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    queue: list[QueueConfig] = []
    destination: list[DestinationConfig] = []
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    queues: QueuesConfig = field(default_factory=QueuesConfig)
    filters: FiltersConfig = field(default_factory=FiltersConfig)
    ingest: IngestConfig = field(default_factory=IngestConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def replicates(self) -> bool:
        """True if there are links to other instances, or from them."""
        return bool(self.destination or self.listen.replication)

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

    @property
    def purpose(self) -> str:
        """What it is for, as its docstring says before the keys."""
        return _KEY.split(cleandoc(self.type.__doc__ or ""))[0]


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
    def unit(self) -> str:
        """The key in UNITS, "" without one."""
        return str((self.meta.extra or {}).get("unit", ""))

    @property
    def hint(self) -> str:
        """How a value is written in the unit of this key, "" without one."""
        return UNITS[self.unit].hint if self.unit else ""

    def read(self, value: Any) -> Any:  # noqa: ANN401 - what a file may hold
        """A value of the file in the unit of this key. Raises: ValueError."""
        return read_unit(value, self.unit)

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
    types, bounded = get_type_hints(type_), get_type_hints(type_, include_extras=True)
    described, rows = _described(type_), []
    for name in type_.__struct_fields__:
        metas = getattr(bounded[name], "__metadata__", ())
        extra = next((meta.extra for meta in metas if meta.extra), None)
        if extra != LAUNCH:
            meta = Meta(description=described.get(name, ""), extra=extra)
            rows.append(ConfigKey(name, types[name], meta, bounded[name]))
    return rows


def _described(type_: type[Struct]) -> dict[str, str]:
    """What the docstring of a table says of each key, in lines as the example file has them."""
    found = {}
    for text in _KEY.split(cleandoc(type_.__doc__ or ""))[1:]:
        name, _, about = text.partition(":")
        found[name] = "\n".join(" ".join(line.split()) for line in about.strip().splitlines())
    return found


def default_of(type_: type[Struct], name: str) -> object:
    """The default of a key of a table; None if it has to be given."""
    found = next(each for each in msgspec.structs.fields(type_) if each.name == name)
    if found.default is not msgspec.NODEFAULT:
        return found.default
    factory = found.default_factory
    return None if factory is msgspec.NODEFAULT else factory()


DELIVERY: Final = "delivery"
QUEUES: Final = "queues"
REPLICATION: Final = "replication"
_PORT_MAX: Final = 65_535


def delivery_workers(config: Config) -> tuple[str, ...]:
    """The processes of its delivery workers, the first one first."""
    more = (f"{DELIVERY}-{worker}" for worker in range(2, config.delivery.workers + 1))
    return (DELIVERY, *more)


def log_readers(config: Config) -> tuple[str, ...]:
    """The processes that read the log, each with cursors of its own: what they need stays."""
    replication = (REPLICATION,) if config.destination else ()
    return (*delivery_workers(config), QUEUES, *replication)


def socket_of(name: str, process: str) -> str:
    """What the ipc socket `name` of this delivery process is called."""
    return name + process.removeprefix(DELIVERY)


def listen_endpoints(config: Config) -> dict[str, str]:
    """What each process with clients listens on, as the config has it."""
    found = {"ingest": config.listen.ingest}
    first = endpoints.split(config.listen.delivery)
    for index, process in enumerate(delivery_workers(config)):
        port = first.port + index if first.port else 0
        found[process] = str(first._replace(port=port)) if index else config.listen.delivery
    if config.listen.replication:
        found[REPLICATION] = config.listen.replication
    return found | {QUEUES: config.listen.queues, "admin": config.listen.admin}


def setting_of(process: str) -> str:
    """The key of [listen] that the endpoint of a process comes from."""
    return process.partition("-")[0]


def clashes(config: Config) -> Iterator[tuple[str, str, str]]:
    """Listeners that cannot be: the setting to change, what is wrong, what to write instead."""
    found = listen_endpoints(config)
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
    hosts = {endpoints.split(endpoints.advertised(str(at), "")).host for at in (one, other)}
    return len(hosts) == 1 or "*" in hosts
