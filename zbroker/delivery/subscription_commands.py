"""Commands about subscriptions: begin, give credit, pause, resume, replace, end. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from zbroker.delivery.connections import Connections, DeliveryConnection, ReadRight, Rights
from zbroker.delivery.contract import Effect
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.live import LiveSubscriptions, told_of_drops
from zbroker.delivery.options import (
    action_of,
    chars_of,
    check_recorded,
    conflation_of,
    made,
    pace_of,
    wants_unrecorded,
    wish_of,
)
from zbroker.delivery.selection import StartSelection
from zbroker.delivery.subscription import Names, SubscriptionState
from zbroker.engine.effects import Send
from zbroker.errors import ClientError
from zbroker.filters import BUILT_IN, Vocabulary
from zbroker.filters.content_filter import check_at_once
from zbroker.limits import SUBSCRIPTIONS_MAX
from zbroker.recording import Recording
from zbroker.wire import codec
from zbroker.wire import messages as m


class SubscriptionRegistry(dict[int, SubscriptionState]):
    """All subscriptions by key, located or not."""

    def __init__(
        self,
        connections: Connections,
        cursors: Cursors,
        live: LiveSubscriptions,
        recording: Recording,
        rights: Rights,
        vocabulary: Vocabulary = BUILT_IN,
    ) -> None:
        """vocabulary: what filters may call."""
        super().__init__()
        self._vocabulary = vocabulary
        self._rights = rights
        self._connections = connections
        self._cursors = cursors
        self._live = live
        self._recording = recording
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
        unrecorded = command.unrecorded is True
        wanted = ReadRight(
            action_of(command), command.topic, regex=command.regex, unrecorded=unrecorded
        )
        self._rights.check(connection.token.principal, wanted)
        check_recorded(command, self._recording)

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
            _check_at_once(one.wish)
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
            self._live.add(one, conflation_of(one.options, live=True), regex=one.regex)
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
        sends, told = self._live.drain(one), told_of_drops(one)
        return [*sends, Send(connection.rid, told)] if told is not None else sends

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
        running = [one for one in resumed if one.names.key in self._cursors.of]
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

    def _combined(self, many: Sequence[SubscriptionState]) -> list[list[SubscriptionState]]:
        """Those that can share one replay, the largest group first.

        They stand at the same position and have the same rate. Those that conflate do so alike,
        and end at the same place: at an end all that is held goes out, which must not be too early
        for another one.
        """
        alike: dict[Hashable, list[SubscriptionState]] = defaultdict(list)
        for one in many:
            options, ends = one.options, None
            if one.conflation is not None:
                ends = options.conflation_s, options.conflation_clock, one.until, one.stop_ns
            position = self._cursors.of[one.names.key].position
            alike[position, str(options.rate), options.rate_max_gap_s, ends].append(one)
        groups = [group for group in alike.values() if len(group) > 1]
        return sorted(groups, key=len, reverse=True)

    def replace(self, connection: DeliveryConnection, command: m.Replace) -> list[Effect]:
        """Another topic or filter from where it stands. Raises: ClientError: nothing changes."""
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
        answer = m.Ack("processed", command.cid, sid=command.sid, position=replay.position)
        return [_processed(connection, answer)]

    def _change(self, one: SubscriptionState, command: m.Replace) -> None:
        topic, regex = one.topic, one.regex
        if command.topic is not None:
            topic, regex = command.topic, command.regex
        content = one.filter_text if command.filter is None else command.filter
        plain = one.names.key in self._plain
        connection = self._connections[one.names.rid]
        principal = connection.token.principal
        self._rights.check(principal, ReadRight(one.action, topic, regex=regex, unrecorded=plain))
        if not regex and not plain and not self._recording(topic):
            raise ClientError("topic_not_recorded", f"topic {topic!r} is not recorded")
        vocabulary = self._of(connection)
        wish = connection.use.account.compile(
            chars_of(command, vocabulary),
            lambda: wish_of(topic, content, vocabulary, regex=regex),
        )
        if plain:
            _check_at_once(wish)
        other = replace(one, wish=wish, topic=topic, regex=regex)
        self._rights.allow(other, principal, unrecorded=plain)
        if plain:
            self._live.move(one, topic, regex=regex)
        one.wish, one.topic, one.regex = wish, topic, regex

    def unsubscribe(self, connection: DeliveryConnection, command: m.Unsubscribe) -> list[Effect]:
        """The answer to one that ends, or has ended."""
        if command.sid not in connection.ended:
            raise unknown_sid(command.sid)
        return [_processed(connection, m.Ack("processed", command.cid, sid=command.sid))]


def _check_at_once(wish: StartSelection) -> None:
    """Raises: ClientError bad_filter for one that takes too long for what is not recorded."""
    try:
        check_at_once(wish.steps)
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
