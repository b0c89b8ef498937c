"""All queues of this instance: made from definitions, folded from the log, committed to it. Pure.

    definition in config, by operator or client --record landed--> running, reads the log
    running --outcomes--> one unit of facts each turn --landed, read in the log--> state

The definition of a queue is in the log, so a queue that was made at run time is
there after a restart, and a queue of the config begins where it was first known. A queue that the
config does not name any more is not run and holds nothing; its record stays, so it can come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import convert, to_builtins
from pyroaring import BitMap64

from zbroker.config import QueueConfig
from zbroker.definitions import Definition, changed, compile_queue, migrated
from zbroker.definitions.intake import QueueIntake
from zbroker.engine.effects import Note
from zbroker.errors import ClientError, ConfigError
from zbroker.exchanges.exchange_rows import record_of
from zbroker.ids import Origin, parse_vector
from zbroker.log import records as r
from zbroker.log.format import KIND_DEFINITION, KIND_EXCHANGE, KIND_WIRING, Batch
from zbroker.log.generations import Generations
from zbroker.log.queue_records import ReplicatedDefinition
from zbroker.queues.changes import Changes
from zbroker.queues.commits import Body, Commits, PendingUnit, control
from zbroker.queues.effects import Effect
from zbroker.queues.known_exchanges import KnownExchanges, declared
from zbroker.queues.known_points import KnownPoints
from zbroker.queues.local_definitions import NOW, compiled, placed, routed, types_kept
from zbroker.queues.log_fold import QueueFold
from zbroker.queues.log_followers import LogFollowers
from zbroker.queues.queue_state import AHEAD, Ending, Entry, QueueState, facts_of
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.declarations import QueueView
from zbroker.queues.replicated.fact_records import UnitStamp
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.replicated_registry import LocalPlace, ReplicatedRegistry
from zbroker.queues.saved_queue import Noted, SavedQueue
from zbroker.queues.timed_sessions import TimedSessions
from zbroker.queues.unit_records import unit_records
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import below, without
from zbroker.recording import Recording
from zbroker.topics import TopicType
from zbroker.wire.internal import Located
from zbroker.wire.units import NamedRows, UnitPart


class QueueRegistry:
    """`running`: by name. `rows`: newest definition record of every name, also of those not run."""

    def __init__(
        self, incarnation: int, configs: Iterable[QueueConfig], recording: Recording, name: str = ""
    ) -> None:
        """name: of this instance."""
        self.commits = Commits(incarnation)
        self.following = LogFollowers()
        self.folding = QueueFold(self)
        self.changes = Changes()
        self.running: dict[str, QueueState] = {}
        self.replicated = ReplicatedRegistry(self, name)
        self.exchanges = KnownExchanges()
        self.sessions = TimedSessions()
        self.rows: dict[str, r.DefinitionRecord] = {}
        self.points = KnownPoints(self.position_of)
        self.here: Origin | None = None
        self.announced: Origin | None = (
            None  # what clients take for the origin while this process lives
        )
        self.history = Generations()
        self.log_start = 1
        self.return_to = 0  # replicated queues offer nothing before that was read
        self.known = False
        self.ended: list[QueueState] = []  # deleted: their consumers are to end
        self.began: list[QueueState] = []  # offer from now on: deliveries are to be noted
        self.overtaken: list[QueueState] = []  # purged ahead of their consumers, which are to end
        self.changed: Callable[[QueueState], None] = lambda one: None
        self.locate: Callable[[str, Callable[[Located], None]], None]  # set by the core,
        self.wall_ns: Callable[[], int]  # as this
        self.notes: list[Effect] = []
        self._configs = {one.name: one for one in configs}
        self.making: set[str] = set()  # queues whose first definition has not landed yet
        self.changing: set[str] = set()  # a definition or a deletion has not landed yet
        self.moving: set[str] = set()  # local ones that are to be on several instances
        self.to_move: dict[str, QueueConfig] = {}  # those that the config wants to be, likewise
        self._recording = recording
        self._saved: Mapping[tuple[str, int], SavedQueue] = {}
        self._noted: Noted = lambda name, declaration: None

    @property
    def ready(self) -> bool:
        """All queues run, and have read what was durable when they began."""
        return self.known and not self.making and all(q.ready for q in self.running.values())

    # -- definitions --------------------------------------------------------------------------

    def restore(
        self, saved: Mapping[tuple[str, int], SavedQueue], noted: Noted | None = None
    ) -> None:
        """What the tables hold, by name and declaration, and what was noted of deliveries; before
        `named`."""
        self._saved = saved
        self._noted = noted or self._noted

    def named(self, named: NamedRows) -> None:
        """The definitions of the log. Raises: ConfigError, if the config contradicts them."""
        self.points.learn(named)
        for row in named.wiring:
            self.rows[row.name] = placed(r.WIRING.decode(row.body), row.position)
        self.replicated.named(named.definitions, named.position)
        if self.known:
            return
        self.known = True
        # units that the process before this one had under way are before it: they are read first
        self.following.persisted = max(self.following.persisted, named.position)
        for name, record in self.rows.items():
            if record.definition is not None and record.source != "config":
                typed = self._typed(record)
                self._begin(record)
                if not typed:
                    self.define(record)
            elif record.definition is not None and name not in self._configs:
                text = (
                    f"queue {name!r} is not in the config any more: it is not run, its state stays"
                )
                self.notes.append(Note("queues.not_configured", text, values={"queue": name}))
        self.replicated.begin()
        for config in self._configs.values():
            self._configure(config)
        self._saved = {}

    def is_configured(self, name: str) -> bool:
        """The config of this instance has a queue with this name."""
        return name in self._configs

    def has_local(self, name: str) -> bool:
        """A local queue of that name runs, or is to run."""
        row = self.rows.get(name)
        if row is None or row.definition is None:
            return False
        return row.source != "config" or self.is_configured(name)

    def is_to_move(self, name: str) -> bool:
        """The config says that it is on several instances."""
        return name in self._configs and self._configs[name].scope != "local"

    def migrated(
        self, ended: r.DefinitionRecord, made: ReplicatedDefinition, position: int,
        place: LocalPlace,
    ) -> None:  # fmt: skip
        """A local queue has become this one."""
        self.rows[ended.name] = placed(ended, position)
        self.replicated.learn(made, position)
        self.moving.discard(made.name)
        self.replicated.converge(made.name, position, place)

    def _configure(self, config: QueueConfig) -> None:
        record = self.rows.get(config.name)
        if record is None or record.definition is None:
            view = self.replicated.definitions.view(config.name)
            if config.scope != "local" or view is not None:
                self.replicated.configure(config)
            else:
                self._create(config)
            return
        old = convert(record.definition, QueueConfig)
        if old == config and config.name in self.running:
            return
        if old != config:
            config = self._changed(old, config)
        record.definition, record.source = to_builtins(config), "config"
        typed = self._typed(record)
        if config.name not in self.running:
            self._begin(record)
        if old != config or not typed:
            self.define(record)

    def _changed(self, old: QueueConfig, new: QueueConfig) -> QueueConfig:
        """The settings that a local queue begins with. Raises: ConfigError."""
        try:
            if new.scope == old.scope:
                return changed(old, new)
            self.to_move[new.name] = migrated(old, new)
        except ClientError as error:
            raise ConfigError("bad_config", error.reason, error.hint) from None
        self.moving.add(new.name)
        return old

    def _typed(self, record: r.DefinitionRecord) -> bool:
        """False: a release that recorded no types wrote it; it has those of the config now."""
        now = self.types_of(compiled(record))
        if record.types is None:
            record.types = now
            return now is None
        if now is not None and record.types != now:
            text = types_kept(record, now)
            self.notes.append(Note("queues.types_kept", text, values={"queue": record.name}))
        return True

    def _create(self, config: QueueConfig) -> None:
        """A queue of the config that is not known yet."""
        self.making.add(config.name)

        def landed(code: str, reason: str, _: int) -> None:
            if code:
                text = f"queue {config.name!r} of the config is missing: {reason}"
                values = {"queue": config.name, "reason": reason}
                self.notes.append(Note("queues.not_made", text, "error", values))

        if config.recovery_point in ("epoch", "now"):
            self.define(self.created(config, "config"), landed)
            return

        def located(found: Located) -> None:
            if found.code == "not_ready":
                self.locate(config.recovery_point, located)  # until the journal answers
            elif found.code:
                reason = f"the recovery point of queue {config.name!r}: {found.reason}"
                raise ConfigError("bad_config", reason)
            else:
                self.define(self.created(config, "config", found.position), landed)

        self.locate(config.recovery_point, located)

    def created(
        self, config: QueueConfig, source: str, begins: int | None = None,
        owner: tuple[str, str, str] | None = None,
    ) -> r.DefinitionRecord:  # fmt: skip
        """The record of a queue that is to be made. begins: where its recovery point was found."""
        before = self.rows.get(config.name)
        declaration = 1 if before is None else before.life + 1
        if begins is None:
            begins = NOW if config.recovery_point == "now" else self.log_start
        types = self.types_of(compile_queue(config))
        definition = to_builtins(config)
        made = r.DefinitionRecord(
            config.name, declaration, source, 0, begins, definition, types=types, owner=owner
        )
        return routed(made, before, self.origin, self.wall_ns()) if config.bound else made

    @property
    def origin(self) -> Origin:
        """That of records of this process, once a journal welcomed it."""
        assert self.here is not None, "a Welcome came before"
        return self.here

    def types_of(self, definition: Definition) -> list[TopicType] | None:
        """What a definition that is made now records; None: it looks into no message."""
        config = definition.config
        if not definition.needs_payload:
            return None
        return self._recording.types_of(config.topic or config.name, regex=config.regex)

    def define(
        self,
        record: r.DefinitionRecord | ReplicatedDefinition,
        done: Callable[[str, str, int], None] | None = None,
    ) -> None:
        """Commits a definition; it holds as soon as it has landed."""
        if record.definition is not None and record.name not in self.running:
            self.making.add(record.name)

        def landed(code: str, reason: str, position: int) -> None:
            self.making.discard(record.name)
            if not code and isinstance(record, ReplicatedDefinition):
                self.replicated.learn(record, position)
            elif not code and isinstance(record, r.DefinitionRecord):
                self._wired(record, position)
            if done is not None:
                done(code, reason, position)

        replicated = isinstance(record, ReplicatedDefinition)
        kind = KIND_DEFINITION if replicated else KIND_WIRING
        one = self.running.get(record.name)
        rows = declared(record, is_bound=one is not None and one.definition.config.bound)
        if not rows:
            self.commits.add_record(kind, record, landed)
            return
        records = [(KIND_EXCHANGE, record_of(rows)), (kind, record)]
        self.commits.add_records(records, self.exchanges.landing(rows, landed))

    def _wired(self, record: r.DefinitionRecord, position: int) -> None:
        self.rows[record.name] = placed(record, position)
        one = self.running.get(record.name)
        if record.definition is None:
            if record.forgotten:
                del self.rows[record.name]
            if one is not None:
                self.end(one)
            self.replicated.converge(record.name, position)  # a peer may have one of that name
        elif one is None:
            self._begin(record)
        else:
            self.alter(one, compiled(record))

    def _begin(self, record: r.DefinitionRecord) -> None:
        assert record.definition is not None
        self.begin(compiled(record), max(record.begins, self.log_start))

    def begin(
        self, definition: Definition, folded: int, view: QueueView | None = None, ready_at: int = 0
    ) -> None:
        """A queue runs, from where the tables have it, else from position `folded` on. view: of a
        replicated one. ready_at: it offers nothing before the log was read up to there."""
        config, declaration = definition.config, definition.declaration
        one = self._restored(definition, view)
        if one is None:
            one = self._made(definition, folded, view)
            if definition.created < self.log_start:  # the record of its horizon may be removed
                one.horizon = self.log_start + AHEAD
        one.ready_at = max(self.following.persisted, ready_at)
        one.return_to = self.return_to if isinstance(one.replicated, ReplicatedQueue) else 0
        one.noted = self._noted(config.name, declaration)
        self.running[config.name] = one
        self.folding.begin(one)

    def _made(
        self, definition: Definition, folded: int, view: QueueView | None = None
    ) -> QueueState:
        config = definition.config
        queue = Replayable() if config.kind == "replayable" else Queue(config)
        one = QueueState(definition, queue, QueueIntake(definition, definition.type_of), folded)
        if view is None:
            return one
        assert self.here is not None, "a Welcome came before"
        if isinstance(queue, Replayable):
            one.replicated = ReplicatedReplayable(self.here.instance, queue, view)
        else:
            initial = self.replicated.is_initial(config)
            one.replicated = ReplicatedQueue(self.here.instance, queue, view, initial)
        return one

    def _restored(self, definition: Definition, view: QueueView | None) -> QueueState | None:
        """The queue as the tables have it; None: they do not, or cannot be used."""
        name = definition.config.name
        saved = self._saved.get((name, definition.declaration))
        if saved is None or saved.position < self.log_start:
            return None  # what it does not know is not in the log any more, either
        one = self._made(definition, saved.position, view)
        rows = dict(saved.rows)
        try:
            one.ages.load(rows.pop("ages"))
            one.dead = BitMap64.deserialize(rows.pop("dead"))
            one.forget_dead(self.log_start)
            if one.replicated is not None:
                if stand_ins := rows.pop("stand_ins", b""):
                    one.stand_ins.load(stand_ins)
                one.replicated.load(rows)
            one.queue.load(rows)
        except (LookupError, ValueError) as error:
            text = f"queue {name!r}: {error}; its state is read from the log again, nothing is lost"
            values = {"queue": name, "reason": str(error)}
            self.notes.append(Note("queues.tables_unusable", text, values=values))
            return None
        one.horizon = saved.horizon
        return one

    def alter(self, one: QueueState, definition: Definition) -> None:
        """A queue that runs has other settings."""
        one.definition, one.idle_row = definition, None
        self.changes.note(one.name)
        one.entering = QueueIntake(one.definition, one.definition.type_of)
        if isinstance(one.queue, Queue):
            one.queue.config = one.definition.config
        self.changed(one)  # less may wait in it now, or it may offer more

    def end(self, one: QueueState) -> None:
        """A queue runs no more."""
        del self.running[one.name]
        self.folding.end(one)
        self.ended.append(one)
        self.changes.note(one.name)

    # -- fold ---------------------------------------------------------------------------------

    def position_of(self, vector: str) -> int:
        """The position after all that a vector covers of this log's own."""
        if self.here is None:
            return 0
        given = parse_vector(vector).items()
        own = ((origin, at) for origin, at in given if origin.instance == self.here.instance)
        return max((min(at + 1, self.history.end(o.generation)) for o, at in own), default=1)

    def good(self, positions: BitMap64, generation: int | None) -> BitMap64:
        """Those that name the same messages in this log; None: of the log as it is.

        Clients do not know of a generation that began while this process runs. They go on with the
        one of their logon, and the log has not given a position twice since then.
        """
        if generation is None or (
            self.announced is not None and generation == self.announced.generation
        ):
            return positions
        return below(positions, self.history.end(generation))

    def is_own(self, batch: Batch) -> bool:
        """False for what came from a peer, also if that is of an older generation of this log."""
        origin = self.here is not None and batch.origin_instance == self.here.instance
        return origin and self.history.of(batch.position) == batch.origin_generation

    def raised(self, log_start: int) -> None:
        """The log begins there now."""
        if log_start <= self.log_start:
            return
        self.log_start = log_start
        for one in self.running.values():
            one.forget_dead(log_start)
            self._let_go(one, log_start)

    def _let_go(self, one: QueueState, log_start: int) -> None:
        """Takes what the log gives up out of a queue that was defined too late to keep it.

        A definition from a place in the past lands while the journal removes what is after that
        place: until then nothing held the log for the queue, and a restart would begin at
        `log_start`. Messages that were brought back are kept: their record is in the log, and holds
        them.
        """
        one.ahead = max(one.ahead, log_start)
        removed = without(below(one.queue.here, log_start), one.returned)
        if not removed:
            return
        if not isinstance(one.queue, Replayable):
            one.queue.gone(removed)
        elif isinstance(one.replicated, ReplicatedReplayable):
            one.replicated.release(log_start)
            self.look_overtaken(one)
        elif one.queue.purged(log_start):
            self.overtaken.append(one)
        self.changed(one)
        text = (
            f"{one.name}: {len(removed)} messages before position {log_start} left the queue: "
            "[retention] removed them from the log while the queue was being defined"
        )
        values = {"queue": one.name, "messages": len(removed), "position": log_start}
        self.notes.append(Note("queues.removed_early", text, values=values))

    def look_overtaken(self, one: QueueState) -> None:
        """Its consumer is to end, if messages left the queue that it was to get."""
        if isinstance(one.replicated, ReplicatedReplayable) and one.replicated.overtook:
            one.replicated.overtook = False
            self.overtaken.append(one)

    # -- commit -------------------------------------------------------------------------------

    def commit(self, one: QueueState) -> None:
        """The decisions for a queue become one unit; dead letters have units of their own."""
        plain, rest = one.of_one_unit()
        if not plain and not one.facts:
            return
        one.entries = rest
        if any(not outcome.letter for outcome, _ in rest):
            self.changed(one)
        facts, endings, one.facts, one.endings = one.facts, one.endings, [], []
        self.add(one, facts + facts_of([outcome for outcome, _ in plain]), plain, endings)

    def add(
        self, one: QueueState, facts: list[r.AnyFact], entries: list[Entry],
        endings: Sequence[Ending] = (), letters: Sequence[tuple[UnitPart, Body]] = (),
    ) -> None:  # fmt: skip
        """A unit: dead letters, if there are some, and one record with these facts."""
        number = self.commits.number()
        made = unit_records(one, facts, UnitStamp(self.commits.incarnation, number))
        parts = [part for part, _ in letters] + [control(kind, body) for kind, body in made]
        bodies = [body for _, body in letters] + [body for _, body in made]

        def done(code: str, reason: str, position: int) -> None:
            if code:
                text = f"{one.name}: a unit was refused: {reason}; what it said holds no more"
                values = {"queue": one.name, "reason": reason}
                self.notes.append(Note("queues.refused", text, values=values))
            one.over(entries, code)
            for ending in endings:
                ending(code)
            self.changed(one)

        self.commits.add(PendingUnit(parts, bodies, done, number))
