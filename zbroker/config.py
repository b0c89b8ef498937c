"""The settings of an instance: one frozen tree, read from TOML, with every default in one place.

Sizes are integers of bytes here and `"256MiB"` in the file. Each field's description is its comment
in conf/zbroker.example.toml, which is generated from these classes (`zbroker config example`).
A wrong file raises a ConfigError that says file, line and what to write instead.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from zbroker import limits
from zbroker.endpoints import check_listen, is_loopback
from zbroker.errors import ClientError, ConfigError
from zbroker.paths import Paths

_SIZE: Final = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB|TiB)?")
_UNITS: Final = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AT: Final = re.compile(r" - at `\$\.([^`]*)`")
_TOML_AT: Final = re.compile(r" \(at line (\d+), column \d+\)")
_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"\s*([\w.\"'\- ]+?)\s*=")
_BYTES: Final = {"unit": "bytes"}  # marks a field that the file may write as "256MiB"
_LAUNCH: Final = {"set": "by the command line only"}
_CODE: Final = "bad_config"

Positive = Annotated[int, Meta(ge=1)]


class InstanceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Who this instance is and where it keeps everything."""

    name: Annotated[
        str, Meta(min_length=1, max_length=255, description="Shown by status and to clients.")
    ] = "zbroker"
    group: Annotated[
        str, Meta(min_length=1, max_length=255, description="Instances that belong together.")
    ] = "default"
    data_dir: Annotated[
        str, Meta(min_length=1, description="Everything of this instance; made when missing.")
    ] = "zbroker-data"


class ListenConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where clients connect. Port 0 picks a free one; `status` tells which."""

    ingest: Annotated[str, Meta(description="Publishers, and the URL that clients are given.")] = (
        "tcp://127.0.0.1:9101"
    )
    delivery: Annotated[str, Meta(description="Subscribers.")] = "tcp://127.0.0.1:9102"
    admin: Annotated[str, Meta(description="HTTP for zbroker-admin; loopback only.")] = (
        "http://127.0.0.1:9105"
    )
    advertise: Annotated[
        str, Meta(description='Host that clients are told instead of the bound one; "" is none.')
    ] = ""


class JournalConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The log."""

    directory: Annotated[
        str, Meta(description='Segments; "" is the folder journal in data_dir.')
    ] = ""
    segment_size: Annotated[
        int,
        Meta(
            ge=limits.SEGMENT_MIN_BYTES,
            le=1 << 40,
            extra=_BYTES,
            description="Size of one file of the log, 1MiB at least; the first one may be smaller.",
        ),
    ] = limits.SEGMENT_BYTES
    durability: Annotated[
        Literal["disk"],
        Meta(description='"disk": nothing is acknowledged before it is on stable storage.'),
    ] = "disk"
    time: Annotated[
        Literal["append", "publisher"],
        Meta(description='Log time: "append" is the broker\'s clock, "publisher" the message\'s.'),
    ] = "append"
    #: `zbroker start --accept-tail-loss`: not in the file, or it would accept every loss to come
    accept_tail_loss: Annotated[bool, Meta(extra=_LAUNCH)] = False


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What is refused with a code. Clients are told the sizes at logon."""

    message_bytes: Annotated[
        int, Meta(ge=1024, le=1 << 30, extra=_BYTES, description="One message.")
    ] = limits.MESSAGE_MAX_BYTES
    batch_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=64 << 20,
            extra=_BYTES,
            description="A packed batch of several messages.",
        ),
    ] = limits.BATCH_MAX_BYTES
    window_bytes: Annotated[
        int,
        Meta(ge=1024, le=1 << 40, extra=_BYTES, description="Unacknowledged, per publisher."),
    ] = limits.WINDOW_BYTES
    clients: Annotated[Positive, Meta(description="Logged-on connections of one door.")] = (
        limits.CLIENTS_MAX
    )


class DeliveryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Subscriptions."""

    workers: Annotated[int, Meta(ge=1, le=1, description="Processes; only 1 for now.")] = 1


class IngestConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The front door."""

    spin_us: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="How long it and the journal look for work before they sleep, in us:\n"
            "lower latency, some CPU. 0 is off, as on a machine with one core.",
        ),
    ] = 300


class SecurityConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may connect."""

    allow_unauthenticated: Annotated[
        bool,
        Meta(
            description="true: whoever reaches the port may publish and read. An address that is\n"
            "not loopback is refused without it."
        ),
    ] = False


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What the processes tell, on stderr by default."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description='"debug", "info", "warning" or "error".'),
    ] = "info"
    format: Annotated[Literal["text", "json"], Meta(description='"text" or "json".')] = "text"
    file: Annotated[
        str, Meta(description='Appended to instead of stderr (may be rotated); "" is stderr.')
    ] = ""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of one instance."""

    instance: InstanceConfig = field(default_factory=InstanceConfig)
    listen: ListenConfig = field(default_factory=ListenConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    ingest: IngestConfig = field(default_factory=IngestConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def accepting_tail_loss(self) -> Config:
        """These settings for a journal that may give up a damaged acknowledged tail, once."""
        journal = msgspec.structs.replace(self.journal, accept_tail_loss=True)
        return msgspec.structs.replace(self, journal=journal)

    def paths(self, instance: int) -> Paths:
        """Where the instance with this id keeps what."""
        data = Path(self.instance.data_dir).absolute()
        journal = self.journal.directory
        return Paths(data, Path(journal).absolute() if journal else data / "journal", instance)


class _Source(NamedTuple):
    """Where settings came from, to say it in an error."""

    name: str
    text: str

    def fail(self, path: tuple[str, ...], reason: str, hint: str) -> NoReturn:
        line = find_line(self.text, path)
        where = f"{self.name}:{line}: " if line else f"{self.name}: "
        raise ConfigError(_CODE, where + reason, hint) from None


def load(
    path: Path | None = None, overrides: Mapping[str, str | int | bool] | None = None
) -> Config:
    """The settings in the TOML file at `path` (none: defaults), with `overrides` over them.

    `overrides` has dotted keys: {"instance.data_dir": "/var/lib/zbroker"}.
    Raises: ConfigError.
    """
    if path is None:
        return parse("", "the command line", overrides)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(_CODE, f"{path}: {error.strerror}", "-c names a TOML file") from None
    except UnicodeDecodeError:
        raise ConfigError(_CODE, f"{path} is not UTF-8", "-c names a TOML file") from None
    return parse(text, str(path), overrides)


def parse(text: str, name: str, overrides: Mapping[str, str | int | bool] | None = None) -> Config:
    """The settings in the TOML `text`, called `name` in errors. Raises: ConfigError."""
    source = _Source(name, text)
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_AT.search(str(error))
        where = f"{name}:{found[1]}" if found else name
        reason = _TOML_AT.sub("", str(error))
        raise ConfigError(_CODE, f"{where}: {reason}", "the file must be TOML") from None
    for dotted, value in (overrides or {}).items():
        section, _, key = dotted.partition(".")
        tree.setdefault(section, {})[key] = value
    _check_keys(tree, source)
    _read_sizes(tree, source)
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        path = tuple(at[1].split(".")) if at else ()
        reason = f"`{'.'.join(path)}`: {_AT.sub('', str(error))}"
        source.fail(path, reason, _describe(path))
    _check_values(config, source)
    return config


def _check_keys(tree: dict[str, Any], source: _Source) -> None:
    sections = {name: type_ for name, type_, _ in _fields(Config)}
    for section, keys in tree.items():
        if section not in sections:
            _unknown((section,), list(sections), source)
        if not isinstance(keys, dict):
            source.fail((section,), f"`{section}` is a table", f"write [{section}] above its keys")
        known = [name for name, _, _ in _fields(sections[section])]
        for key in keys:
            if key not in known:
                _unknown((section, key), known, source)


def _unknown(path: tuple[str, ...], known: list[str], source: _Source) -> NoReturn:
    near = difflib.get_close_matches(path[-1], known, 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known)}"
    source.fail(path, f"unknown key `{'.'.join(path)}`", hint)


def _read_sizes(tree: dict[str, Any], source: _Source) -> None:
    for section, type_, _ in _fields(Config):
        for key, _, meta in _fields(type_):
            value = tree.get(section, {}).get(key)
            if meta.extra == _BYTES and isinstance(value, str):
                try:
                    tree[section][key] = parse_size(value)
                except ValueError:
                    reason = f"`{section}.{key}`: {value!r} is not a size"
                    source.fail((section, key), reason, 'write "256MiB", "64KiB" or bytes')


def _check_values(config: Config, source: _Source) -> None:
    for key in ("ingest", "delivery", "admin"):
        value: str = getattr(config.listen, key)
        scheme = "http" if key == "admin" else "tcp"
        try:
            check_listen(value, scheme)
        except ClientError as error:
            source.fail(("listen", key), f"`listen.{key}`: {error.reason}", error.hint)
        if is_loopback(value):
            continue
        if key == "admin":
            reason = f"`listen.admin`: {value} is not loopback"
            source.fail(("listen", key), reason, "use http://127.0.0.1:9105 and a tunnel")
        if not config.security.allow_unauthenticated:
            reason = f"`listen.{key}`: {value} is open to other hosts and asks nobody for a name"
            hint = "listen on 127.0.0.1, or set security.allow_unauthenticated = true"
            source.fail(("listen", key), reason, hint)
    if config.limits.window_bytes < config.limits.batch_bytes:
        reason = "`limits.window_bytes` is less than `limits.batch_bytes`"
        source.fail(("limits", "window_bytes"), reason, "a window holds at least one batch")


def find_line(text: str, path: tuple[str, ...]) -> int:
    """The line, from 1, of the key at `path` in a TOML text, else of its table, else 0."""
    table: tuple[str, ...] = ()
    best, best_line = 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = found = _parts(header[1])
        elif key := _KEY.match(line):
            found = table + _parts(key[1])
        else:
            continue
        if found[: len(path)] == path[: len(found)] and min(len(found), len(path)) > best:
            best, best_line = min(len(found), len(path)), number
    return best_line


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def parse_size(text: str) -> int:
    """Bytes of `"256MiB"`, `"64KiB"` or `"1000"`. Raises: ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return int(match[1]) * _UNITS[match[2]]


def format_size(size: int) -> str:
    """The shortest exact text of `size`, as `parse_size` reads it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


# -- writing ------------------------------------------------------------------------------------


def to_toml(config: Config, *, comments: bool = False) -> str:
    """`config` as TOML that `load` reads back; `comments`: with what each field is for above it."""
    lines: list[str] = []
    for section, type_, _ in _fields(Config):
        doc = (type_.__doc__ or "").strip()
        lines += [f"# {doc}"] if comments else []
        lines += [f"[{section}]"]
        for key, _, meta in _fields(type_):
            if comments:
                lines += [f"# {part}" for part in (meta.description or "").splitlines()]
            lines += [f"{key} = {_toml_value(getattr(getattr(config, section), key), meta)}"]
        lines += [""]
    return "\n".join(lines[:-1]) + "\n"


def example() -> str:
    """The text of conf/zbroker.example.toml."""
    head = "# Every setting of zbroker with its default. Made by `zbroker config example`.\n\n"
    return head + to_toml(Config(), comments=True)


def _toml_value(value: object, meta: Meta) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and meta.extra != _BYTES:
        return str(value)
    text = format_size(value) if isinstance(value, int) else str(value)
    return msgspec.json.encode(text).decode()  # a JSON string is a TOML string


def _describe(path: tuple[str, ...]) -> str:
    """The description of the field at `path`, for an error about it."""
    here: type = Config
    description = ""
    for part in path:
        for name, type_, meta in _fields(here):
            if name == part:
                here, description = type_, meta.description or ""
    return " ".join(description.splitlines())


@cache
def _fields(type_: Any) -> list[tuple[str, Any, Meta]]:  # noqa: ANN401 - any Struct or not
    """Name, type and Meta of each field that the file may set; nothing for what is no Struct."""
    if not (isinstance(type_, type) and issubclass(type_, Struct)):
        return []
    hints = get_type_hints(type_, include_extras=True)
    rows = []
    for name in type_.__struct_fields__:
        metas = [m for m in getattr(hints[name], "__metadata__", ()) if isinstance(m, Meta)]
        meta = metas[-1] if metas else Meta()
        if meta.extra != _LAUNCH:
            rows.append((name, getattr(hints[name], "__origin__", hints[name]), meta))
    return rows
