"""A delivery listener in memory: a log, cursors over it, and a wire that may lose messages."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from tests.client.wired import HERE
from zbroker.client.effects import Connect, SendCommand
from zbroker.ids import format_vector, parse_vector
from zbroker.wire import messages as m
from zbroker.wire.bodies import pack, to_little

INTERVAL = 5  # positions per interval of conflation: log time is the position


@dataclass(eq=False)
class Cursor:
    """What the listener knows of one subscription. group: those of the same replay, by number."""

    command: m.Subscribe
    position: int
    paused: bool
    credit: int
    group: int = 0
    held: dict = field(
        default_factory=dict
    )  # key -> first and newest position, of the open interval
    due: list = field(default_factory=list)  # pairs of them that are left of the one that has ended
    due_from: int = 0  # its first one: it comes again whole
    reported: int = 0

    @property
    def options(self):
        return self.command.options or m.Options()

    @property
    def safe(self):
        if self.due:
            return self.due_from - 1
        return min((first for first, _ in self.held.values()), default=self.position) - 1

    @property
    def by_replay(self):
        return self.options.conflation_clock == "replay"

    def end_interval(self):
        self.due += sorted(self.held.values())
        self.due_from = min((first for first, _ in self.due), default=0)
        self.held.clear()


class Listener:
    """log: (publisher, sequence) by position - 1. durable: how much of it survives a power cut."""

    def __init__(self, rng):
        self.rng = rng
        self.log = []
        self.durable = 0
        self.cursors = {}
        self.up, self.down = [], []
        self.groups = 0

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Connect):
                self.up, self.down, self.cursors = [], [], {}
            else:
                assert isinstance(effect, SendCommand)
                self.up.append(effect.command)

    def publish(self, publisher, sequence):
        self.log.append((publisher, sequence))

    def sync(self):
        self.durable = len(self.log)

    def cut(self):
        """The power is gone, and with it what was not durable; gives what was lost."""
        lost, self.log = self.log[self.durable :], self.log[: self.durable]
        return lost

    def answer(self):
        """Takes one command off the wire."""
        if not self.up:
            return
        command = self.up.pop(0)
        kind = type(command).__name__.lower()
        getattr(self, f"_{kind}")(command)

    def _listenerlogon(self, command):
        self.down.append((m.Ack("processed", command.cid, origin=tuple(HERE)), None))

    def _subscribe(self, command):
        start = 1 if command.bookmark == "0" else parse_vector(command.bookmark)[HERE] + 1
        paused = command.options is not None and command.options.paused
        self.cursors[command.sid] = Cursor(command, start, paused, command.credit)
        ack = m.Ack("processed", command.cid, sid=command.sid, position=start)
        ack.credit = command.credit
        self.down.append((ack, None))

    def _flow(self, command):
        if command.sid in self.cursors:
            self.cursors[command.sid].credit += command.bytes

    def _unsubscribe(self, command):
        self.cursors.pop(command.sid, None)

    def _knows(self, command):
        """Whether all it is about are there; if not, it is refused."""
        if all(sid in self.cursors for sid in command.sids):
            return True
        self.down.append((m.Error("unknown_sid", "it has ended", cid=command.cid), None))
        return False

    def _pause(self, command):
        if not self._knows(command):
            return
        for sid in command.sids:
            self.cursors[sid].paused, self.cursors[sid].group = True, 0
        self.down.append((m.Ack("processed", command.cid), None))

    def _resume(self, command):
        if not self._knows(command):
            return
        many = [self.cursors[sid] for sid in command.sids]
        resumed = [one for one in many if one.paused]
        for one in many:
            one.paused = False
        assert command.groups
        places = {}
        for one in resumed:
            places.setdefault(one.position, []).append(one)
        groups = [group for group in places.values() if len(group) > 1]
        for group in groups:
            self.groups += 1
            for one in group:
                one.group = self.groups
        sids = [[one.command.sid for one in group] for group in groups] or None
        self.down.append((m.Ack("processed", command.cid, groups=sids), None))

    def _replace(self, command):
        one = self.cursors[command.sid]
        one.command.filter = command.filter
        self.down.append((m.Ack("processed", command.cid, position=one.position), None))

    # -- sending ------------------------------------------------------------------------------

    def send(self):
        """Some replay goes on for a few messages."""
        running = [one for one in self.cursors.values() if not one.paused]
        if not running:
            return
        one = self.rng.choice(running)
        group = [one] if not one.group else [c for c in running if c.group == one.group]
        for _ in range(self.rng.randint(1, 6)):
            end = len(self.log) if one.options.delivery == "live" else self.durable
            if any(member.credit <= 0 for member in group):
                return
            if one.due:
                first, newest = one.due.pop(0)
                self._put(one, first, *self.log[first - 1], newest)
                continue
            if one.by_replay and self.rng.random() < 0.2:
                one.end_interval()
            if one.position > end:
                return
            for member in group:
                self._step(member)

    def _step(self, one):
        """The next message of the log, to one subscription."""
        position, one.position = one.position, one.position + 1
        publisher, sequence = self.log[position - 1]
        wanted = matches(one.command.filter, publisher, sequence)
        if one.options.conflation_s is None:
            if wanted:
                self._put(one, position, publisher, sequence)
            return
        if wanted:
            first, _ = one.held.get(publisher, (position, position))
            one.held[publisher] = (first, position)
        if not one.by_replay and one.position % INTERVAL == 0:
            one.end_interval()

    def _put(self, one, position, publisher, sequence, newest=0):
        body = pack([b"%d" % (newest or position)])
        one.credit -= len(body)
        columns = m.Columns(offset=to_little(array("I", [0])))
        msg = m.Msg(
            one.command.sid, publisher, sequence, 0, 1, position, topic="t", columns=columns
        )  # fmt: skip
        self.down.append((msg, body))

    def tell(self):
        """How far some subscription came."""
        if not self.cursors:
            return
        one = self.rng.choice(list(self.cursors.values()))
        safe = min(one.safe, self.durable)
        if safe > one.reported:
            one.reported = safe
            ack = m.Ack("persisted", sid=one.command.sid, vector=format_vector({HERE: safe}))
            self.down.append((ack, None))


def matches(content, publisher, sequence):
    """A filter is the number of what it leaves out: every so many sequences of a publisher."""
    return not content or (publisher + sequence) % int(content) != 0


def conflated(log, content):
    """The positions that a subscription with conflation is sent, of a log whose intervals ended."""
    first = {}
    for position, (publisher, sequence) in enumerate(log, 1):
        if matches(content, publisher, sequence):
            first.setdefault((position // INTERVAL, publisher), position)
    return sorted(first.values())
