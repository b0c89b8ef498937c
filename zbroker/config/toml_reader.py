"""Settings from TOML: sizes, durations, unknown keys, and errors that say file, line and remedy."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from zbroker.config.journal import RecordConfig
from zbroker.config.tree import Config, ConfigKey, Section, clashes, fields, sections
from zbroker.config.units import UNITS, read_unit
from zbroker.endpoints import check_listen, is_loopback
from zbroker.errors import ClientError, ConfigError, ZBrokerError
from zbroker.limits import CONFIG_MAX_BYTES
from zbroker.recording import BadRule, Recording

_AT: Final = re.compile(r" - at `\$\.([^`]*)`")
_TOML_AT: Final = re.compile(r" \(at line (\d+), column \d+\)")
_INDEX: Final = re.compile(r"\[(\d+)\]")
_HEADER: Final = re.compile(r"\s*\[+\s*([^\[\]]+?)\s*\]+")
_KEY: Final = re.compile(r"\s*([\w.\"'\- ]+?)\s*=")
_CODE: Final = "bad_config"


class _TomlSource(NamedTuple):
    """Where settings came from, to say it in an error."""

    name: str
    text: str

    def fail(self, path: tuple[str, ...], reason: str, hint: str, nth: int = 0) -> NoReturn:
        line = find_line(self.text, path, nth)
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
    source = _TomlSource(name, text)
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_AT.search(str(error))
        where = f"{name}:{found[1]}" if found else name
        reason = _TOML_AT.sub("", str(error))
        raise ConfigError(_CODE, f"{where}: {reason}", "the file must be TOML") from None
    for dotted, value in (overrides or {}).items():
        place, _, key = dotted.partition(".")
        tree.setdefault(place, {})[key] = value
    for section, nth, table in _tables(tree, source):
        _read_table(section, nth, table, source)
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        path = tuple(re.sub(r"\[[^\]]*\]", "", part) for part in at[1].split(".")) if at else ()
        reason = f"`{'.'.join(path)}`: {_AT.sub('', str(error))}"
        index = _INDEX.search(at[1]) if at else None
        source.fail(path, reason, _describe(path), int(index[1]) if index else 0)
    config = msgspec.structs.replace(config, record=_described(config, source))
    _check_values(config, source)
    return config


def _tables(
    tree: dict[str, Any], source: _TomlSource
) -> Iterator[tuple[Section, int, dict[str, Any]]]:
    """Every table of the file that may be there; of several of one name, which it is, from 0."""
    known = {section.name: section for section in sections()}
    for name, found in tree.items():
        section = known.get(name)
        if section is None:
            _unknown((name,), list(known), source)
        tables = found if section.many and isinstance(found, list) else [found]
        if section.many != isinstance(found, list) or not all(
            isinstance(table, dict) for table in tables
        ):
            written = f"[[{name}]]" if section.many else f"[{name}]"
            source.fail((name,), f"`{name}` is a table", f"write {written} above its keys")
        yield from ((section, nth, table) for nth, table in enumerate(tables))


def _read_table(section: Section, nth: int, table: dict[str, Any], source: _TomlSource) -> None:
    known = {one.name: one for one in fields(section.type)}
    for key, value in table.items():
        if key not in known:
            _unknown((section.name, key), list(known), source, nth)
        unit = (known[key].meta.extra or {}).get("unit")
        try:
            table[key] = read_unit(value, unit)
        except ValueError as error:
            path = (section.name, key)
            hint = UNITS[unit].hint if unit else ""
            source.fail(path, f"`{'.'.join(path)}`: {error}", hint, nth)


def _unknown(
    path: tuple[str, ...], known: list[str], source: _TomlSource, nth: int = 0
) -> NoReturn:
    near = difflib.get_close_matches(path[-1], known, 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known)}"
    source.fail(path, f"unknown key `{'.'.join(path)}`", hint, nth)


def _check_values(config: Config, source: _TomlSource) -> None:
    _check_functions(config, source)
    _check_queues(config, _recording(config, source), source)
    for key in ("ingest", "delivery", "queues", "admin"):
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
        if not config.security.on and not config.security.allow_unauthenticated:
            reason = (
                f"`listen.{key}`: {value} is open to other hosts and does not authenticate clients"
            )
            hint = (
                "set security.key and security.access (`zbroker-admin key new`), listen on "
                "127.0.0.1, or set security.allow_unauthenticated = true"
            )
            source.fail(("listen", key), reason, hint)
    for key, what, hint in clashes(config):
        source.fail(("listen", key), f"`listen.{key}`: {what}", hint)
    if bool(config.security.key) != bool(config.security.access):
        missing = "access" if config.security.key else "key"
        reason = f"`security.{missing}` is missing: `key` and `access` go together"
        source.fail(("security",), reason, "see docs/howto/expose-a-broker-safely.md")
    if (size := len(msgspec.json.encode(config))) > CONFIG_MAX_BYTES:
        reason = f"the settings have {size} bytes as JSON, {CONFIG_MAX_BYTES} are allowed"
        hint = "write fewer tables; `zbroker-admin queue create` makes queues beside the config"
        source.fail((), reason, hint)
    if config.limits.window_bytes < config.limits.batch_bytes:
        reason = "`limits.window_bytes` is less than `limits.batch_bytes`"
        source.fail(("limits", "window_bytes"), reason, "a window holds at least one batch")


def _described(config: Config, source: _TomlSource) -> list[RecordConfig]:
    found = []
    for index, record in enumerate(config.record):
        try:
            found.append(described(record))
        except BadType as error:
            path = ("record", error.key)
            reason = f"`record.{error.key}` of table {index + 1}: {error.reason}"
            source.fail(path, reason, error.hint, index)
    return found


def _check_functions(config: Config, source: _TomlSource) -> None:
    if not config.filters.functions:
        return
    from zbroker.filters import own  # it takes time, and few instances have any

    try:
        own.load(config.filters.functions)
    except ClientError as error:
        path = ("filters", "functions")
        source.fail(path, f"`filters.functions`: {error.reason}", error.hint)


def _recording(config: Config, source: _TomlSource) -> Recording:
    try:
        return Recording(config.record, nothing=config.records_nothing)
    except BadRule as error:
        path = ("record", error.key)
        reason = f"`record.{error.key}` of table {error.index + 1}: {error.reason}"
        source.fail(path, reason, error.hint, error.index)


def _check_queues(config: Config, recording: Recording, source: _TomlSource) -> None:
    if not config.queue:
        return
    # it imports settings of queues from here, and filters, which take time
    from zbroker.definitions import BadQueue, check_queues

    try:
        check_queues(config.queue, recording)
    except BadQueue as error:
        path = ("queue", error.key)
        reason = f"`queue.{error.key}` of table {error.index + 1}: {error.reason}"
        source.fail(path, reason, error.hint, error.index)


def find_line(text: str, path: tuple[str, ...], nth: int = 0) -> int:
    """The line, from 1, of the key at `path` in a TOML text, else of its table, else 0.

    nth: which of several tables `[[path[0]]]` is meant, from 0.
    """
    table: tuple[str, ...] = ()
    best, best_line, before = 0, 0, -1
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = found = _parts(header[1])
            before += table == path[:1]
        elif key := _KEY.match(line):
            found = table + _parts(key[1])
        else:
            continue
        if (before < nth and nth) or before > nth:
            continue  # of another table with this name
        if found[: len(path)] == path[: len(found)] and min(len(found), len(path)) > best:
            best, best_line = min(len(found), len(path)), number
    return best_line


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _describe(path: tuple[str, ...]) -> str:
    """The description of the field at `path`, for an error about it."""
    rows: list[ConfigKey] = [
        one
        for section in sections()
        if path and section.name == path[0]
        for one in fields(section.type)
    ]
    found = [one.meta.description or "" for one in rows if one.name in path[1:]]
    return " ".join(found[0].splitlines()) if found else ""


_PACKAGED: Final = frozenset({"bson", "protobuf"})
_FILE_MAX_BYTES: Final = 1 << 24  # of descriptors with all comments


class BadType(ZBrokerError):
    """The type of a table cannot be used, because of what `key` says."""

    key = "type"


def described(record: RecordConfig) -> RecordConfig:
    """The table with the descriptors of its message. Raises: BadType."""
    if record.type not in _PACKAGED:
        _refuse_keys(record)
        return record
    # few instances have such a type, and the imports take time
    from zbroker.formats import check_package, protobuf

    try:
        check_package(record.type)
    except ZBrokerError as error:
        raise _bad("type", error.reason, error.hint) from None
    if record.type != "protobuf":
        _refuse_keys(record)
        return record
    for key in ("message", "descriptors"):
        if not getattr(record, key):
            raise _bad(key, f"a record of type protobuf needs `{key}`", protobuf.HINT)
    try:
        return msgspec.structs.replace(
            record, described=protobuf.pruned(_read(record.descriptors), record.message)
        )
    except BadType:
        raise
    except ZBrokerError as error:
        raise _bad("message", error.reason, error.hint) from None


def _refuse_keys(record: RecordConfig) -> None:
    for key in ("message", "descriptors"):
        if getattr(record, key):
            raise _bad(key, f"`{key}` goes with type protobuf only", "take it away")


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = f"{path}: {error.strerror}"
        raise _bad("descriptors", reason, "name a file that this user may read") from None
    if len(data) > _FILE_MAX_BYTES:
        reason = f"{path} has {len(data)} bytes, {_FILE_MAX_BYTES} are allowed"
        raise _bad("descriptors", reason, "describe fewer messages")
    return data


def _bad(key: str, reason: str, hint: str) -> BadType:
    error = BadType("bad_config", reason, hint)
    error.key = key
    return error
