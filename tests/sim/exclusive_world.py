"""The queues world with exclusive queues: of connections, and of sessions with a time-out.

    owner     nobody else gets a message of it, or an answer to a command about it but a refusal;
              the owner is not refused as another one
    ends      decided, and in the log, only if the owner asked for it, or an operator, or the owner
              is over: its connection, as the process sees it; its session, as the log says
    the end   none is left of an owner that is over, whatever was killed

Programs lose connections and come back, log off, detach, hang, die; another one attaches the
session. All are of one principal. Planted bugs (exclusive_bugs) prove that the world can fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.sim.ends_world import WatchedChanges
from tests.sim.exclusive_bugs import BUGS
from tests.sim.net import Pipe
from tests.sim.queues_clients import Client, Want
from tests.sim.queues_judge import Judge
from tests.sim.queues_process import ProcessNode
from tests.sim.queues_world import DEAD, World, config_of
from tests.sim.seeds import plant
from tests.sim.transactions_workers import SessionLink
from zbroker.config import QueueConfig
from zbroker.engine.effects import Send
from zbroker.log import records as r
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.format import Batch as LogBatch
from zbroker.queues.chosen_names import is_chosen
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import Give
from zbroker.queues.registry import QueueRegistry
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire import transactions as t

PRINCIPAL: Final = "alice"
NAMES: Final = ("x0", "x1", "x2")
SESSIONS: Final = ("s0", "s1")
TIMEOUTS_MS: Final = (150, 500, 1_500)
AWAY_MS: Final = (50, 300, 1_000)
HEARTBEATS_S: Final = (0.3, 1.0)  # else a dead connection is never noticed
AGAIN_MS: Final = 2_000  # until an end that was refused is in the log
LAST_MS: Final = 9_000  # until all that has to end has ended
SETTINGS: Final[list[dict[str, Any]]] = [
    {}, {"max_per_subscription": 2}, {"expires": "2s"},
]  # fmt: skip
_ABOUT = q.DeclareQueue | q.DeleteQueue | q.PurgeQueue | q.BindQueue | q.UnbindQueue | q.Consume
#: how one that is not the owner may be refused
LOCKED: Final = {
    "resource_locked", "not_ready", "unknown_queue", "session_fenced", "not_logged_on",
}  # fmt: skip

Life = tuple[str, int]  # of a queue


class Asked(NamedTuple):
    """A command that a process has taken. life: of the queue that it had then."""

    command: Any
    rid: bytes
    incarnation: int
    life: Life


@dataclass
class Owned:
    """An exclusive queue. rids: of the connections that may own it, one once it was answered; by:
    the process that they are of. run: of its session, see SessionRun."""

    owner: tuple[str, str, str]
    by: int
    rids: set[bytes]
    run: int

    @property
    def session(self) -> str:
        return self.owner[1]


@dataclass
class SessionRun:
    """What the log says of a session. firsts: of each time that a program had it without an end,
    the first epoch; holders: that program, "" of an end. The last ones are those of now."""

    firsts: list[int]
    holders: list[str]


class ExclusiveJudge(Judge):
    """Knows whose each queue is."""

    world: ExclusiveWorld

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.owned: dict[Life, Owned] = {}
        self._runs: dict[str, SessionRun] = {}
        self._may_end: set[Life] = set()
        self._open: dict[str, Asked] = {}  # commands that were not answered, by cid
        self._rids: dict[str, bytes] = {}  # of consumers, by sid

    # -- the log ------------------------------------------------------------------------------

    def _other(self, batches: list[LogBatch], at: int) -> None:
        if batches[at].kind != KIND_TRANSACTION:
            return
        record = r.TRANSACTION.decode(batches[at].body)
        run = self._runs.setdefault(record.session, SessionRun([], []))
        holder = "" if record.ended else record.holder
        if [holder] != run.holders[-1:]:
            run.firsts.append(record.epoch)
            run.holders.append(holder)
        self.checks[record.ended or "session began"] += 1

    def _wired(self, record: r.DefinitionRecord, position: int) -> None:
        super()._wired(record, position)
        life = record.name, record.life
        known = self.owned.get(life)
        if record.definition is None:
            fair = known is None or life in self._may_end
            self.demand(fair, record.name, "ended, and its owner did not:", known)
            self.checks["ended"] += known is not None
        elif record.owner is None:
            self.demand(known is None, record.name, "lost its owner:", known)
        elif known is not None:
            self.demand(record.owner == known.owner, record.name, "has another owner:", record)
        else:
            rids = {
                one.rid for one in self._open.values()
                if isinstance(one.command, q.DeclareQueue) and one.incarnation == record.by
                and (one.command.queue or (is_chosen(record.name) and record.name)) == record.name
            }  # fmt: skip
            self.owned[life] = Owned(record.owner, record.by, rids, self._run_of(record.owner))
            self.checks["of a session" if record.owner[1] else "of a connection"] += 1

    def _run_of(self, owner: tuple[str, str, str]) -> int:
        """The last time that this program had the session: it may be over by now."""
        run = self._runs.get(owner[1])
        holders = run.holders if run is not None else []
        return max((at for at, each in enumerate(holders, 1) if each == owner[2]), default=0)

    # -- owners -------------------------------------------------------------------------------

    def _is_over(self, core: QueuesCore, owned: Owned, *, sure: bool) -> bool:
        """sure: whichever of its connections it is that owns it; else one of them."""
        if owned.session:
            return len(self._runs[owned.session].firsts) != owned.run
        gone = [rid not in core.shared.connections for rid in owned.rids]
        mine = owned.by == core.manager.commits.incarnation
        return not mine or (all(gone) if sure else any(gone))

    def _is_owner(self, owned: Owned, session: str, epoch: int, rid: bytes, by: int) -> bool:
        """It says so, and no log says otherwise: the process may be behind it."""
        if not owned.session:
            return rid in owned.rids and owned.by == by
        later = self._runs[owned.session].firsts[owned.run :]
        return session == owned.session and not any(epoch >= first for first in later)

    def watch_core(self, core: Any) -> None:
        """A process that begins."""
        ends = core._ends
        ends._changes = WatchedChanges(ends._changes, lambda name: self._ending(core, name))

    def _ending(self, core: QueuesCore, name: str) -> None:
        """The process decides that a queue ends."""
        one = core.manager.running[name]
        config, life = one.definition.config, (name, one.definition.declaration)
        owned = self.owned.get(life)
        assert owned is not None, "no other one has such settings"
        over = self._is_over(core, owned, sure=False)
        unused = bool(config.expires) and not core.shared.of.get(name)
        self.demand(over or unused, name, "ends before its owner:", owned)
        self._may_end.add(life)
        self.checks["left" if over else "unused"] += 1

    # -- commands and answers -----------------------------------------------------------------

    def commanded(self, process: ProcessNode, received: Any) -> None:
        super().commanded(process, received)
        command: Any = codec.decode(codec.QUEUES, received.frames[0])
        if not isinstance(command, _ABOUT):
            return
        one = process.running(command.queue)
        life = (one.name, one.definition.declaration) if one is not None else ("", 0)
        asked = Asked(command, received.rid, process.incarnation, life)
        self._open[command.cid or ""] = asked
        owned = self.owned.get(life)
        if isinstance(command, q.Consume):
            self._rids[command.sid] = received.rid
        if owned is None or not self._owns(owned, asked):
            return
        if isinstance(command, q.DeleteQueue):
            self._may_end.add(life)
        elif isinstance(command, q.PurgeQueue):
            self.refs[command.queue].purged = self.end

    @property
    def declaring(self) -> bool:
        """A process is making a queue for a client."""
        by = self.world.process.incarnation if self.world.process is not None else 0
        return any(
            isinstance(one.command, q.DeclareQueue) and one.incarnation == by
            for one in self._open.values()
        )  # fmt: skip

    def _owns(self, owned: Owned, asked: Asked) -> bool:
        command = asked.command
        session, epoch = command.session, command.epoch
        return self._is_owner(owned, session, epoch, asked.rid, asked.incarnation)

    def asked(self, process: ProcessNode, question: Any) -> None:
        super().asked(process, question)
        if isinstance(question, s.Define) and question.what == "delete":
            one = process.running(question.name)
            if one is not None:
                self._may_end.add((one.name, one.definition.declaration))

    def answered(self, process: ProcessNode, send: Send) -> None:
        super().answered(process, send)
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, send.header)
        asked = self._open.pop(getattr(answer, "cid", None) or "", None)
        if asked is None:
            return
        if isinstance(answer, q.QueueDeclared) and answer.created:
            self._created(asked, answer)
            return
        owned = self.owned.get(asked.life)
        if owned is None:
            return
        mine, code = self._owns(owned, asked), getattr(answer, "code", "")
        if isinstance(answer, m.Error):
            self.demand(mine or code in LOCKED, asked, "of", owned, "is answered", answer)
            refused = mine and code == "resource_locked" and asked.life not in self._may_end
            wrong = (
                refused
                and len(owned.rids) == 1
                and not self._is_over(process.core, owned, sure=False)
            )
            self.demand(not wrong, asked, "is refused, and owns", asked.life, owned)
            self.checks["locked out"] += code == "resource_locked"
        else:
            self.demand(mine, asked, "is answered, and not the owner:", owned)
            self.checks["owner served"] += 1

    def _created(self, asked: Asked, answer: q.QueueDeclared) -> None:
        owned = self.owned.get((answer.queue, answer.declaration))
        exclusive = asked.command.settings.get("exclusive", False)
        self.demand(exclusive == (owned is not None), asked, "is answered, and", owned)
        if owned is not None:
            self.demand(asked.rid in owned.rids, asked, "is answered for", owned)
            owned.rids = {asked.rid}

    # -- sends --------------------------------------------------------------------------------

    def sent(self, process: ProcessNode, give: Give, send: Send) -> None:
        super().sent(process, give, send)
        one = process.running(give.to.queue)
        life = (one.name, one.definition.declaration) if one is not None else ("", 0)
        owned = self.owned.get(life)
        if owned is not None:
            command, rid = self.asks[give.to.sid], self._rids[give.to.sid]
            mine = self._is_owner(
                owned, command.session, command.epoch, rid, process.incarnation
            )  # fmt: skip
            self.demand(mine, one, "sends to", give.to.sid, "what is of", owned)
            self.checks["sent to the owner"] += 1

    # -- the end ------------------------------------------------------------------------------

    def verdict(self, process: ProcessNode) -> None:
        super().verdict(process)
        over = []
        for one in process.core.manager.running.values():
            life = one.name, one.definition.declaration
            owned = self.owned.get(life)
            if owned is not None and self._is_over(process.core, owned, sure=True):
                over.append(life)
        self.checks["kept to the end"] += any(
            (one.name, one.definition.declaration) in self.owned
            for one in process.core.manager.running.values()
        )
        self.world.at.run_until(self.world.at.now_ms + AGAIN_MS)  # a record may have been refused
        self.demand(not any(self._is_there(*life) for life in over), "these stay:", over)
        self.world.leave_all()
        left = [name for name, life in self.owned if self._is_there(name, life)]
        self.demand(not left, "nobody is there, and these are:", left)

    def _is_there(self, name: str, life: int) -> bool:
        ref = self.refs[name]
        return ref.life == life and not ref.ended


class Owner(Client):
    """A program that declares queues of its own, in a session if it has one."""

    world: ExclusiveWorld
    principal = PRINCIPAL

    def __init__(self, world: ExclusiveWorld, name: str, session: str = "") -> None:
        self.world = world
        self.mine: set[str] = set()
        self.link = SessionLink(self, session) if session else None
        self.epoch = self._link_beat_ms = 0  # epoch: in which it attached its session last
        super().__init__(world, name)
        self._heartbeat_s = world.rng.choice(HEARTBEATS_S)
        if self.link is not None:
            self.link.timeout_ms = world.rng.choice(TIMEOUTS_MS)
            self.link.heartbeat_s = self._heartbeat_s
            self.link.consumers = list
            self.link.need()

    def _turn(self) -> None:
        super()._turn()
        due = self.world.at.now_ms >= self._link_beat_ms
        if due and self.alive and not self.frozen and self.link is not None:
            self._link_beat_ms = self.world.at.now_ms + 100
            self.link.beat()

    # -- its session --------------------------------------------------------------------------

    def attached(self, answer: t.SessionAttached) -> None:
        """Its session began, or goes on."""
        if answer.ended:
            self.mine.clear()
        self.epoch = answer.epoch

    def answered(self, answer: Any) -> None:
        """Something about all of the connection."""
        if isinstance(answer, m.Error) and answer.cid is None and self.link is not None:
            self.link.close()

    def fenced(self) -> None:
        """Another program has its session."""
        self.world.replace(self)

    # -- its queues ---------------------------------------------------------------------------

    def connect(self) -> None:
        """What the connection owned goes with it."""
        if self.link is None:
            for want in self.wants if self.mine else ():
                if want.command.queue in self.mine:
                    want.wanted = False
                    want.held.clear()
            self.mine.clear()
        super().connect()

    def consume(self, want: Want) -> None:
        session = self._session(want.command.queue)
        want.command.session, want.command.epoch = session
        super().consume(want)

    def _session(self, queue: str) -> tuple[str, int]:
        if self.link is None or queue not in self.mine:
            return "", 0
        return self.link.session, self.epoch

    def _frame(self, pipe: Pipe, frame: tuple[bytes, bytes | None]) -> None:
        super()._frame(pipe, frame)
        if not self.alive or pipe is not self.pipe:
            return
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, frame[0])
        if isinstance(answer, q.QueueDeclared) and answer.created:
            self.mine.add(answer.queue)
            self.take(answer.queue)

    def take(self, queue: str) -> None:
        """It wants a consumer of a queue."""
        for want in self.wants:
            if want.command.queue == queue and (want.live or want.asked):
                return
        want = Want(q.Consume("", queue, holder=self.world.cid(), credit=1 << 20))
        self.wants.append(want)
        if self.logged_on:
            self.consume(want)

    def declare(self) -> None:
        """A queue of its own, with a name or without."""
        rng = self.world.rng
        if self.link is not None and self.link.attached is None:
            self.link.need()
            return
        table = {"topic": "t0", "lease": "400ms", "exclusive": True, **rng.choice(SETTINGS)}
        session = (self.link.session, self.epoch) if self.link is not None else ("", 0)
        name = rng.choice((*NAMES, ""))
        self._send(q.DeclareQueue(name, self.world.cid(), table, False, *session))

    def _about(self, queue: str) -> Any:
        """A command about a queue, whosoever it is."""
        rng, cid, session = self.world.rng, self.world.cid(), self._session(queue)
        settings = {"topic": "t0", "exclusive": True}
        return rng.choice((
            lambda: q.DeclareQueue(queue, cid, settings, False, *session),
            lambda: q.DeclareQueue(queue, cid, {}, True, *session),
            lambda: q.PurgeQueue(queue, cid, None, *session),
            lambda: q.BindQueue(queue, "amq.direct", cid, session=session[0], epoch=session[1]),
            lambda: q.UnbindQueue(queue, "amq.direct", cid, session=session[0], epoch=session[1]),
            lambda: q.DeleteQueue(queue, cid, session=session[0], epoch=session[1]),
        ))()  # fmt: skip

    # -- what a program may do ----------------------------------------------------------------

    def act(self) -> None:
        rng = self.world.rng
        roll = rng.random()
        if self.frozen or not self.logged_on:
            return
        if roll < 0.25 and len(self.mine) < 2:
            self.declare()
        elif roll < 0.30 and self.mine:
            self._send(self._about(rng.choice(sorted(self.mine))))
        elif roll < 0.45:
            self._meddle()
        elif roll < 0.48:
            self._send(m.Logoff("bye"))
            self.connect()
        elif roll < 0.54 and self.link is not None:
            self.link.close()
        elif roll < 0.58 and self.link is not None and self.link.attached is not None:
            self._detach(self.link, self.link.attached.epoch)
        elif roll < 0.75 and self.link is not None and self.link.attached is None:
            self.link.need()
        else:
            super().act()

    def _meddle(self) -> None:
        """With a queue of somebody else."""
        others = sorted({name for name, life in self.world.judge.owned} - self.mine)
        if not others:
            return
        queue = self.world.rng.choice(others)
        if self.world.rng.random() < 0.4:
            self.take(queue)
        else:
            self._send(self._about(queue))

    def _detach(self, link: SessionLink, epoch: int) -> None:
        """Its session is over, and begins again."""
        link.send(t.DetachSession(link.session, epoch, cid=self.world.cid()))
        self.mine.clear()
        self.world.at.after(self.world.rng.choice((0, 5, 300)), link.close)

    def _do_all(self) -> None:
        super()._do_all()
        if self.world.at.now_ms % 500 < 25:
            if self.link is not None:
                self.link.need()
            for name in sorted(self.mine):
                self.take(name)
            if not self.mine:
                self.declare()

    def cut(self) -> None:
        """One of its connections breaks, and is back at once or later."""
        if self.link is not None and self.world.rng.random() < 0.5:
            self.link.close()
        elif self.link is not None and self.pipe is not None:
            self.stay_away(AWAY_MS)
        else:
            super().cut()

    def die(self) -> None:
        super().die()
        if self.link is not None:
            self.link.close()


class ExclusiveWorld(World):
    """One simulated history."""

    judge_type = ExclusiveJudge
    judge: ExclusiveJudge

    def _first_queues(self) -> list[QueueConfig]:
        return [config_of(self.rng.choice(("plain", "limits"))), config_of(DEAD)]

    def core_of(self, settings: ListenerSettings, manager: QueueRegistry) -> QueuesCore:
        core = QueuesCore(settings, manager)
        plant(BUGS, self.bug, core)
        self.judge.watch_core(core)
        return core

    @property
    def _owners(self) -> list[Owner]:
        return [client for client in self.clients if isinstance(client, Owner)]

    def _new_client(self) -> None:
        """Mostly owners, of connections and of sessions."""
        session = self.rng.choice((*SESSIONS, "", ""))
        if self.rng.random() < 0.15 and self._owners:
            super()._new_client()
            return
        self._new_owner(session)

    def _new_owner(self, session: str) -> None:
        owner = Owner(self, f"o-{self.cid()}", session)
        owner.diligent = self.thrifty or self.healing
        self.clients.append(owner)

    def replace(self, owner: Owner) -> None:
        """A program ends; another one begins, in its session if it had one."""
        owner.die()
        if owner in self.clients:
            self.clients.remove(owner)
        session = owner.link.session if owner.link is not None else ""
        if not any(each.link is not None and each.link.session == session for each in self._owners):
            self._new_owner(session)

    def _fault(self) -> None:
        roll = self.rng.random()
        if roll < 0.2 and self._owners:
            self.faults.append("owner restarted")
            self.replace(self.rng.choice(self._owners))
        elif roll < 0.3:
            self.kill_process()
        else:
            super()._fault()

    def _define(self) -> None:
        """An operator deletes or alters one of them."""
        alive = [name for name, life in self.judge.owned if self.judge._is_there(name, life)]
        if not alive:
            return
        what = self.rng.choice(("delete", "alter"))
        table = {"lease": "2s"} if what == "alter" else {}
        self.admin.ask(s.Define(0, what, self.rng.choice(alive), table))

    def _new(self) -> bool:
        """Clients make queues, too."""
        return super()._new() or self.judge.declaring

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Of a queue whose answer was lost its program does not know."""
        for owner in self._owners:
            self.replace(owner)
        super()._heal()

    def _staff(self, worker: Client) -> None:
        """Their owners work at those that are exclusive."""
        there = {want.command.queue for want in worker.wants if want.wanted}
        for config in self.configs:
            if config.name not in there:
                worker.wants.append(Want(q.Consume("", config.name, holder=config.name)))
                if worker.logged_on:
                    worker.consume(worker.wants[-1])

    def leave_all(self) -> None:
        """All programs die, and time passes."""
        for client in self.clients:
            client.die()
        self.at.run_until(self.at.now_ms + LAST_MS)
