"""What a subscribe command asks for, checked: filter, pace, conflation, projection. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from zbroker import topics
from zbroker.blocks.frame_builder import Projection
from zbroker.delivery.conflation import Conflation
from zbroker.delivery.pace import Rate, ReplayPace, parse_rate
from zbroker.delivery.selection import StartSelection
from zbroker.delivery.subscription import LIVE, Names, SubscriptionState
from zbroker.errors import ClientError
from zbroker.filters import BUILT_IN, Vocabulary, chars_to_compile, compile_filter
from zbroker.filters.keys import parse_key
from zbroker.filters.projection import compile_select
from zbroker.limits import U63_MAX
from zbroker.recording import Recording
from zbroker.topics import matcher
from zbroker.wire import messages as m
from zbroker.wire.bodies import CODEC_ZSTD
from zbroker.wire.messages import Options

NS: int = 1_000_000_000
_PLAIN = Options()


def made(
    names: Names,
    command: m.Subscribe,
    type_of: Callable[[str], str],
    since_ms: int,
    vocabulary: Vocabulary = BUILT_IN,
) -> SubscriptionState:
    """The subscription that a command asks for; without credit, not located yet.

    vocabulary: what its filter may call.

    Raises: ClientError bad_topic, bad_filter, bad_field.
    """
    options = command.options or _PLAIN
    check(command, options)
    select = compile_select(options.select) if options.select else None
    return SubscriptionState(
        names, wish_of(command.topic, command.filter, vocabulary, regex=command.regex),
        Projection(type_of, CODEC_ZSTD in options.codecs, select), 0, options, command.topic,
        command.regex, action_of(command), since_ms, conflation_of(options),
        left=options.limit or U63_MAX, paused=options.paused,
        sid_packed=msgspec.msgpack.encode(command.sid),
    )  # fmt: skip


def chars_of(command: m.Subscribe | m.Replace | m.Ranges, vocabulary: Vocabulary = BUILT_IN) -> int:
    """How many characters of a command are to be compiled."""
    found = topics.chars_to_compile(command.topic or "", regex=command.regex)
    if isinstance(command, m.Ranges):
        return found
    options = command.options if isinstance(command, m.Subscribe) else None
    if options is not None:
        found += len(options.select or "") + sum(map(len, options.conflation_key))
    return found + chars_to_compile(command.filter, vocabulary)


def action_of(command: m.Subscribe) -> str:
    """What who subscribes has to be entitled to: what is to come, or all that is recorded."""
    bounded = command.bookmark is not None or command.until is not None
    return "replay" if bounded else "subscribe"


def wish_of(
    topic: str, content: str | None, vocabulary: Vocabulary = BUILT_IN, *, regex: bool
) -> StartSelection:
    """Raises: ClientError bad_topic, bad_filter."""
    found = compile_filter(content, vocabulary) if content else None
    return StartSelection(matcher(topic, regex=regex), found)


def check(command: m.Subscribe, options: Options) -> None:
    """Raises: ClientError bad_field for options that do not go together."""
    rate = rate_of(options)
    if options.delivery == LIVE and (rate is not None or options.paused):
        raise ClientError("bad_field", "`live` delivery has neither rate nor pause")
    if options.rate_max_gap_s is not None and (rate is None or rate.kind != "multiple"):
        raise ClientError("bad_field", "`rate_max_gap_s` goes with a rate like 2X")
    if options.conflation_s is None and (options.conflation_key or by_replay(options)):
        name = "conflation_key" if options.conflation_key else "conflation_clock"
        raise ClientError("bad_field", f"`{name}` goes with `conflation_s`")
    if command.unrecorded and replays_only(options):
        raise ClientError(
            "bad_field", "what is not recorded has neither rate nor pause, and is durable nowhere"
        )


def rate_of(options: Options) -> Rate | None:
    """Raises: ClientError bad_field."""
    return parse_rate(options.rate) if options.rate is not None else None


def pace_of(options: Options) -> ReplayPace | None:
    """A pace of its own for one replay."""
    rate = rate_of(options)
    if rate is None:
        return None
    gap = options.rate_max_gap_s
    return ReplayPace(rate, int(gap * NS) if gap is not None else None)


def conflation_of(options: Options, *, live: bool = False) -> Conflation | None:
    """live: for what is not recorded, which has the clock of the replay only."""
    if options.conflation_s is None:
        return None
    paths = [parse_key(text) for text in options.conflation_key]
    interval_ns = max(1, int(options.conflation_s * NS))
    return Conflation(interval_ns, paths, by_replay=live or by_replay(options))


def by_replay(options: Options) -> bool:
    """True if the interval of a conflation is one of the time of the replay."""
    return options.conflation_clock == "replay"


def replays_only(options: Options) -> bool:
    """True if something is asked for that only messages of the log can have."""
    return bool(
        options.rate is not None
        or options.paused
        or options.delivery not in (_PLAIN.delivery, LIVE)
    )


def wants_unrecorded(command: m.Subscribe) -> bool:
    """True if it wants messages of topics that are not recorded too."""
    if command.unrecorded is None:
        asked = command.bookmark is not None or command.until is not None
        return not asked and not replays_only(command.options or _PLAIN)
    return command.unrecorded


def check_recorded(command: m.Subscribe, recording: Recording) -> None:
    """Raises: ClientError topic_not_recorded, if nothing could ever come."""
    if not command.regex and not wants_unrecorded(command) and not recording(command.topic):
        raise ClientError("topic_not_recorded", f"topic {command.topic!r} is not recorded")
