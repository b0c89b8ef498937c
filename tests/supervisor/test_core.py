"""zbroker/supervisor/core.py: what is decided when processs start, fail, fall silent and stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zbroker.engine.contract import Now, TurnPlan
from zbroker.engine.effects import Exit, Tell
from zbroker.engine.events import Asked, StopAsked
from zbroker.engine.turn import Turn
from zbroker.errors import Bug
from zbroker.supervisor import core as c
from zbroker.wire.supervision import AskStatus, Beat, Status


class World:
    """A supervisor's turn, and processes that exist only as numbers."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.core = c.SupervisorCore(
            c.ProcessState("supervisor", pid=99, started_ms=self.now_ms),
            c.ZygoteState(pid=1),
            [
                c.ProcessState("journal"),
                c.ProcessState("ingest", ("journal",), "tcp://127.0.0.1:0"),
                c.ProcessState("delivery", ("journal",), "tcp://127.0.0.1:0"),
                c.ProcessState("admin", (), "http://127.0.0.1:0"),
            ],
        )
        self.pid = 100
        self.pids: dict[str, int] = {}
        self.zygotes = 1
        self.decided: list[c.Effect] = []  # since the last tick
        self.seen: list[c.Effect] = []
        kinds = get_args(c.Effect)
        performers: dict[type, Callable[[Any], Any]] = dict.fromkeys(kinds, self.decided.append)
        performers[c.StartZygote] = self._start_zygote
        self.turn: Turn[Any, Any] = Turn(
            self.core, TurnPlan([], kinds), performers, lambda: Now(self.now_ms, 0)
        )

    def _start_zygote(self, effect: c.StartZygote) -> c.ZygoteStarted:
        self.decided.append(effect)
        self.zygotes += 1
        return c.ZygoteStarted(self.zygotes)

    def tick(self, later_ms: int = 0) -> list[c.Effect]:
        """Turns whenever the core asks for it, until then."""
        end_ms = self.now_ms + later_ms
        while (wake_ms := self.core.next_wake_ms()) is not None and self.now_ms < wake_ms < end_ms:
            self.now_ms = wake_ms
            self._turn()
        return self.away(end_ms - self.now_ms)

    def away(self, later_ms: int) -> list[c.Effect]:
        """The supervisor does not run until then; what is sent to it has not come."""
        self.now_ms += later_ms
        self._turn()
        effects = list(self.decided)
        self.decided.clear()
        self.seen += effects
        return effects

    def _turn(self) -> None:
        self.turn.run({})
        self.core.check()

    def hear(self, event: c.Event) -> None:
        self.turn.hear(event)
        self.core.check()

    def fork(self, effects: list[c.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, c.Start):
                self.pid += 1
                self.pids[effect.name] = self.pid
                self.hear(c.ChildForked(effect.name, self.pid))

    def beat(self, name: str, state: str = "ready", endpoint: str = "", pid: int = 0) -> None:
        pid = pid or self.pids[name]
        self.hear(Asked(b"%d" % pid, Beat(name, pid, 1, state, "", endpoint, {})))

    def exit(self, name: str, status: int = 0) -> None:
        self.hear(c.ChildEnded(self.pids.pop(name), status))

    def start_all(self) -> None:
        self.fork(self.tick())
        self.beat("journal")
        self.beat("admin", endpoint="http://127.0.0.1:9105")
        self.fork(self.tick())
        self.beat("ingest", endpoint="tcp://127.0.0.1:9101")
        self.beat("delivery", endpoint="tcp://127.0.0.1:9102")
        self.tick()

    def stop(self) -> None:
        self.hear(StopAsked())

    def lose_zygote(self) -> None:
        self.hear(c.ZygoteLost())


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running() -> World:
    world = World()
    world.start_all()
    world.seen.clear()
    return world


def started(effects: list[c.Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, c.Start)]


def killed(effects: list[c.Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, c.Kill)]


def asked(effects: list[c.Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, c.AskStop)]


def exited(world: World, effects: list[c.Effect]) -> int | None:
    """The exit status of the supervisor, if it ends now."""
    return world.core.exit_status if any(isinstance(one, Exit) for one in effects) else None


# -- starting


def test_a_process_starts_when_what_it_needs_is_ready(world: World) -> None:
    first = world.tick()
    assert started(first) == ["journal", "admin"]
    world.fork(first)
    world.beat("journal", "starting")
    assert started(world.tick()) == []
    world.beat("journal", "ready")
    assert started(world.tick()) == ["ingest", "delivery"]


def test_a_process_is_asked_for_once(world: World) -> None:
    world.tick()
    assert world.tick() == []


def test_ready_is_announced_once(world: World) -> None:
    world.start_all()
    world.beat("journal")
    world.tick()
    ready = [effect for effect in world.seen if isinstance(effect, c.Announce) and effect.ready]
    assert len(ready) == 1
    assert ready[0].endpoints == {
        "admin": "http://127.0.0.1:9105",
        "delivery": "tcp://127.0.0.1:9102",
        "ingest": "tcp://127.0.0.1:9101",
    }


def test_an_endpoint_is_announced_before_all_are_ready(world: World) -> None:
    world.fork(world.tick())
    world.beat("admin", endpoint="http://127.0.0.1:7")
    assert c.Announce({"admin": "http://127.0.0.1:7"}, False) in world.tick()


def test_a_silent_start_has_a_minute_from_its_last_progress(world: World) -> None:
    world.fork(world.tick())
    world.beat("admin")
    for _ in range(3):
        assert "journal" not in killed(world.tick(50_000))
        world.beat("journal", "starting")
    assert killed(world.tick(c.START_SILENT_MAX_MS - 1)) == []
    assert killed(world.tick(1)) == ["journal"]


def test_a_process_that_cannot_be_forked_is_tried_again(world: World) -> None:
    world.tick()
    world.hear(c.NotForked("journal"))
    assert started(world.tick(c.BACKOFF_MIN_MS)) == ["journal"]


def test_the_instance_is_starting_until_all_are_ready(world: World) -> None:
    world.fork(world.tick())
    assert world.core.state() == "starting"
    world.start_all()
    assert world.core.state() == "ready"


# -- failing


def test_a_process_that_ended_starts_again_after_its_back_off(running: World) -> None:
    running.exit("ingest", -9)
    assert started(running.tick(c.BACKOFF_MIN_MS - 1)) == []
    assert started(running.tick(1)) == ["ingest"]


def test_a_process_that_ended_unasked_with_zero_starts_again(running: World) -> None:
    running.exit("ingest", 0)
    assert started(running.tick(c.BACKOFF_MIN_MS)) == ["ingest"]


def test_a_process_starts_again_on_the_port_it_had(running: World) -> None:
    running.exit("ingest", 1)
    (start,) = [e for e in running.tick(c.BACKOFF_MIN_MS) if isinstance(e, c.Start)]
    assert start.listen == "tcp://127.0.0.1:9101"


def test_a_loss_may_be_accepted_at_the_first_start_only(running: World) -> None:
    running.exit("journal", 1)
    (start,) = [e for e in running.tick(c.BACKOFF_MIN_MS) if isinstance(e, c.Start)]
    assert not start.first


def test_the_back_off_doubles_up_to_its_limit(running: World) -> None:
    waits = []
    for _ in range(8):
        running.exit("ingest", 1)
        waits.append(running.core.processes["ingest"].start_at_ms - running.now_ms)
        running.fork(running.tick(c.BACKOFF_MAX_MS))
        for process in ("journal", "delivery", "admin"):
            running.beat(process)
    assert waits == [100, 200, 400, 800, 1600, 3200, 5000, 5000]


def test_health_resets_the_back_off(running: World) -> None:
    process = running.core.processes["ingest"]
    running.exit("ingest", 1)
    running.fork(running.tick(c.BACKOFF_MIN_MS))
    running.beat("ingest")
    running.now_ms += c.HEALTHY_MS
    running.exit("ingest", 1)
    assert process.start_at_ms - running.now_ms == c.BACKOFF_MIN_MS


def test_a_replacement_waits_until_the_old_process_is_reaped(running: World) -> None:
    assert "ingest" in killed(running.tick(c.SILENT_MAX_MS))
    assert started(running.tick(60_000)) == []
    running.exit("ingest", -9)
    assert started(running.tick(c.BACKOFF_MIN_MS)) == ["ingest"]


def test_listeners_start_again_while_the_journal_is_down(running: World) -> None:
    running.exit("journal", -9)
    running.exit("ingest", -9)
    assert started(running.tick(c.BACKOFF_MIN_MS)) == ["journal", "ingest"]


def test_an_instance_with_a_process_down_is_degraded(running: World) -> None:
    running.exit("delivery", -9)
    assert running.core.state() == "degraded"


def test_a_wrong_config_halts_everything_with_its_status(running: World) -> None:
    running.exit("ingest", c.EX_CONFIG)
    assert asked(running.tick()) == ["delivery", "admin"]
    for process in ("delivery", "admin"):
        running.exit(process)
    assert asked(running.tick()) == ["journal"]
    running.exit("journal")
    assert exited(running, running.tick()) == c.EX_CONFIG


def test_storage_that_cannot_be_used_halts_the_first_start(world: World) -> None:
    world.fork(world.tick())
    world.exit("journal", c.EX_STORAGE)
    world.tick()
    world.exit("admin")
    assert exited(world, world.tick()) == c.EX_STORAGE


def test_storage_that_fails_later_is_tried_again(running: World) -> None:
    running.exit("journal", c.EX_STORAGE)
    assert started(running.tick(c.BACKOFF_MIN_MS)) == ["journal"]


# -- silence


def test_a_silent_child_is_killed_once_per_silence(running: World) -> None:
    assert killed(running.tick(c.SILENT_MAX_MS - 1)) == []
    for process in ("journal", "delivery", "admin"):
        running.beat(process)
    assert killed(running.tick(1)) == ["ingest"]
    assert killed(running.tick(1)) == []


def test_a_child_that_speaks_again_may_be_killed_again(running: World) -> None:
    running.tick(c.SILENT_MAX_MS)
    running.beat("ingest")
    assert "ingest" in killed(running.tick(c.SILENT_MAX_MS))


def test_silence_counts_only_while_the_supervisor_runs(running: World) -> None:
    """It was stopped, or its machine was: what it did not read meanwhile is still on its way."""
    for _ in range(3):
        assert killed(running.away(2 * c.SILENT_MAX_MS)) == []
    assert killed(running.tick(c.SILENT_MAX_MS - 1)) == []
    assert len(killed(running.tick(1))) == 4


def test_so_does_the_time_to_start_to_fork_and_to_stop(world: World) -> None:
    effects = world.tick()
    assert c.EndZygote() not in world.away(2 * c.LAUNCH_MAX_MS)
    world.fork(effects)
    assert killed(world.away(2 * c.START_SILENT_MAX_MS)) == []
    world.stop()
    world.tick()
    assert killed(world.away(2 * c.STOP_MAX_MS)) == []
    assert killed(world.tick(c.STOP_MAX_MS)) == ["journal", "admin"]


def test_a_beat_of_a_gone_process_is_not_heard(running: World) -> None:
    old = running.pids["ingest"]
    running.exit("ingest", -9)
    running.fork(running.tick(c.BACKOFF_MIN_MS))
    running.beat("ingest", "ready", "tcp://127.0.0.1:1", old)
    process = running.core.processes["ingest"]
    assert (process.state, process.endpoint) == ("starting", "tcp://127.0.0.1:9101")


def test_a_beat_of_an_unknown_process_is_not_heard(running: World) -> None:
    before = running.core.status(running.now_ms)
    running.beat("queues", pid=77)
    assert running.core.status(running.now_ms) == before


# -- stopping


def test_listeners_stop_before_the_journal(running: World) -> None:
    running.stop()
    assert asked(running.tick()) == ["ingest", "delivery", "admin"]
    running.exit("admin")
    running.exit("ingest")
    assert asked(running.tick()) == []
    running.exit("delivery")
    assert asked(running.tick()) == ["journal"]
    running.exit("journal")
    assert exited(running, running.tick()) == 0


def test_a_process_that_does_not_stop_is_killed_once(running: World) -> None:
    running.stop()
    running.tick()
    assert killed(running.tick(c.STOP_MAX_MS - 1)) == []
    running.beat("ingest", "stopping")
    assert "ingest" in killed(running.tick(1))
    running.beat("ingest", "stopping")
    assert killed(running.tick(1)) == []


def test_a_process_is_asked_to_stop_where_its_beats_come_from(world: World) -> None:
    world.fork(world.tick())
    world.beat("journal")
    world.stop()
    found = {one.name: one.rid for one in world.tick() if isinstance(one, c.AskStop)}
    assert found == {"journal": b"%d" % world.pids["journal"], "admin": b""}


def test_nothing_starts_again_while_stopping(running: World) -> None:
    running.exit("ingest", -9)
    running.stop()
    assert started(running.tick(c.BACKOFF_MAX_MS)) == []


def test_a_process_that_is_being_forked_is_stopped_when_it_is_there(world: World) -> None:
    effects = world.tick()
    world.stop()
    assert asked(world.tick()) == []
    world.fork(effects)
    assert asked(world.tick()) == ["journal", "admin"]


def test_an_instance_that_stops_says_so(running: World) -> None:
    running.stop()
    assert running.core.state() == "stopping"


# -- waking and telling


def test_it_wakes_for_the_first_deadline(running: World) -> None:
    running.tick(c.SILENT_MAX_MS - 1)
    assert running.core.next_wake_ms() == running.now_ms + 1
    for process in running.pids:
        running.beat(process)
    running.exit("ingest", 1)
    assert running.core.next_wake_ms() == running.now_ms + c.BACKOFF_MIN_MS


def test_it_looks_often_enough_to_know_that_it_ran(running: World) -> None:
    assert running.core.next_wake_ms() == running.now_ms + c.LOOK_MS
    assert c.LOOK_MS < c.AWAY_MS < c.SILENT_MAX_MS


def test_it_does_not_wake_where_there_is_no_deadline(running: World) -> None:
    running.tick(c.SILENT_MAX_MS)
    assert running.core.next_wake_ms() is None


def test_it_sleeps_while_it_waits_for_the_zygote(world: World) -> None:
    world.tick()
    world.tick(c.LAUNCH_MAX_MS - 1)
    assert world.core.next_wake_ms() == world.now_ms + 1


# -- the zygote


def test_a_lost_zygote_is_started_again_and_costs_no_process(running: World) -> None:
    pids = dict(running.pids)
    running.lose_zygote()
    assert not any(isinstance(effect, c.StartZygote) for effect in running.tick())
    assert running.core.next_wake_ms() == running.now_ms + c.BACKOFF_MIN_MS
    assert running.tick(c.BACKOFF_MIN_MS) == [c.StartZygote()]
    assert running.tick() == []
    assert (running.pids, running.core.state()) == (pids, "ready")


def test_a_process_that_was_being_forked_is_asked_for_again(running: World) -> None:
    running.exit("ingest", -9)
    assert started(running.tick(c.BACKOFF_MIN_MS)) == ["ingest"]
    running.lose_zygote()
    assert started(running.tick()) == []
    effects = running.tick(c.BACKOFF_MIN_MS)
    assert (effects[0], started(effects)) == (c.StartZygote(), ["ingest"])


def test_a_zygote_that_keeps_ending_is_started_less_often(running: World) -> None:
    waits = []
    for _ in range(8):
        running.lose_zygote()
        waits.append(running.core.zygote.start_at_ms - running.now_ms)
        running.tick(waits[-1])
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    running.exit("ingest", -9)
    running.fork(running.tick(c.BACKOFF_MAX_MS))
    running.lose_zygote()
    assert running.core.zygote.start_at_ms - running.now_ms == c.BACKOFF_MIN_MS


def test_a_zygote_that_never_forks_ends_the_start(world: World) -> None:
    for _ in range(c.ZYGOTE_TRIES_MAX):
        assert exited(world, world.tick(c.BACKOFF_MAX_MS)) is None
        world.lose_zygote()
    assert exited(world, world.tick()) == c.EX_BUG


def test_a_zygote_that_does_not_answer_is_ended_once(running: World) -> None:
    running.exit("ingest", -9)
    running.tick(c.BACKOFF_MIN_MS)
    for process in ("journal", "delivery", "admin"):
        running.beat(process)
    assert c.EndZygote() not in running.tick(c.LAUNCH_MAX_MS - 1)
    assert c.EndZygote() in running.tick(1)
    assert c.EndZygote() not in running.tick(1)
    running.exit("delivery", -9)
    assert started(running.tick(c.BACKOFF_MAX_MS)) == []
    running.lose_zygote()
    assert started(running.tick(c.BACKOFF_MIN_MS)) == ["ingest", "delivery"]


def test_status_names_the_zygote(running: World) -> None:
    def shown() -> Any:
        return running.core.status(running.now_ms)[0]["stats"]

    assert shown() == {"zygote": 1, "zygote_restarts": 0}
    running.lose_zygote()
    assert shown() == {"zygote": 0, "zygote_restarts": 1}
    running.tick(c.BACKOFF_MIN_MS)
    assert shown() == {"zygote": 2, "zygote_restarts": 1}


def test_a_process_that_was_forked_after_all_is_not_tried_again(running: World) -> None:
    """Whoever kills the process between the zygote and the new one, gets both reports."""
    running.exit("ingest", -9)
    running.fork(running.tick(c.BACKOFF_MIN_MS))
    running.hear(c.NotForked("ingest"))
    assert running.core.processes["ingest"].pid == running.pids["ingest"]
    assert started(running.tick(c.BACKOFF_MAX_MS)) == []


def test_an_instance_that_stops_needs_no_zygote(world: World) -> None:
    world.tick()
    world.stop()
    world.lose_zygote()
    assert exited(world, world.tick()) == c.EX_OK


def test_a_process_that_was_given_up_is_killed(running: World) -> None:
    running.hear(c.ChildForked("ingest", 999))
    assert running.tick() == [c.Kill("ingest", 999)]
    assert running.core.processes["ingest"].pid == running.pids["ingest"]


def test_status_has_every_process(running: World) -> None:
    running.now_ms += 3_000
    running.exit("ingest", 1)
    running.hear(Asked(b"admin", AskStatus(7)))
    [reported] = [effect for effect in running.decided if isinstance(effect, Tell)]
    assert isinstance(reported.answer, Status)
    assert (reported.rid, reported.answer.cid, reported.answer.state) == (b"admin", 7, "degraded")
    rows = {row["room"]: row for row in reported.answer.processes}
    assert list(rows) == ["supervisor", "journal", "ingest", "delivery", "admin"]
    assert (rows["supervisor"]["pid"], rows["supervisor"]["uptime_s"]) == (99, 3)
    assert (rows["ingest"]["state"], rows["ingest"]["restarts"]) == ("down", 1)
    assert rows["journal"]["uptime_s"] == 3


def core_of(process: c.ProcessState) -> c.SupervisorCore:
    return c.SupervisorCore(c.ProcessState("supervisor"), c.ZygoteState(), [process])


@pytest.mark.parametrize(
    "process",
    [
        c.ProcessState("journal", state="ready"),
        c.ProcessState("journal", pid=3),
        c.ProcessState("journal", state="starting", pid=3, launched=True),
        c.ProcessState("journal", needs=("nobody",)),
    ],
)
def test_check_finds_a_state_that_cannot_be(process: c.ProcessState) -> None:
    with pytest.raises(Bug):
        core_of(process).check()


def test_check_finds_a_process_asked_for_without_a_zygote() -> None:
    core = core_of(c.ProcessState("journal", state="starting", launched=True))
    core.zygote.is_up = False
    with pytest.raises(Bug):
        core.check()


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, in whatever order: no process runs twice, and it always comes to an end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.asked_for: list[c.Effect] = []  # of the zygote that is there now
        self.has_zygote = True
        self.halted = False

    @rule(later_ms=st.sampled_from([0, 1, 100, 5_000, 10_000, 60_000]))
    def tick(self, later_ms: int) -> None:
        if self.halted:
            return
        for effect in self.world.tick(later_ms):
            if isinstance(effect, c.Start):
                assert effect.name not in self.world.pids
                assert not self.world.core.stopping
                assert self.has_zygote
                self.asked_for.append(effect)
            elif isinstance(effect, c.AskStop | c.Kill):
                assert self.world.pids[effect.name] == effect.pid
            elif isinstance(effect, c.StartZygote):
                assert not self.has_zygote
                self.has_zygote = True
            elif isinstance(effect, c.EndZygote):
                self.lose_zygote()
            elif isinstance(effect, Exit):
                assert not self.world.pids
                self.halted = True

    @precondition(lambda self: self.has_zygote)
    @rule()
    def lose_zygote(self) -> None:
        self.has_zygote, self.asked_for = False, []
        self.world.lose_zygote()

    @rule()
    def fork(self) -> None:
        self.world.fork(self.asked_for)
        self.asked_for = []

    @precondition(lambda self: self.world.pids)
    @rule(data=st.data(), state=st.sampled_from(["starting", "ready", "stopping"]))
    def beat(self, data: st.DataObject, state: str) -> None:
        process = data.draw(st.sampled_from(sorted(self.world.pids)))
        self.world.beat(process, state, f"tcp://127.0.0.1:{len(process)}")

    @precondition(lambda self: self.world.pids)
    @rule(data=st.data(), status=st.sampled_from([0, 1, -9, -15, 70, 74, 78]))
    def exit(self, data: st.DataObject, status: int) -> None:
        self.world.exit(data.draw(st.sampled_from(sorted(self.world.pids))), status)

    @rule()
    def stop(self) -> None:
        self.world.stop()

    @invariant()
    def holds(self) -> None:
        self.world.core.check()

    def teardown(self) -> None:
        self.world.stop()
        self.fork()
        for _ in range(10):
            self.tick(0)
            for process in list(self.world.pids):
                if self.world.core.processes[process].state == "stopping":
                    self.world.exit(process)
        assert self.halted


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
