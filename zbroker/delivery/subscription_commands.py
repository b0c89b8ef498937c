"""Commands about subscriptions: begin, give credit, pause, resume, replace, end. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from zbroker import topics
from zbroker.blocks.frame_builder import Projection
from zbroker.delivery.conflation import Conflation
from zbroker.delivery.connections import Connections, DeliveryConnection, ReadRight, Rights
from zbroker.delivery.contract import Effect
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.live import LiveSubscriptions, drops_ack
from zbroker.delivery.pace import Rate, ReplayPace, parse_rate
from zbroker.delivery.selection import StartSelection, TypeOf
from zbroker.delivery.subscription import FULLY_DURABLE, LIVE, Names, SubscriptionState
from zbroker.engine.effects import Send
from zbroker.errors import ClientError
from zbroker.filters import BUILT_IN, Vocabulary, chars_to_compile, compile_filter
from zbroker.filters.content_filter import check_at_once
from zbroker.filters.expressions import parse_key
from zbroker.filters.projection import compile_select
from zbroker.ids import format_vector
from zbroker.limits import SUBSCRIPTIONS_MAX, U63_MAX
from zbroker.recording import Recording
from zbroker.topics import matcher
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.bodies import CODEC_ZSTD
from zbroker.wire.messages import Options

NS: Final = 1_000_000_000
_PLAIN: Final = Options()


class SubscriptionRegistry(dict[int, SubscriptionState]):
    """All subscriptions by key, located or not."""

    def __init__(
        self, connections: Connections, cursors: Cursors, live: LiveSubscriptions,
        recording: Recording, rights: Rights, vocabulary: Vocabulary,
    ) -> None:  # fmt: skip
        """vocabulary: what filters may call."""
        super().__init__()
        self._vocabulary, self._rights, self._connections = vocabulary, rights, connections
        self._cursors, self._live, self._recording = cursors, live, recording
        self._last_key = 0
        self._plain: set[int] = set()  # keys of those that want what is not recorded

    # -- begin and end ------------------------------------------------------------------------

    def check(self, connection: DeliveryConnection, command: m.Subscribe) -> None:
        """Before anything is looked up or made for it. Raises: ClientError."""
        if command.sid in connection.subscriptions:
            raise ClientError("sid_in_use", f"sid {command.sid!r} is in use on this connection")
        if len(connection.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise ClientError("too_many", f"{SUBSCRIPTIONS_MAX} subscriptions per connection")
        connection.use.account.check_subscription()
        action, unrecorded = action_of(command), command.unrecorded is True
        wanted = ReadRight(action, command.topic, command.regex, unrecorded)
        self._rights.check(connection.token.principal, wanted)
        plain = wants_unrecorded(command)
        self._check_recorded(command.topic, regex=command.regex, unrecorded=plain)

    def _check_recorded(self, topic: str, *, regex: bool, unrecorded: bool) -> None:
        """Raises: ClientError topic_not_recorded, if nothing could ever come."""
        if not regex and not unrecorded and not self._recording(topic):
            raise ClientError("topic_not_recorded", f"topic {topic!r} is not recorded")

    def begin(
        self, connection: DeliveryConnection, command: m.Subscribe, now_s: float
    ) -> SubscriptionState:
        """A new one that was checked, to be located. Raises: ClientError."""
        self._last_key += 1
        names = Names(self._last_key, connection.rid, command.sid)
        vocabulary, type_of = self._of(connection), self._recording.type_of
        one = connection.use.account.compile(
            chars_of(command, vocabulary),
            lambda: made(names, command, type_of, int(now_s * 1000), vocabulary),
        )
        self._rights.allow(one, connection.token.principal, unrecorded=command.unrecorded is True)
        plain = wants_unrecorded(command) and not self._recording.everything
        if plain:
            _check_at_once(one.selection)
        one.credit = connection.grant(command.credit)
        if plain:
            self._plain.add(one.names.key)
        self[one.names.key] = one
        connection.begin(one)
        return one

    def _of(self, connection: DeliveryConnection) -> Vocabulary:
        """What filters of this client may call."""
        return self._vocabulary.of_client(connection.token.name, connection.token.principal)

    def started(self, one: SubscriptionState) -> None:
        """It is located: it gets what is not recorded, too, if it wants that."""
        replay = self._cursors.alone(one)
        replay.paused = one.paused
        replay.pace = pace_of(one.options)
        if one.names.key in self._plain:
            self._live.add(one, conflation_of(one.options, live=True))
        self._cursors.wake(replay)

    def end(self, one: SubscriptionState) -> None:
        """It is over, for whatever reason."""
        key, rid, sid = one.names
        self._cursors.remove(one)
        self._live.remove(one)
        self._plain.discard(key)
        del self[key]
        self._connections[rid].end(sid)

    def entitle(self, one: SubscriptionState) -> None:
        """The rules have changed. Raises: ClientError not_entitled: it has to end."""
        unrecorded = one.names.key in self._plain
        principal = self._connections[one.names.rid].token.principal
        changed = self._rights.allow(one, principal, unrecorded=unrecorded)
        if changed:
            self._live.forget(one)
        if changed and one.conflation is not None and one.names.key in self._cursors.of:
            self._cursors.again(one)

    # -- while it goes on ---------------------------------------------------------------------

    def flow(self, connection: DeliveryConnection, command: m.Flow) -> list[Effect]:
        """More credit."""
        one = connection.subscriptions.get(command.sid)
        if one is None:
            if command.sid in connection.ended:
                return []  # it ended while this was on its way
            raise unknown_sid(command.sid)
        one.credit += connection.grant(command.bytes, one)
        one.trail.give_back(command.bytes)
        replay = self._cursors.of.get(one.names.key)
        if replay is not None:
            self._cursors.wake(replay)
        sends, drops = self._live.drain(one), drops_ack(one)
        return [*sends, Send(connection.rid, drops)] if drops is not None else sends

    def pause(self, connection: DeliveryConnection, command: m.Pause) -> list[Effect]:
        """Nothing more is sent to them; their positions stay."""
        many = _named(connection, command.sids)
        for one in many:
            if one.live or one.names.key in self._plain:
                raise ClientError("bad_field", f"{one.names.sid!r} is live: it cannot be paused")
        for one in many:
            one.paused = True
            if one.names.key in self._cursors.of:
                replay = self._cursors.alone(one)
                replay.paused, replay.due_ns = True, None
                replay.pace = pace_of(one.options)
        return [_processed(connection, m.Ack("processed", command.cid))]

    def resume(self, connection: DeliveryConnection, command: m.Resume) -> list[Effect]:
        """They go on; those that can share one replay do."""
        many = _named(connection, command.sids)
        resumed = [one for one in many if one.paused]
        for one in resumed:
            one.paused = False
        running = [one for one in resumed if self._goes_on(one)]
        groups = self._combined(running)
        if not command.groups:
            groups = [group for group in groups if group[0].conflation is None][:1]
        for group in groups:
            self._cursors.together(group)
        for one in running:
            replay = self._cursors.of[one.names.key]
            replay.paused = False
            self._cursors.wake(replay)
        sids = [[one.names.sid for one in group] for group in groups]
        answer = m.Ack("processed", command.cid, combined=sids[0] if sids else None)
        answer.groups = sids if command.groups and sids else None
        return [_processed(connection, answer)]

    def _goes_on(self, one: SubscriptionState) -> bool:
        """True if its start was found."""
        replay = self._cursors.of.get(one.names.key)
        return replay is not None and not replay.finding

    def _combined(self, many: Sequence[SubscriptionState]) -> list[list[SubscriptionState]]:
        """Those that can share one replay, the largest group first.

        They are at the same position, have the same rate, and wait for destinations alike. Those
        that conflate do so alike, and end at the same place: at an end all that is held goes out,
        which must not be too early for another one.
        """
        alike: dict[Hashable, list[SubscriptionState]] = defaultdict(list)
        for one in many:
            options, ends = one.options, None
            if one.conflation is not None:
                ends = options.conflation_s, options.conflation_clock, one.until, one.stop_ns
            position = self._cursors.of[one.names.key].position
            rate = str(options.rate), options.rate_max_gap_s
            alike[position, rate, one.fully_durable, ends].append(one)
        groups = [group for group in alike.values() if len(group) > 1]
        return sorted(groups, key=len, reverse=True)

    def replace(self, connection: DeliveryConnection, command: m.Replace) -> list[Effect]:
        """Another topic or filter from its position on. Raises: ClientError: nothing changes."""
        (one,) = _named(connection, [command.sid])
        replay = self._cursors.of.get(one.names.key)
        if replay is None:
            raise ClientError("not_ready", f"{command.sid!r} is being located")
        self._cursors.leave(replay)
        try:
            self._change(one, command)
            replay.dry = False
        finally:
            self._cursors.wake(replay)
        assert self._cursors.here is not None, "it is located"
        answer = m.Ack("processed", command.cid, sid=command.sid, position=replay.position)
        answer.vector = format_vector(replay.passage.vector(replay.position, self._cursors.here))
        return [_processed(connection, answer)]

    def _change(self, one: SubscriptionState, command: m.Replace) -> None:
        topic, regex = one.topic, one.regex
        if command.topic is not None:
            topic, regex = command.topic, command.regex
        content = one.selection.text if command.filter is None else command.filter
        plain = one.names.key in self._plain
        connection = self._connections[one.names.rid]
        principal = connection.token.principal
        self._rights.check(principal, ReadRight(one.action, topic, regex, plain))
        self._check_recorded(topic, regex=regex, unrecorded=plain)
        vocabulary = self._of(connection)
        selection = connection.use.account.compile(
            chars_of(command, vocabulary),
            lambda: selection_of(topic, content, vocabulary, regex=regex),
        )
        if plain:
            _check_at_once(selection)
        other = replace(one, selection=selection, topic=topic, regex=regex)
        self._rights.allow(other, principal, unrecorded=plain)
        if plain:
            self._live.move(one, topic, regex=regex)
        one.selection, one.topic, one.regex = selection, topic, regex

    def unsubscribe(self, connection: DeliveryConnection, command: m.Unsubscribe) -> list[Effect]:
        """The answer to one that ends, or has ended."""
        if command.sid not in connection.ended:
            raise unknown_sid(command.sid)
        return [_processed(connection, m.Ack("processed", command.cid, sid=command.sid))]


def _check_at_once(selection: StartSelection) -> None:
    """Raises: ClientError bad_filter for one that takes too long for what is not recorded."""
    try:
        check_at_once(selection.steps)
    except ClientError as error:
        hint = "or leave out what is not recorded, with `unrecorded` false"
        raise ClientError(error.code, error.reason, hint) from None


def unknown_sid(sid: str) -> ClientError:
    """The refusal of a command for a subscription that never was."""
    return ClientError("unknown_sid", f"no subscription {sid[:64]!r} on this connection")


def _named(connection: DeliveryConnection, sids: Sequence[str]) -> list[SubscriptionState]:
    """Raises: ClientError unknown_sid, if one of them is not there."""
    for sid in sids:
        if sid not in connection.subscriptions:
            raise unknown_sid(sid)
    return [connection.subscriptions[sid] for sid in dict.fromkeys(sids)]


def _processed(connection: DeliveryConnection, answer: m.Ack) -> Send:
    return Send(connection.rid, codec.encode(answer))


def made(
    names: Names, command: m.Subscribe, type_of: TypeOf, since_ms: int, vocabulary: Vocabulary
) -> SubscriptionState:
    """The subscription that a command asks for; without credit, not located yet.

    vocabulary: what its filter may call.
    Raises: ClientError bad_topic, bad_filter, bad_field.
    """
    options = command.options or _PLAIN
    check(command, options)
    select = compile_select(options.select) if options.select else None
    return SubscriptionState(
        names, selection_of(command.topic, command.filter, vocabulary, regex=command.regex),
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
    """The right that a subscriber needs: to the messages to come, or to all recorded ones."""
    bounded = command.bookmark is not None or command.until is not None
    return "replay" if bounded else "subscribe"


def selection_of(
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
        reason = "unrecorded messages have neither rate nor pause, and are durable nowhere"
        raise ClientError("bad_field", reason)


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
    return options.rate is not None or options.paused or options.delivery == FULLY_DURABLE


def wants_unrecorded(command: m.Subscribe) -> bool:
    """True if it wants messages of topics that are not recorded too."""
    if command.unrecorded is None:
        return action_of(command) == "subscribe" and not replays_only(command.options or _PLAIN)
    return command.unrecorded
