"""Reports of queues, consumers and clients, and why nothing is delivered. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import structs, to_builtins
from pyroaring import BitMap64

from zbroker.clock import format_time
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.work.consumers import QueueConsumer as Lost
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.reasons import why_elsewhere
from zbroker.queues.work.values import Branch
from zbroker.server.token_listener import client_row, client_rows
from zbroker.wire import queue_surveys as s
from zbroker.wire.branches import BranchesFound
from zbroker.wire.queue_surveys import Explain, Explained
from zbroker.wire.surveys import AskClients, ClientRow, Clients, Peers

ROWS_MAX: Final = 10_000

#: what `explain` says of a message, by its state
_SENTENCES: Final = {
    "ready": "it can be delivered as soon as a consumer has room",
    "leased": "it is leased",
    "delayed": "it waits for its delay to be over",
    "going": "it is done; that is on its way to the disk",
    "locked": "a distributed transaction that is prepared, and not decided, has locked it",
    "waiting": "something before it has to be done first",
    "elsewhere": "another instance owns it, and offers it there",
    "acked": "it was acknowledged, and is kept",
    "kept": "it is kept",
    "gone": "it is not in the queue: it never entered, was done, or was purged",
}


def queues(shared: QueuesContext, ask: s.AskQueues) -> s.Queues:
    """The queues that are asked for, by name."""
    manager = shared.manager
    incarnation, persisted = manager.commits.incarnation, manager.following.persisted
    known = ask.since > 0 and ask.of == incarnation and not ask.name
    names = manager.changes.since(ask.since) if known else manager.running
    wanted = sorted(name for name in names if ask.name in ("", name))
    many = [manager.running[name] for name in wanted if name in manager.running]
    rows, look = [row(shared, one) for one in many], manager.changes.look()
    for one, found in zip(many, rows, strict=True):
        found.owners = owners(one, one.queue.here) if ask.name else []
    gone = [name for name in wanted if name not in manager.running]
    return s.Queues(ask.cid, incarnation, persisted, rows, look, not known, gone)


def row(shared: QueuesContext, one: QueueState) -> s.QueueRow:
    """One queue. That of a queue which was never used, and is empty, is kept: there may be
    thousands. One that holds messages of the tables changes without any use."""
    used = one.name in shared.used or one.name in shared.holding or shared.of.get(one.name)
    idle = one.ready and not used
    found = one.idle_row if idle else None
    if found is None:
        found = _row(shared, one)
        one.idle_row = found if idle else None
    found.behind = max(0, shared.manager.following.persisted - one.folded)
    found.holding = one.folded if one.idle_row is not None else one.lowest
    return found


def _row(shared: QueuesContext, one: QueueState) -> s.QueueRow:
    queue, definition, counts = one.queue, one.definition, one.counts
    config = definition.config
    now_ms = shared.now.mono_ms
    found = s.QueueRow(
        one.name, config.kind, config.topic or config.name, config.regex, definition.source,
        definition.declaration, definition.created, to_builtins(config),
        "running" if one.ready else "reading",
        depth=len(queue.here), going=len(queue.going),
        consumers=len(shared.of.get(one.name, ())),
        first=queue.here.min() if queue.here else 0, last=queue.here.max() if queue.here else 0,
        oldest_ns=one.oldest_ns, bytes=one.log_bytes,
        idle_ms=None if one.taken_ms is None else now_ms - one.taken_ms,
        memory_bytes=queue.memory_bytes(), **structs.asdict(counts),
    )  # fmt: skip
    if isinstance(queue, Queue):
        numbers = queue.counts()
        found.ready, found.leased, found.delayed = numbers.ready, numbers.leased, numbers.delayed
        found.barrier = queue.places.barrier
        found.active, found.full = _active(shared, queue), one.full
        if foreign := queue.places.foreign:
            first = foreign.min()
            found.elsewhere, found.elsewhere_first = len(foreign), first
            found.elsewhere_ns = one.ages.at(first)[0]
        found.acts_for = one.stand_ins.names()
    else:
        found.ready = len(queue.here)
    return found


def _active(shared: QueuesContext, queue: Queue) -> str:
    """The consumer that gets the messages, if that is one alone."""
    if not queue.config.single_active_consumer:
        return ""
    many = [shared.consumers.get(one.key) for one in queue.consumers.taking(queue.config)]
    return "".join(f"{one.client}/{one.sid}" for one in many if one is not None)


def owners(one: QueueState, positions: BitMap64) -> list[s.OwnedMessages]:
    """Whose these messages are, the most first; none of a local or a replayable queue."""
    if not isinstance(one.replicated, ReplicatedQueue):
        return []
    ownership, me = one.replicated.ownership, one.replicated.me
    initial, found = one.definition.config.initial_owner, []
    for instance, part in ownership.owners(positions).items():
        mine = instance == me or (instance == 0 and ownership.owns_new(0))
        since_ns = one.ages.at(part.min())[0]
        name = initial if instance == 0 else ""
        found.append(
            s.OwnedMessages(instance, len(part), part.min(), since_ns, mine=mine, name=name)
        )
    return sorted(found, key=lambda each: (-each.depth, each.first))


def numbers(shared: QueuesContext) -> dict[str, int | float | str]:
    """What the process reports of all queues."""
    manager, used = shared.manager, shared.used.values()
    return {
        "clients": len(shared.connections),
        "queues": len(manager.running),
        "consumers": len(shared.consumers),
        "depth": sum(len(one.queue.here) for one in shared.holding.values()),
        "delivered": sum(one.counts.delivered for one in used),
        "redelivered": sum(one.counts.redelivered for one in used),
        "acked": sum(one.counts.acked for one in used),
        "dead": sum(one.counts.dead for one in used),
        "behind": manager.following.lag,
        "units_open": manager.commits.open,
        "errors": shared.connections.errors,
    }


def consumers(shared: QueuesContext, ask: s.AskConsumers) -> s.Consumers:
    """The consumers that are asked for, by queue and client."""
    rows = [_consumer(shared, each) for each in shared.consumers.values()
            if ask.queue in ("", each.queue)]  # fmt: skip
    for one in shared.manager.running.values():
        if ask.queue in ("", one.name) and isinstance(one.queue, Queue):
            rows += [_lost(shared, one, each) for each in one.queue.consumers.lost()]
    rows.sort(key=lambda row: (row.queue, row.client, row.sid))
    most = min(ask.limit or ROWS_MAX, ROWS_MAX)
    return s.Consumers(ask.cid, rows[:most], max(0, len(rows) - most))


def _consumer(shared: QueuesContext, each: RemoteConsumer) -> s.ConsumerRow:
    one = shared.manager.running.get(each.queue)
    backlog, held, end_ms = _held(shared, one, each.key)
    return s.ConsumerRow(
        each.queue, each.client, each.sid, "", backlog, held, each.credit,
        each.delivered, each.acked, each.filter.text if each.filter is not None else "", end_ms,
        active=_is_active(one, each.key),
    )  # fmt: skip


def _is_active(one: QueueState | None, key: int) -> bool | None:
    """None: its queue gives messages to all of its consumers."""
    if one is None or not isinstance(one.queue, Queue):
        return None
    config, consumers = one.queue.config, one.queue.consumers
    if not config.single_active_consumer:
        return None
    return any(each.key == key for each in consumers.taking(config))


def _lost(shared: QueuesContext, one: QueueState, each: Lost) -> s.ConsumerRow:
    backlog, held, end_ms = _held(shared, one, each.key)
    client, _, holder = each.client.rpartition("/")  # as it will be asked for
    return s.ConsumerRow(
        one.name, client, holder, "", backlog, held, 0, 0, 0, "", end_ms, gone=True,
        active=_is_active(one, each.key),
    )  # fmt: skip


def _held(shared: QueuesContext, one: QueueState | None, key: int) -> tuple[int, int, int | None]:
    """Its backlog now, how many messages it has, and ms until the first lease ends."""
    if one is None or not isinstance(one.queue, Queue):
        return 0, 0, None
    backlog, held, end_ms = one.queue.held_by(key)
    return backlog, held, None if end_ms is None else max(0, end_ms - shared.now.mono_ms)


def clients(shared: QueuesContext, ask: AskClients, peers: Peers) -> Clients:
    """The connections of the listener, by name."""

    def row(one: QueuesConnection) -> ClientRow:
        many = one.consumers.values()
        given = sum(each.delivered for each in many)
        return client_row(one, peers, shared.now.mono_ms, given, len(many))

    most = min(ask.limit or ROWS_MAX, ROWS_MAX)
    return client_rows(shared.connections, ask, most, row)


def explain(shared: QueuesContext, one: QueueState, ask: Explain) -> Explained:
    """Why is nothing delivered, of a queue or of one message? The most important reason first."""
    state, lines = _message(shared, one, ask.position) if ask.position else _queue(shared, one)
    wanted, away = BitMap64(), isinstance(one.queue, Queue) and one.queue.places.foreign
    if away and (state == "elsewhere" or not ask.position):
        wanted = BitMap64([ask.position]) if ask.position else away
    found = [each for each in owners(one, wanted) if not each.mine]
    if ask.position and isinstance(one.replicated, ReplicatedQueue):
        for each in found:
            each.number = one.replicated.ownership.number(ask.position)
    return Explained(ask.cid, state, lines, found)


def _queue(shared: QueuesContext, one: QueueState) -> tuple[str, list[str]]:
    if not one.ready:
        left = shared.manager.following.persisted - one.folded
        return "reading", [f"it is being read: {left} positions of the log are left"]
    if not one.offers:
        text = "this instance has just begun, and offers messages once it has what its peers hold"
        return "returning", [text]
    if shared.leaves(one):
        text = "this instance is drained: its messages go to another one, and so do its consumers"
        return "drained", [text]
    if shared.manager.commits.full:
        return "journal", ["the journal does not take what is to be committed; see its state"]
    lines = one.queue.why_nothing(shared.now)
    lines += [
        f"consumer {each.client}/{each.sid} has no credit: it does not read what it was sent"
        for each in shared.of.get(one.name, {}).values()
        if each.credit <= 0
    ]
    if one.parked:
        lines.append("offered messages wait for the horizon to be durable")
    state, lines = ("waiting" if lines else "delivering"), lines or ["nothing holds it back"]
    if one.full:
        text = "it is full: this instance refuses messages that go to it, with queue_full"
        lines.append(text)
    return state, lines


def _message(shared: QueuesContext, one: QueueState, position: int) -> tuple[str, list[str]]:
    standing = one.queue.where(position, shared.now)
    lines = [_SENTENCES[standing.state]]
    owner = shared.consumers.get(standing.consumer or 0)
    if owner is not None:
        lines.append(f"consumer {owner.client}/{owner.sid} has it")
    if standing.due is not None:
        left_ms = max(0, standing.due - shared.now.mono_ms)
        lines.append(f"that is over in {left_ms / 1000:.1f} s")
    if standing.deliveries or standing.failures:
        lines.append(f"{standing.deliveries} deliveries, {standing.failures} failures so far")
    if standing.state == "gone" and position in one.dead:
        return "dead", ["it was given up; `zbroker-admin queue requeue` brings it back"]
    if standing.state == "gone" and position >= one.folded:
        return "reading", ["the queue has not read that far yet"]
    if standing.state in ("ready", "waiting"):
        lines += _queue(shared, one)[1]
    if standing.state == "elsewhere" and isinstance(one.queue, Queue):
        lines += [line for line in [why_elsewhere(one.queue, position)] if line]
    return standing.state, lines


def locked_by(one: QueueState, position: int) -> Branch | None:
    """The branch that has locked this message."""
    return one.queue.places.locks.branch(position) if isinstance(one.queue, Queue) else None


def locking(branch: Branch, said: BranchesFound) -> str:
    """What the journal says of a branch that has locked a message."""
    row = next(iter(said.rows), None)
    if row is None:
        why = f"is not known: {said.reason}" if said.code else "was decided just now"
        return f"that is one of principal {branch[0]!r}, and {why}"
    since = format_time(row.prepared_ns)
    return (
        f"that is {row.xid} of principal {row.principal!r}, prepared on instance "
        f"{row.instance:016x} at {since}: zbroker-admin transaction ls"
    )
