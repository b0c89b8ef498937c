"""Staging, commits, aborts, snapshots, removals, crashes in any order, against a model."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.journal.whole import Whole
from zbroker.journal.format import KIND_PUBLISH, Batch

STEPS = 60


class History:
    """One seed. staged: payloads under each token; seen: what readers get, from the floor on."""

    def __init__(self, seed: int) -> None:
        self.rng, self.at = random.Random(seed), Whole()
        self.staged: dict[str, list[bytes]] = {}
        self.seen: list[tuple[int, bytes]] = []
        self.done: dict[str, tuple[int, int, int]] = {}  # app: batch, position, count
        self.numbers = 0

    def run(self) -> None:
        """All steps; what is seen is compared behind each."""
        steps = [self.stage] * 8 + [self.commit] * 4 + [self.again, self.abort, self.publish]
        steps += [self.restart, self.at.roll_over, self.snapshot, self.remove]
        for _ in range(STEPS):
            self.rng.choice(steps)()
            self.compare()

    def payload(self) -> bytes:
        self.numbers += 1
        return b"%d" % self.numbers

    def stage(self) -> None:
        token = f"s{self.rng.randrange(12)}"
        payloads = [self.payload() for _ in range(self.rng.randint(1, 4))]
        self.at.stage(token, *payloads, name=f"task-{self.rng.randrange(3)}")
        self.staged.setdefault(token, []).extend(payloads)

    def commit(self) -> None:
        app = f"app{self.rng.randrange(3)}"
        batch = self.done.get(app, (0, 0, 0))[0] + self.rng.randint(1, 3)
        tokens = self.rng.sample(sorted(self.staged), min(len(self.staged), self.rng.randint(0, 3)))
        if self.rng.random() < 0.1:
            refused = self.at.commit_stages(app, batch, **dict.fromkeys([*tokens, "never"], 1))
            assert refused.code == "stage_unknown"
            return
        done = self.at.commit_stages(app, batch, **{one: len(self.staged[one]) for one in tokens})
        shown = [payload for one in tokens for payload in self.staged.pop(one)]
        assert (done.code, done.already, done.count) == ("", False, len(shown))
        if shown:
            self.done[app] = (batch, done.position, done.count)
            self.seen += [(done.position + n, payload) for n, payload in enumerate(shown)]

    def again(self) -> None:
        """The newest commit of an app, and one before it, with whatever tokens."""
        for app, (batch, position, count) in self.done.items():
            done = self.at.commit_stages(app, batch, any=1)
            assert (done.already, done.position, done.count) == (True, position, count)
            assert self.at.commit_stages(app, batch - 1, any=1).already

    def abort(self) -> None:
        if self.staged:
            token = self.rng.choice(sorted(self.staged))
            self.at.abort_stages(token)
            del self.staged[token]

    def publish(self) -> None:
        known = self.numbers + 1
        self.at.publish(f"p{known}", 1, size=self.rng.choice([1, 700]))

    def restart(self) -> None:
        self.at.restart()

    def snapshot(self) -> None:
        if self.at.core.serial > 1:
            self.at.state()

    def remove(self) -> None:
        """The oldest segment, if it may go."""
        oldest = self.at.log.starts[0].serial
        if oldest >= min(self.at.core.state_serial, self.at.writer.serial):
            return
        if self.at.core.sessions.stages.removable(oldest) < oldest:
            return
        self.at.remove_oldest()
        self.at.core.sessions.stages.removed(oldest)
        floor = self.at.log.starts[0].position
        self.seen = [one for one in self.seen if one[0] >= floor]

    def compare(self) -> None:
        log, end, found = self.at.log, self.at.core.persisted, []
        log.refresh()
        cursor = log.seek(max(log.first_position, 1))
        while cursor.position < end:
            items, cursor = log.read(cursor, end, self.rng.choice([1, 500, 100_000]))
            for item in items:
                assert isinstance(item, Batch), item
                if item.kind == KIND_PUBLISH and item.publisher in self._apps():
                    payloads = msgspec.msgpack.decode(bytes(item.body))
                    found += [(item.position + n, data) for n, data in enumerate(payloads)]
        assert found == self.seen

    def _apps(self) -> set[int]:
        sessions = self.at.core.sessions
        return {
            known.id
            for known in map(sessions.get, sessions.ids())
            if known is not None and known.name.startswith("$staged.")
        }


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_readers_see_what_was_committed_and_nothing_else(start: int) -> None:
    for seed in range(start, start + 10):
        try:
            History(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
