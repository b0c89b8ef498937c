"""The index against a plain list of batches: what it says is never after what is wanted."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.bookmarks.checking import KIB, Checker, add_all, full_disk
from tests.bookmarks.logs import INSTANCE, FakeLog
from zbroker.bookmarks.index import Index

SIZES = st.sampled_from([0, 100, 5 * KIB, 30 * KIB, 64 * KIB, 200 * KIB])
PUBLISHERS = st.integers(1, 3)


class Life(RuleBasedStateMachine):
    """Adding, committing, failing, forgetting and reopening in any order."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "index"
        self.index = Index(self.path, INSTANCE)
        self.log = FakeLog()
        self.pending = None
        self.log_start = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.finish_commit()
            self.index.close()
            self.folder.cleanup()

    def added(self) -> None:
        self.index.add(*self.log.entries[-1])

    @rule(publisher=PUBLISHERS, count=st.integers(1, 9), size=SIZES, later=st.integers(0, 2),
          hole=st.sampled_from([0, 0, 0, 7]), times=st.integers(1, 4))  # fmt: skip
    def publish(self, publisher, count, size, later, hole, times):
        for _ in range(times):
            self.log.publish(publisher, count, size, later=later, hole=hole)
            self.added()

    @rule(publisher=PUBLISHERS, size=SIZES, part=st.integers(1, 7))
    def publish_late(self, publisher, size, part):
        if self.log.publish_late(publisher, size, part=part):
            self.added()

    @rule(size=SIZES)
    def control(self, size):
        self.log.control(size)
        self.added()

    @rule()
    def roll_over(self):
        self.log.roll_over()

    @precondition(lambda self: self.pending is None)
    @rule()
    def take(self):
        self.pending = self.index.take()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def finish_commit(self):
        if self.pending is not None:
            self.index.commit(self.pending)
            assert self.index.failed == ""
            assert self.index.stamp == self.pending.stamp
            self.pending = None

    @precondition(lambda self: self.pending is not None)
    @rule()
    def fail_commit(self):
        before = self.index.stamp
        with full_disk(self.path):
            self.index.commit(self.pending)
        if self.index.failed:
            assert self.index.stamp == before
        self.pending = None

    @precondition(lambda self: self.pending is None)
    @rule(keep=st.integers(0, 100), generation=st.integers(1, 5), same=st.booleans())
    def forget(self, keep, generation, same):
        # what was removed is not given up: its publishers' sequences and its times were had
        removed = sum(batch.position < self.log_start for batch, _ in self.log.entries)
        kept = max(len(self.log.entries) * keep // 100, removed)
        position = max(self.log.cut(kept, same_segment=same), self.log_start)
        self.log.position = position
        self.index.set_generation(generation)
        self.index.forget_after(position)
        assert self.index.stamp.position <= position
        assert self.index.stamp.generation == generation
        assert self.index.end <= position

    @rule(share=st.integers(0, 100))
    def remove(self, share):
        """The oldest segments go, up to about a share of the log; never the newest one."""
        entries = self.log.entries
        upto = len(entries) * share // 100
        firsts = [
            batch.position
            for at, (batch, serial) in enumerate(entries[: upto + 1])
            if at and entries[at - 1][1] != serial
        ]
        self.log_start = max([self.log_start, *firsts])
        self.index.forget_before(self.log_start)

    @precondition(lambda self: self.pending is None)
    @rule()
    def sweep(self):
        """What the journal does on its beats: commits until nothing is left to take out."""
        for _ in range(50):
            if not self.index.forgetting:
                break
            self.index.commit(self.index.take())
        assert not self.index.forgetting

    @precondition(lambda self: self.pending is None)
    @rule()
    def reopen(self):
        stamp = self.index.stamp
        self.index.close()
        self.index = Index(self.path, INSTANCE)
        assert self.index.found == ""
        assert self.index.stamp == stamp
        assert self.index.end == stamp.position
        add_all(self.index, self.log)
        self.index.forget_before(self.log_start)

    @invariant()
    def agrees_with_the_list(self):
        if hasattr(self, "index"):
            Checker(self.log, self.index, self.log_start).check()


Life.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
TestLife = Life.TestCase
