"""Staging, commits, aborts of two principals, snapshots, removals, crashes in any order, against a
model; and bugs found by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from tests.journal.whole import Whole
from zbroker.journal.fold import LogFold
from zbroker.journal.stages import Owned, Stages
from zbroker.log.format import KIND_ABORT, KIND_PUBLISH, Batch

STEPS = 60
SEEDS_OF_BUG = 500  # within so many a planted bug is found
OWNERS = ("alice", "bob")  # each with stages of its own under the same tokens


class History:
    """One seed. staged: payloads under each token of each principal; over: those that ended; seen:
    what readers get, from the log start on."""

    def __init__(self, seed: int) -> None:
        self.rng, self.at = random.Random(seed), Whole()
        self.staged: dict[Owned, list[bytes]] = {}
        self.over: set[Owned] = set()
        self.seen: list[tuple[int, bytes]] = []
        self.done: dict[Owned, tuple[int, int, int]] = {}  # owner, app: batch, position, count
        self.numbers = 0

    def run(self) -> None:
        """All steps; what is seen is compared after each."""
        steps = [self.stage] * 8 + [self.commit] * 4 + [self.again, self.abort, self.publish]
        steps += [self.restart, self.at.roll_over, self.snapshot, self.remove]
        for _ in range(STEPS):
            self.rng.choice(steps)()
            self.compare()

    def payload(self) -> bytes:
        self.numbers += 1
        return b"%d" % self.numbers

    def stage(self) -> None:
        """Under a token that ended nothing is taken: its publishers' sessions go on."""
        owner, number = self.rng.choice(OWNERS), self.rng.randrange(8)
        name = f"{owner}-task-{self.rng.randrange(3)}"
        over = [token for whose, token in sorted(self.over) if whose == owner]
        if over and self.rng.random() < 0.2:
            before = self.at.core.refused
            self.at.stage(self.rng.choice(over), b"late", name=name, owner=owner)
            assert self.at.core.refused == before + 1
            return
        token = f"s{number}.{sum(one.startswith(f's{number}.') for one in over)}"
        payloads = [self.payload() for _ in range(self.rng.randint(1, 4))]
        self.at.stage(token, *payloads, name=name, owner=owner)
        self.staged.setdefault((owner, token), []).extend(payloads)

    def commit(self) -> None:
        owner, app = self.rng.choice(OWNERS), f"app{self.rng.randrange(3)}"
        batch = self.done.get((owner, app), (0, 0, 0))[0] + self.rng.randint(1, 3)
        mine = sorted(token for whose, token in self.staged if whose == owner)
        tokens = self.rng.sample(mine, min(len(mine), self.rng.randint(0, 3)))
        if self.rng.random() < 0.3:
            over = sorted(token for whose, token in self.over if whose == owner)
            wanted = [*tokens, self.rng.choice([*over, "never"])]
            refused = self.at.commit_of(owner, app, batch, **dict.fromkeys(wanted, 1))
            assert refused.code == "stage_unknown"
            return
        counts = {one: len(self.staged[owner, one]) for one in tokens}
        done = self.at.commit_of(owner, app, batch, **counts)
        shown = [payload for one in tokens for payload in self.staged.pop((owner, one))]
        self.over |= {(owner, one) for one in tokens}
        assert (done.code, done.already, done.count) == ("", False, len(shown))
        if shown:
            self.done[owner, app] = (batch, done.position, done.count)
            self.seen += [(done.position + n, payload) for n, payload in enumerate(shown)]

    def again(self) -> None:
        """The newest commit of an app, and one before it, with whatever tokens."""
        for (owner, app), (batch, position, count) in self.done.items():
            done = self.at.commit_of(owner, app, batch, any=1)
            assert (done.already, done.position, done.count) == (True, position, count)
            assert self.at.commit_of(owner, app, batch - 1, any=1).already

    def abort(self) -> None:
        """Of a token that the other one may have as well."""
        if self.staged:
            owner, token = self.rng.choice(sorted(self.staged))
            self.at.abort_stages(token, owner=owner)
            del self.staged[owner, token]
            self.over.add((owner, token))

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
        log_start = self.at.log.starts[0].position
        self.seen = [one for one in self.seen if one[0] >= log_start]

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


def _owned_by_anybody(self: Stages, principal: str, token: str) -> Owned:
    return next((owned for owned in self._stages if owned[1] == token), (principal, token))


def _ended_of_everybody(self: Stages, record: Any, by: Any) -> None:
    for token in {token for _, token in record.stages}:
        for stage in [one for one in self._all() if one.key.token == token]:
            self._drop(stage)


def _app_of_anybody(self: Stages, _principal: str, app: str) -> Any:
    found = [rows[app] for rows in self._apps.values() if app in rows]
    return max(found, key=lambda row: row.batch, default=None)


def _rows_without_owner(self: Stages) -> Any:
    return [msgspec.structs.replace(row, principal="") for row in _ROWS(self)]


_ROWS = Stages.rows
_CONTROL = LogFold._control


def _abort_not_read(self: LogFold, batch: Batch, serial: int) -> None:
    if batch.kind != KIND_ABORT:
        _CONTROL(self, batch, serial)


#: owner, method, and what is done instead
BUGS: Final[dict[str, tuple[type, str, Callable[..., Any]]]] = {
    "the end of a stage is not read again": (LogFold, "_control", _abort_not_read),
    "any client that names its token owns a stage": (Stages, "_owned", _owned_by_anybody),
    "an abort ends the stages of others": (Stages, "ended", _ended_of_everybody),
    "commits of other principals count": (Stages, "last", _app_of_anybody),
    "a snapshot forgets whose a stage is": (Stages, "rows", _rows_without_owner),
    "a snapshot forgets which tokens ended": (Stages, "ended_rows", lambda self: iter(())),
    "a token lives again": (Stages, "has_ended", lambda *given: False),
    "a commit leaves what it showed staged": (Stages, "_end_of", lambda *given: None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    for seed in range(SEEDS_OF_BUG):
        try:
            History(seed).run()
        except AssertionError:
            return
    pytest.fail(f"{bug!r} was not found within {SEEDS_OF_BUG} seeds")
