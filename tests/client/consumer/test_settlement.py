"""What is to be settled: merged, cut, repeated, forgotten."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.client.consumer.settlement import (
    ACK,
    EXTEND,
    RUNS_MAX,
    PendingSettlements,
    Verb,
    Whose,
)
from zbroker.errors import ZBrokerError
from zbroker.limits import HEADER_MAX_BYTES, U63_MAX
from zbroker.log.records import of_ends
from zbroker.wire import codec
from zbroker.wire import queue_messages as q

WHOSE = Whose("c1", "work", 1)
VERBS = (ACK, Verb("release"), Verb("release", 5), Verb("reject", reason="x"), EXTEND)
KINDS = {q.Settle: "ack", q.Release: "release", q.RejectMessages: "reject", q.Extend: "extend"}


def due(settling, cids):
    return settling.due(lambda: str(next(cids)), WHOSE, 0)


def verb_of(command):
    ms = getattr(command, "delay_ms", 0) or getattr(command, "lease_ms", 0)
    return Verb(KINDS[type(command)], ms, getattr(command, "reason", ""))


def test_the_largest_command_fits_a_header():
    settling = PendingSettlements()
    settling.add(Verb("reject", reason="é" * 1_024), BitMap64(range(U63_MAX - 20_001, U63_MAX, 2)))
    commands = due(settling, count(1))
    assert len(commands[0].ends) == 2 * RUNS_MAX
    assert all(len(codec.encode(each)) < HEADER_MAX_BYTES for each in commands)
    assert all(len(each.ends) <= 2 * q.SETTLED_MAX for each in commands)


SOME = st.sets(st.integers(1, 40), min_size=1, max_size=8)
STEP = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(VERBS), SOME),
    st.tuples(st.sampled_from(["due", "lost"])),
    st.tuples(st.just("settled"), st.integers(0, 5)),
    st.tuples(st.just("refused"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("keep"), SOME),
)


class Model:
    """Sets of positions: of each verb that is open, and of each command that was sent."""

    def __init__(self):
        self.settling, self.cids, self.open, self.sent = PendingSettlements(), count(1), {}, {}

    def merge(self, verb, positions):
        self.open[verb] = self.open.get(verb, set()) | positions

    def add(self, verb, positions):
        self.settling.add(verb, BitMap64(positions))
        self.merge(verb, positions)

    def due(self):
        for command in due(self.settling, self.cids):
            verb, positions = verb_of(command), set(of_ends(command.ends))
            assert positions == self.open.pop(verb)
            self.sent[command.cid] = (verb, positions)
        assert not self.open

    def settled(self, which):
        if which < len(self.sent):
            cid = list(self.sent)[which]
            assert set(self.settling.settled(cid).positions) == self.sent.pop(cid)[1]

    def refused(self, which, again):
        if which < len(self.sent):
            cid = list(self.sent)[which]
            error = ZBrokerError("internal", "")
            assert self.settling.refused(cid, error, again=again, now_ms=-1_000)
            part = self.sent.pop(cid)
            if again:
                self.merge(*part)

    def lost(self):
        self.settling.lost()
        for part in self.sent.values():
            self.merge(*part)
        self.sent = {}

    def keep(self, kept):
        self.settling.keep(BitMap64(kept))
        left = {v: p if v.kind == "ack" else p & kept for v, p in self.open.items()}
        self.open = {verb: positions for verb, positions in left.items() if positions}

    def check(self):
        parts = [*self.open.items(), *self.sent.values()]
        for kind in ("ack", "release", "reject"):
            wanted = set().union(*(positions for verb, positions in parts if verb.kind == kind))
            assert set(self.settling.under_way(kind)) == wanted
        through = self.settling.through(self.settling.number)
        assert through == all(verb.kind == "extend" for verb, _ in parts)
        assert bool(self.settling) == bool(parts)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=20))
def test_what_is_not_settled_is_known_whatever_happens(steps):
    model = Model()
    for name, *given_ in steps:
        getattr(model, name)(*given_)
        model.check()


def test_an_answer_or_a_refusal_that_no_one_waits_for_is_nothing():
    settling = PendingSettlements()
    assert settling.settled("1") is None
    assert not settling.refused("1", ZBrokerError("internal", ""), again=True, now_ms=0)


def test_the_first_refusal_is_reported():
    settling = PendingSettlements()
    for code in ("internal", "too_large"):
        settling.refuse(ZBrokerError(code, ""))
    assert settling.refusal.code == "internal"
