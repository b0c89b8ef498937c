"""Settings from TOML: sizes, durations, unknown keys, and errors that say file, line and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from zbroker.config.journal import RecordConfig
from zbroker.config.link_content import filter_types
from zbroker.config.queue_links import queue_links
from zbroker.config.replication import DestinationConfig
from zbroker.config.tree import Config, Section, clashes, fields, sections
from zbroker.endpoints import check_connect, check_listen, is_loopback
from zbroker.errors import ClientError, ConfigError, ZBrokerError
from zbroker.limits import CONFIG_MAX_BYTES
from zbroker.link_topics import LinkTopics
from zbroker.recording import BadRule, Recording
from zbroker.toml_source import KeyPath, TomlSource, dotted

_CODE: Final = "bad_config"
_PACKAGED: Final = frozenset({"bson", "protobuf"})
_OF_PROTOBUF: Final = ("message", "descriptors")  # keys that other types do not have
_FILE_MAX_BYTES: Final = 1 << 24  # of descriptors with all comments

Refuse = Callable[[str, str, str], NoReturn]  # blames a key of a table: reason, hint


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
    source = TomlSource(name, text)
    tree = source.tree()
    for dotted_key, value in (overrides or {}).items():
        place, _, key = dotted_key.partition(".")
        tree.setdefault(place, {})[key] = value
    for at, section, table in _tables(tree, source):
        _read_table(at, section, table, source)
    config = source.convert(tree, Config, _describe)
    config = msgspec.structs.replace(config, record=_described(config, source))
    _check_values(config, source)
    return config


def _tables(
    tree: dict[str, Any], source: TomlSource
) -> Iterator[tuple[KeyPath, Section, dict[str, Any]]]:
    """Every table of the file, and where it is."""
    known = {section.name: section for section in sections()}
    for name, found in tree.items():
        source.check_known((name,), known)
        section = known[name]
        tables = found if section.many and isinstance(found, list) else [found]
        if section.many != isinstance(found, list) or not all(
            isinstance(table, dict) for table in tables
        ):
            written = f"[[{name}]]" if section.many else f"[{name}]"
            source.fail((name,), f"`{name}` is a table", f"write {written} above its keys")
        for nth, table in enumerate(tables):
            yield ((name, nth) if section.many else (name,)), section, table


def _read_table(at: KeyPath, section: Section, table: dict[str, Any], source: TomlSource) -> None:
    known = {one.name: one for one in fields(section.type)}
    for key, value in table.items():
        path = (*at, key)
        source.check_known(path, known)
        try:
            table[key] = known[key].read(value)
        except ValueError as error:
            source.fail(path, f"`{dotted(path)}`: {error}", known[key].hint)


def _check_values(config: Config, source: TomlSource) -> None:
    _check_functions(config, source)
    recording = _recording(config, source)
    _check_queues(config, recording, source)
    _check_replication(config, recording, source)
    _check_listen(config, source)
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


def _check_listen(config: Config, source: TomlSource) -> None:
    for key in ("ingest", "delivery", "queues", "replication", "admin"):
        value: str = getattr(config.listen, key)
        if key == "replication" and not value:
            continue
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


def _refuse(
    source: TomlSource, table: str, index: int, key: str, reason: str, hint: str
) -> NoReturn:
    """Blames a key of one of several tables."""
    source.fail((table, index, key), f"`{table}.{key}` of table {index + 1}: {reason}", hint)


def _described(config: Config, source: TomlSource) -> list[RecordConfig]:
    return [
        described(record, partial(_refuse, source, "record", index))
        for index, record in enumerate(config.record)
    ]


def _check_functions(config: Config, source: TomlSource) -> None:
    if not config.filters.functions:
        return
    from zbroker.filters import own  # it takes time, and few instances have any

    try:
        own.load(config.filters.functions)
    except ClientError as error:
        path = ("filters", "functions")
        source.fail(path, f"`filters.functions`: {error.reason}", error.hint)


def _recording(config: Config, source: TomlSource) -> Recording:
    try:
        return Recording(config.record, nothing=config.records_nothing)
    except BadRule as error:
        _refuse(source, "record", error.index, error.key, error.reason, error.hint)


def _check_queues(config: Config, recording: Recording, source: TomlSource) -> None:
    if not config.queue:
        return
    # it imports settings of queues from here, and filters, which take time
    from zbroker.definitions import BadQueue, check_queues

    try:
        check_queues(config.queue, recording)
    except BadQueue as error:
        _refuse(source, "queue", error.index, error.key, error.reason, error.hint)


def _check_replication(config: Config, recording: Recording, source: TomlSource) -> None:
    named: set[str] = set()
    topics: dict[str, LinkTopics] = {}
    for index, one in enumerate(config.destination):
        blame = partial(_refuse, source, "destination", index)
        for address in one.to:
            try:
                check_connect(address)
            except ClientError as error:
                blame("to", error.reason, error.hint)
        if one.name in named:
            blame("name", f"two destinations are called {one.name!r}", "keep one: `to` is a list")
        named.add(one.name)
        if one.name == config.instance.name:
            hint = "the name is that of the other instance; give each instance a name of its own"
            blame("name", f"{one.name!r} is this instance", hint)
        if config.security.on and not one.server_key:
            hint = "`zbroker-admin key show` over there prints it"
            blame("server_key", "with security on, the public key of the destination", hint)
        if one.downgrade_after and one.mode == "async":
            blame(
                "downgrade_after", "nothing waits for an asynchronous destination", "take it away"
            )
        topics[one.name] = _content(one, recording, blame)
    links = queue_links(config, topics)
    for index, queue in enumerate(config.queue):
        for fault in links.faults(queue):
            _refuse(source, "queue", index, *fault)
    _check_numbers(config, topics, source)


def _check_numbers(config: Config, topics: dict[str, LinkTopics], source: TomlSource) -> None:
    sync = sum(one.mode == "sync" for one in config.destination)
    for key in ("sync_needed", "min_sync"):
        if (value := getattr(config.replication, key)) > sync:
            reason = f"`replication.{key}` is {value}, there are {sync} synchronous destinations"
            source.fail(("replication", key), reason, 'give more of them mode = "sync"')
    _check_equal(config, topics, source)


def _content(rule: DestinationConfig, recording: Recording, blame: Refuse) -> LinkTopics:
    try:
        types = filter_types(rule, recording)
    except ClientError as error:
        blame("filter", error.reason, 'as in "/price > 100"; see docs/reference/filters.md')
    try:
        return LinkTopics(rule.topics, rule.filter, types)
    except ClientError as error:
        blame("topics", error.reason, 'write names, or patterns with *: ["orders", "trades.*"]')


def _check_equal(config: Config, topics: dict[str, LinkTopics], source: TomlSource) -> None:
    """A number of destinations needs the same topics at each of the synchronous ones."""
    kinds = [topics[one.name] for one in config.destination if one.mode == "sync"]
    sync, differ = len(kinds), len(set(kinds)) > 1
    if differ and (0 < config.replication.sync_needed < sync or config.replication.min_sync):
        key = "min_sync" if config.replication.min_sync else "sync_needed"
        reason = (
            f"with `replication.{key}` any of the synchronous destinations may be counted, and "
            "they get different topics, or by different filters"
        )
        hint = "give them the same `topics` and `filter`, or wait for all of them: take it away"
        source.fail(("replication", key), reason, hint)


def _describe(path: KeyPath) -> str:
    """The description of the field at `path`, for an error about it."""
    tables = (section.type for section in sections() if section.name in path[:1])
    rows = (one for table in tables for one in fields(table))
    return next((one.description for one in rows if one.name in path[1:]), "")


def described(record: RecordConfig, refuse: Refuse) -> RecordConfig:
    """The table with the descriptors of its message. Raises: what `refuse` does."""
    if record.type in _PACKAGED:
        from zbroker.formats import check_package  # few instances need it, and it takes time

        try:
            check_package(record.type)
        except ZBrokerError as error:
            refuse("type", error.reason, error.hint)
    if record.type == "protobuf":
        return msgspec.structs.replace(record, described=_descriptors(record, refuse))
    for key in _OF_PROTOBUF:
        if getattr(record, key):
            refuse(key, f"`{key}` goes with type protobuf only", "take it away")
    return record


def _descriptors(record: RecordConfig, refuse: Refuse) -> bytes:
    """What a config hands to each process of the file with descriptors."""
    from zbroker.formats import protobuf  # likewise

    for key in _OF_PROTOBUF:
        if not getattr(record, key):
            refuse(key, f"a record of type protobuf needs `{key}`", protobuf.HINT)
    path = record.descriptors
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        refuse("descriptors", f"{path}: {error.strerror}", "name a file that this user may read")
    if len(data) > _FILE_MAX_BYTES:
        reason = f"{path} has {len(data)} bytes, {_FILE_MAX_BYTES} are allowed"
        refuse("descriptors", reason, "describe fewer messages")
    try:
        return protobuf.pruned(data, record.message)
    except ZBrokerError as error:
        refuse("message", error.reason, error.hint)
