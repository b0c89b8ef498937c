"""A queues listener in memory: messages, leases with numbers, and what is durable only later."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from pyroaring import BitMap64

from zbroker.ids import Origin, parse_vector
from zbroker.log.records import ends_of, of_ends
from zbroker.wire import consumer_credit as v
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.bodies import pack, to_little

HERE = Origin(0xAB, 1)
CLIENT = "c"


@dataclass(eq=False)
class Lease:
    """number: counts all of them. why: what ended it. forsaken: the broker said that it is over."""

    position: int
    number: int
    until_ms: int
    why: str = ""
    forsaken: bool = False
    picked: bool = False


@dataclass(eq=False)
class Taker:
    """A consumer of the client. left: how many messages it may be sent; None: any number."""

    peer: object
    command: q.Consume
    credit: int
    backlog: int
    leases: dict = field(default_factory=dict)  # position -> Lease
    left: int | None = None
    at: int = 1  # of a replayable queue: the next position


class QueueListener:
    """Answers go to `down`: (peer, answer, body). kind and semantics: of its only queue."""

    def __init__(self, *, lease_ms=1_000, backlog=8, kind="work", semantics="at-least-once"):
        self.lease_ms, self.backlog = lease_ms, backlog
        self.kind, self.semantics = kind, semantics
        self.origin = HERE
        self.count = 0
        self.here = set()
        self.gone = {}  # position -> why
        self.delivered = {}  # position -> how often
        self.released = []  # (position, delay)
        self.noted = set()
        self.takers = {}  # (peer, sid) -> Taker
        self.orphans = []  # leases of lost connections
        self.others = set()  # positions that another client has
        self.pending = []  # (peer, command): not durable
        self.numbers = 0
        self.now = 0
        self.down = []
        self.commands = []
        self.earlier = False  # a broker that knows no credit in messages
        self.logon_code = ""  # refuse the next logon with this
        self.code = ""  # refuse the next command of a consumer with this
        self.sent = {}  # lease number -> Lease
        self.vector = None  # of a queue of several instances: what is before it begins
        self.origins = {}  # position -> origin and position there, of what others accepted

    # -- commands -----------------------------------------------------------------------------

    def handle(self, peer, command):
        self.commands.append(command)
        getattr(self, f"_{type(command).__name__.lower()}")(peer, command)

    def _say(self, peer, answer, body=None):
        self.down.append((peer, answer, body))

    def _listenerlogon(self, peer, command):
        if self.logon_code:
            code, self.logon_code = self.logon_code, ""
            self._say(peer, m.Error(code, "because", cid=command.cid))
            return
        self._say(peer, m.Ack("processed", command.cid, origin=tuple(self.origin)))

    def _logoff(self, peer, _command):
        for key in [key for key in self.takers if key[0] == peer]:
            self._drop(key, "cancelled")

    def _heartbeat(self, _peer, _command):
        pass

    def _consume(self, peer, command):
        if self.code:
            code, self.code = self.code, ""
            self._say(peer, m.Error(code, "because", cid=command.cid, sid=command.sid))
            return
        taker = Taker(peer, command, command.credit, min(command.backlog or 64, self.backlog))
        taker.left = command.messages
        if command.flow_mode == "credit":
            taker.left = command.messages or 0
        asked = of_ends(command.holding)
        for lease in self.orphans:
            if lease.position in asked and not lease.why:
                taker.leases[lease.position] = lease
            else:
                lease.why = lease.why or "connection"
        for lease in self.sent.values():
            lease.forsaken |= lease in self.orphans
            lease.forsaken &= lease.position not in taker.leases  # it has a newer one
        self.orphans = []
        self.takers[peer, command.sid] = taker
        if self.kind == "replayable":
            taker.at = self._place(command)
        self._say(
            peer,
            q.Consuming(
                command.sid, taker.backlog, self.lease_ms, self.semantics, self.kind,
                command.credit, command.cid, ends_of(BitMap64(taker.leases)),
                taker.at if self.kind == "replayable" else None, self.vector, self.mode(command),
            ),
        )  # fmt: skip

    def _place(self, command):
        if command.since in (None, "0") or self.vector is not None:
            return 1
        return parse_vector(command.since)[self.origin] + 1

    def mode(self, command):
        return "window" if self.earlier else command.flow_mode

    def _consumerflow(self, peer, command):
        taker = self.takers.get((peer, command.sid))
        if taker is not None:
            taker.credit += command.bytes
            counted = taker.command.flow_mode == "credit"
            taker.left = taker.left + command.messages if counted else None

    def _stopconsumer(self, peer, command):
        if self._refused(peer, command):
            return
        taker = self.takers[peer, command.sid]
        taker.credit = taker.left = 0
        self._say(peer, m.Ack("processed", command.cid, sid=command.sid))

    def _flushconsumer(self, peer, command):
        if self._refused(peer, command):
            return
        taker, before = self.takers[peer, command.sid], self.numbers
        while self._offer_to(taker, 4):
            pass
        taker.credit = taker.left = 0
        self._say(peer, v.Flushed(command.sid, self.numbers - before, command.cid))

    def _acquiremessages(self, peer, command):
        if self._refused(peer, command):
            return
        taker = self.takers[peer, command.sid]
        free = of_ends(command.ends) & BitMap64(self._free_ones())
        found = free[: max(0, taker.backlog - len(taker.leases))] if taker.credit > 0 else []
        self._say(peer, v.Acquired(command.sid, ends_of(BitMap64(found)), command.cid))
        for position in found:
            self._send(taker, [position], picked=True)

    def _refused(self, peer, command):
        code, self.code = self.code, ""
        if code:
            self._say(peer, m.Error(code, "because", cid=command.cid))
        return bool(code)

    def _cancel(self, peer, command):
        if (peer, command.sid) in self.takers:
            self._drop((peer, command.sid), "cancelled")
        self._say(peer, m.Ack("processed", command.cid, sid=command.sid))

    def _drop(self, key, why):
        for lease in self.takers.pop(key).leases.values():
            lease.why = why

    def _extend(self, peer, command):
        taker, taken, ignored = self.takers[peer, command.sid], 0, 0
        for position in of_ends(command.ends):
            if position in taker.leases:
                taken += 1
                lease_ms = command.lease_ms or self.lease_ms
                taker.leases[position].until_ms = self.now + lease_ms
            else:
                ignored += 1
        self._say(peer, q.Settled(command.cid, command.sid, taken, ignored))

    def _settle(self, peer, command):
        if self.code:
            code, self.code = self.code, ""
            self._say(peer, m.Error(code, "because", cid=command.cid, sid=command.sid))
            return
        self.pending.append((peer, command))

    _release = _rejectmessages = _settle

    # -- what happens by itself ---------------------------------------------------------------

    def commit(self):
        """The oldest of what is not durable is so now, and answered."""
        if not self.pending:
            return
        peer, command = self.pending.pop(0)
        taken = ignored = 0
        kind = type(command).__name__.lower()
        for position in of_ends(command.ends):
            done = self._apply(kind, peer, command, position)
            taken += done
            ignored += not done
        self._say(peer, q.Settled(command.cid, command.sid, taken, ignored))

    def _apply(self, kind, peer, command, position):
        if self.kind == "replayable":
            self.noted.add(position)
            return True
        holder = self._holder(position)
        if self.semantics == "at-most-once":
            self._free(position, "acked")
            return False
        if position not in self.here:
            return False
        if kind == "settle":
            self._end(position, "acked")
        elif holder is None or holder is not self.takers.get((peer, command.sid)):
            return False
        elif kind == "rejectmessages":
            self._end(position, "rejected")
        else:
            self.released.append((position, command.delay_ms))
            self._free(position, "released")
        return True

    def _holder(self, position):
        return next((t for t in self.takers.values() if position in t.leases), None)

    def _end(self, position, why):
        self.here.discard(position)
        self.others.discard(position)
        self.gone[position] = why
        self._free(position, why)

    def _free(self, position, why):
        for taker in self.takers.values():
            lease = taker.leases.pop(position, None)
            if lease is not None:
                lease.why = why
        for lease in self.orphans:
            if lease.position == position and not lease.why:
                lease.why = why

    def publish(self):
        self.count += 1
        self.here.add(self.count)

    def lose(self, peer):
        """A connection is gone: its leases wait for the same client to reclaim them."""
        for key in [key for key in self.takers if key[0] == peer]:
            taker = self.takers.pop(key)
            self.orphans += taker.leases.values()
        self.down = [each for each in self.down if each[0] != peer]

    def pass_time(self, ms):
        self.now += ms
        for taker in self.takers.values():
            for position, lease in list(taker.leases.items()):
                if lease.until_ms <= self.now:
                    self._free(position, "time")
        for lease in self.orphans:
            if lease.until_ms <= self.now and not lease.why:
                lease.why = "time"

    def other_takes(self):
        """Another client has some, and is done with it or gives it back."""
        free = self._free_ones()
        if free and not self.others:
            self.others.add(free[0])
        elif self.others:
            position = self.others.pop()
            if position % 2:
                self._end(position, "acked")

    def _free_ones(self):
        leased = {p for t in self.takers.values() for p in t.leases}
        leased |= {lease.position for lease in self.orphans if not lease.why}
        return sorted(self.here - leased - self.others)

    def offer(self, most=4):
        """Up to `most` neighbours go to a consumer that has room."""
        for taker in self.takers.values():
            if self.kind == "replayable":
                self._replay(taker, most)
                continue
            self._offer_to(taker, most)

    def _offer_to(self, taker, most):
        """How many messages it was sent."""
        space = min(most, taker.backlog - len(taker.leases))
        if taker.left is not None:
            space = min(space, taker.left)
        free = self._free_ones()
        if taker.credit <= 0 or space <= 0 or not free:
            return 0
        run = [p for i, p in enumerate(free[:space]) if p == free[0] + i]
        if self.semantics == "at-most-once":
            for position in run:
                self._end(position, "sent")
        self._send(taker, run)
        return len(run)

    def _replay(self, taker, most):
        end = min(self.count, taker.at + most - 1)
        if taker.credit > 0 and taker.at <= end:
            self._send(taker, list(range(taker.at, end + 1)))
            taker.at = end + 1

    def _send(self, taker, run, *, picked=False):
        data = []
        if taker.left is not None and not picked:
            taker.left -= len(run)
        for position in run:
            self.numbers += 1
            lease = Lease(position, self.numbers, self.now + (self.lease_ms or 10**12))
            lease.picked = picked
            self.sent[self.numbers] = lease
            if self.kind == "work":
                taker.leases[position] = lease
            self.delivered[position] = self.delivered.get(position, 0) + 1
            data.append(b"%d" % self.numbers)
        body = pack(data)
        taker.credit -= len(body)
        counts = array("H", [self.delivered[position] for position in run])
        job = q.Job(
            taker.command.sid, 7, run[0], 10**9, len(run), run[0], topic="t",
            deliveries=to_little(counts) if max(counts) > 1 else None,
            acked=bytes(p in self.noted for p in run) if self.kind == "replayable" else None,
        )  # fmt: skip
        job.origin = self.origins.get(run[0])
        self._say(taker.peer, job, body)
