"""The options of the data source: their names, aliases and types, and what they mean. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.recording import TYPE_DEFAULT
from zbroker.spark.log_hold import TTL_S
from zbroker.spark.source import parsers

ROWS: Final = 16_384


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options as given. Points are texts of `subscribe`, or positions; None: not given."""

    endpoint: str = ""
    journal: str = ""
    archive: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    filter: str = ""
    filter_type: str = TYPE_DEFAULT
    starting_bookmark: parsers.Point | None = None
    ending_bookmark: parsers.Point | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bookmarks_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    kafka_columns: bool = False
    reader_name: str = ""
    lease_seconds: int = TTL_S
    rows: int = ROWS
    key_file: str = ""
    server_key: str = ""
    user: str = ""
    password_variable: str = ""
    topic: str = ""
    publish_id: str = ""

    @property
    def since(self) -> parsers.Point | None:
        """Where to begin: a time wins over a bookmark."""
        if self.starting_timestamp is not None:
            return self.starting_timestamp
        return self.starting_bookmark

    @property
    def until(self) -> parsers.Point | None:
        """Where to end, likewise."""
        return self.ending_timestamp if self.ending_timestamp is not None else self.ending_bookmark


class Option(NamedTuple):
    """One option: how its text is read, and what it means."""

    name: str
    read: Callable[[str], object]
    meaning: str
    aliases: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """The field that it fills: its name in snake case."""
        return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", self.name)


OPTIONS: Final = (
    Option("endpoint", parsers.url, "URL of a running instance", ("kafka.bootstrap.servers",)),
    Option("journal", parsers.text,
           "data, journal or archive directory; with `endpoint`: read first"),
    Option("archive", parsers.text, "archive directory, if not beside the journal"),
    Option("topics", parsers.names, "topics, separated by commas; default: all", ("subscribe",)),
    Option("topicPattern", parsers.text, "RE2 pattern for whole topics", ("subscribePattern",)),
    Option("filter", parsers.text, "content filter, as in subscriptions"),
    Option("filterType", parsers.text, "type of payloads in a directory, for `filter`"),
    Option("startingBookmark", parsers.point,
           "earliest, latest, a bookmark (begins after it), a vector, or a position (begins at "
           "it); default: earliest, for a stream latest", ("startingOffsets",)),
    Option("endingBookmark", parsers.point,
           "latest, a bookmark (inclusive), a vector, or a position (exclusive); batch only",
           ("endingOffsets",)),
    Option("startingTimestamp", parsers.time,
           "milliseconds since 1970, or ISO 8601 with a zone; overrides startingBookmark"),
    Option("endingTimestamp", parsers.time, "likewise, exclusive; batch only"),
    Option("minPartitions", parsers.count,
           "at least this many partitions; default: 4, for a stream by size"),
    Option("maxRecordsPerPartition", parsers.count, "at most this many positions in a partition"),
    Option("maxBookmarksPerTrigger", parsers.count,
           "stream: at most this many positions in a micro-batch", ("maxOffsetsPerTrigger",)),
    Option("maxBytesPerTrigger", parsers.size,
           "stream: at most about this many bytes of log in a micro-batch"),
    Option("failOnDataLoss", parsers.flag,
           "false: continue at the oldest kept message; default true"),
    Option("kafkaColumns", parsers.flag, "columns of Kafka's connector"),
    Option("readerName", parsers.name, "name of the lease in the instance", ("groupIdPrefix",)),
    Option("leaseSeconds", parsers.seconds,
           "for how long a plan or a killed query keeps the log; default 600"),
    Option("rows", parsers.count, "at most this many rows in an Arrow batch; default 16384"),
    Option("keyFile", parsers.text, "path of this client's NAME.key_secret, on every executor"),
    Option("serverKey", parsers.text, "public key of the broker, or path of its NAME.key"),
    Option("user", parsers.text, "user, if several share a key"),
    Option("passwordVariable", parsers.text,
           "environment variable of the driver that holds the user's password"),
    Option("topic", parsers.text, "writing: the topic of all rows; overrides their column `topic`"),
    Option("publishId", parsers.name, "writing a batch: jobs with the same id publish once"),
)  # fmt: skip
_BY_NAME: Final = {
    name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)
}
_SPARKS: Final = ("checkpointlocation", "queryname")  # Spark hands its own ones on, too
_SECRETS: Final = ("password", "secret", "token", "key")


def parse(given: Mapping[str, str]) -> SourceOptions:
    """The options that users gave. Raises: ClientError bad_field, bad_bookmark."""
    found: dict[str, object] = {}
    said: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in _SPARKS:
            continue
        option = _option(name)
        if option.field in found:
            text = f"option {name!r} says the same as {said[option.field]!r}"
            raise ClientError("bad_field", text)
        said[option.field] = name
        found[option.field] = _read(option, value)
    options = SourceOptions(**found)  # type: ignore[arg-type]
    _check(options)
    return options


def _option(name: str) -> Option:
    option = _BY_NAME.get(name.lower())
    if option is not None:
        return option
    if name.lower() in _SECRETS:
        hint = "secrets appear in plans and logs: use keyFile, or passwordVariable"
        raise ClientError("bad_field", f"there is no option {name!r}", hint)
    near = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
    known = [spelled for option in OPTIONS for spelled in (option.name, *option.aliases)]
    if near:
        spelled = next(one for one in known if one.lower() == near[0])
        raise ClientError("bad_field", f"there is no option {name!r}", f"did you mean {spelled!r}?")
    raise ClientError("bad_field", f"there is no option {name!r}", f"there are {', '.join(known)}")


def _read(option: Option, value: str) -> object:
    try:
        return option.read(value)
    except ClientError as error:
        raise ClientError(error.code, f"option {option.name}: {error.reason}", error.hint) from None


def _check(options: SourceOptions) -> None:
    """Raises: ClientError bad_field."""
    if not options.endpoint and not options.journal:
        raise ClientError(
            "bad_field", "neither `endpoint` nor `journal` is given", "say where the log is"
        )
    if options.archive and not options.journal:
        raise ClientError("bad_field", "`archive` belongs to `journal`, which is not given")
    if options.topics and options.topic_pattern:
        raise ClientError("bad_field", "give `topics` or `topicPattern`, not both")
    if options.key_file and not options.server_key:
        raise ClientError("bad_field", "`keyFile` needs `serverKey`, the broker's public key")
    if (options.topic or options.publish_id) and not options.endpoint:
        raise ClientError("bad_field", "writing needs `endpoint`", "a directory is only read")
    if not options.key_file and (options.server_key or options.user or options.password_variable):
        raise ClientError("bad_field", "`serverKey`, `user`, `passwordVariable` need `keyFile`")
