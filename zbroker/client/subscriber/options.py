"""What users write for `subscribe` and `consume`, checked, as it goes over the wire. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from zbroker.client.message import Message
from zbroker.client.subscriber import points
from zbroker.errors import ZBrokerError
from zbroker.ids import NOW
from zbroker.limits import CREDIT_DEFAULT_BYTES, NAME_MAX_BYTES
from zbroker.wire.messages import SECONDS_MAX, Options, Ranges, Subscribe
from zbroker.wire.queue_messages import BACKLOG_MAX, Consume

Delivery = Literal["persisted", "fully_durable", "live"]
Rate = int | float | str
Clock = Literal["replay", "log"]
#: seconds, a timedelta, or text: "250ms", "10s", "1.5m", "2h", "1d"
Duration = int | float | timedelta | str
#: a message is processed when the next one is asked for, or when `Subscription.discard` says so
Discard = Literal["auto", "manual"]
NotFound = Literal["fail", "epoch", "now"]
#: a consumer gets messages as far as its backlog goes, or as many as `Consumer.flow` asked for
FlowMode = Literal["window", "credit"]

L = TypeVar("L")

TIMEOUT_S: Final = 10.0  # for the broker to answer

_RATE: Final = re.compile(
    r"(?P<number>\d+\.?\d*|\.\d+)\s*(?P<unit>X|B|[KMG]i?B)?", re.ASCII | re.IGNORECASE
)
RATE_MAX: Final = 10**12  # what the broker takes at the most
_DURATION: Final = re.compile(r"(\d+\.?\d*|\.\d+)\s*(ms|s|m|h|d)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PLAIN: Final = Options()


class SubscribeOptions(NamedTuple):
    """What `subscribe` is given. name, recent, discard: see `zbroker.client.bookmark_stores`.

    timeout: how long the broker may take to accept it, beyond what it was asked to wait.
    """

    command: Subscribe
    handler: Callable[[Message], object] | None = None
    on_caught_up: Callable[[], object] | None = None
    timeout: float = TIMEOUT_S
    name: str | None = None
    recent: bool = False
    discard: Discard = "auto"


def subscribe_options(  # noqa: PLR0913 - every option by its name
    topic: str,
    *,
    since: points.Point | None = None,
    until: points.Point | None = None,
    regex: bool = False,
    filter: str | None = None,  # noqa: A002 - the word of the field
    delivery: Delivery = "persisted",
    rate: Rate | None = None,
    rate_max_gap: Duration | None = None,
    conflation: Duration | None = None,
    conflation_key: str | Sequence[str] | None = None,
    conflation_clock: Clock | None = None,
    select: str | None = None,
    limit: int | None = None,
    paused: bool = False,
    bookmark_not_found: NotFound = "fail",
    bookmark_wait: Duration = 0,
    unrecorded: bool | None = None,
    credit: int = CREDIT_DEFAULT_BYTES,
    handler: Callable[[Message], object] | None = None,
    on_caught_up: Callable[[], object] | None = None,
    name: str | None = None,
    discard: Discard = "auto",
    timeout: float = TIMEOUT_S,
) -> SubscribeOptions:
    """See `Client.subscribe`. Raises: ZBrokerError bad_field, whose reason names the option."""
    keys = [conflation_key] if isinstance(conflation_key, str) else list(conflation_key or [])
    options = Options(
        delivery=choice("delivery", delivery, get_args(Delivery)),
        rate=None if rate is None else _rate(rate),
        rate_max_gap_s=None if rate_max_gap is None else seconds("rate_max_gap", rate_max_gap),
        conflation_s=None if conflation is None else seconds("conflation", conflation),
        conflation_key=[_text("conflation_key", key) for key in keys],
        conflation_clock=_clock(conflation_clock, conflation),
        select=None if select is None else _text("select", select),
        limit=None if limit is None else whole_number("limit", limit),
        paused=_flag("paused", paused),
        wait_s=seconds("bookmark_wait", bookmark_wait, zero=True),
    )
    _check_together(options)
    recent = since == points.RECENT
    command = Subscribe(
        "", topic, regex=regex, filter=filter_text(filter), credit=credit,
        options=None if options == _PLAIN else options,
        bookmark=None if since is None or recent else points.since_text(since),
        until=None if until is None else points.until_text(until),
        bookmark_not_found=bookmark_not_found, unrecorded=unrecorded,
    )  # fmt: skip
    return SubscribeOptions(command, handler, on_caught_up, timeout, name, recent, discard)


class RangesOptions(NamedTuple):
    """What `ranges` is given."""

    command: Ranges
    timeout: float


def ranges_options(
    topic: str | None = None,
    *,
    since: points.Point = "epoch",
    until: points.Point = "now",
    regex: bool = False,
    parts: int = 1,
    timeout: float = TIMEOUT_S,
) -> RangesOptions:
    """See `Client.ranges`. Raises: ZBrokerError bad_bookmark."""
    begin, end = points.since_text(since), points.until_text(until)
    command = Ranges(topic=topic, regex=regex, bookmark=begin, until=end, parts=parts)
    return RangesOptions(command, timeout)


class ConsumeOptions(NamedTuple):
    """What `consume` is given. timeout: how long the broker may take to accept it."""

    command: Consume
    timeout: float


def consume_options(  # noqa: PLR0913 - as above
    queue: str,
    *,
    backlog: int | None = None,
    filter: str | None = None,  # noqa: A002 - as above
    since: points.Point | None = None,
    selector: str | None = None,
    until: points.End | None = None,
    bookmark_not_found: NotFound = "fail",
    credit: int = CREDIT_DEFAULT_BYTES,
    flow: FlowMode = "window",
    timeout: float = TIMEOUT_S,
) -> ConsumeOptions:
    """See `Client.consume`. Raises: ZBrokerError bad_field, bad_bookmark; TypeError."""
    choice("bookmark_not_found", bookmark_not_found, get_args(NotFound))
    if selector is not None and not selector:
        raise ZBrokerError("bad_field", "an empty selector selects nothing", "leave it out")
    command = Consume(
        "", queue_name(queue), filter=filter_text(filter), credit=credit,
        backlog=0 if backlog is None else whole_number("backlog", backlog, BACKLOG_MAX),
        since=None if since is None else _since(since),
        selector=None if selector is None else filter_text(selector),
        until=None if until is None else _place(until),
        bookmark_not_found=bookmark_not_found, flow_mode=choice("flow", flow, get_args(FlowMode)),
    )  # fmt: skip
    return ConsumeOptions(command, timeout)


def replays_only(options: Options) -> bool:
    """True if something is asked for that only messages of the log can have."""
    fully_durable = options.delivery not in (_PLAIN.delivery, "live")
    return options.rate is not None or options.paused or fully_durable


def seconds(name: str, value: Duration, *, zero: bool = False) -> float:
    """The seconds that `value` means. Raises: ZBrokerError bad_field."""
    found = _seconds(value)
    if found is None or not (0 <= found <= SECONDS_MAX) or (found == 0 and not zero):
        least = "0" if zero else "more than 0"
        raise ZBrokerError(
            "bad_field",
            f"{name}={value!r} is not {least} to {SECONDS_MAX} seconds",
            'give seconds, a timedelta, or text like "10s" or "250ms"',
        )
    return found


def filter_text(text: str | None) -> str | None:
    """A filter, None for none. Raises: ZBrokerError bad_field."""
    return _text("filter", text) if text else None


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        return None if match is None else float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def choice(name: str, value: L, values: Iterable[object]) -> L:
    """`value`, which is one of `values`. Raises: ZBrokerError bad_field."""
    if value not in values:
        names = ", ".join(map(str, values))
        raise ZBrokerError("bad_field", f"{name}={value!r} is not one of {names}")
    return value


def whole_number(name: str, value: int, most: int | None = None) -> int:
    """`value`, which is a number from 1 to `most`. Raises: ZBrokerError bad_field."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):
        bounds = "a number from 1 on" if most is None else f"1 to {most}"
        raise ZBrokerError("bad_field", f"{name}={value!r} is not {bounds}")
    return value


def _clock(value: Clock | None, conflation: Duration | None) -> Clock:
    """By default that of the replay; without conflation the broker needs none."""
    if value is not None:
        choice("conflation_clock", value, get_args(Clock))
    if value is not None and conflation is None:
        raise ZBrokerError("bad_field", "conflation_clock goes with conflation")
    return "log" if conflation is None else value or "replay"


def _rate(value: Rate) -> Rate:
    number: object = value
    if isinstance(value, str):
        match = _RATE.fullmatch(value.strip())
        number = None if match is None else float(match["number"])
    if isinstance(number, bool) or not isinstance(number, int | float):
        number = 0  # not a rate either
    if not 0 < number <= RATE_MAX:
        raise ZBrokerError(
            "bad_field",
            f"rate={value!r} is not a rate",
            'give messages per second (1000), bytes per second ("500KB") or a multiple ("2X")',
        )
    return value.strip() if isinstance(value, str) else value


def _flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise ZBrokerError("bad_field", f"{name}={value!r} is neither True nor False")
    return value


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise ZBrokerError("bad_field", f"{name}={value!r} is not text")
    return value


def _check_together(options: Options) -> None:
    """Options that do not go together. Raises: ZBrokerError bad_field."""
    if options.delivery == "live" and (options.rate is not None or options.paused):
        raise ZBrokerError("bad_field", "delivery='live' has neither rate nor pause")
    multiple = isinstance(options.rate, str) and options.rate[-1:] in "xX"
    if options.rate_max_gap_s is not None and not multiple:
        raise ZBrokerError("bad_field", 'rate_max_gap goes with a rate that is a multiple ("2X")')
    if options.conflation_key and options.conflation_s is None:
        raise ZBrokerError("bad_field", "conflation_key goes with conflation")


def queue_name(name: str) -> str:
    """A name that a queue may have. Raises: ZBrokerError bad_field; TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a queue is a str, not {type(name).__name__}")
    if not 0 < len(name.encode()) <= NAME_MAX_BYTES:
        raise ZBrokerError("bad_field", f"queue={name!r} is not 1 to {NAME_MAX_BYTES} bytes")
    return name


def _since(point: points.Point) -> str:
    return points.since_text(point) if points.is_range(point) else _place(point)


def _place(point: points.Point) -> str:
    """As `since` of a subscription, without ranges."""
    if points.is_range(point):
        raise ZBrokerError("bad_bookmark", "a range is in `since`, and brings its own end")
    return NOW if point == "now" else points.since_text(point)
