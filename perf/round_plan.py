"""What is measured in which order: sides take turns within each round, and change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

WORKLOADS: Final = ("publish", "one", "live", "replay", "steady", "queue", "fanout")
QUICK_WORKLOADS: Final = ("publish", "one", "live", "replay", "steady")


@dataclass(frozen=True)
class Plan:
    """How much of everything. messages: of a fast side; slower ones take a share of it."""

    rounds: int = 5
    messages: int = 1_000_000
    one_by_one: int = 1_000
    rates: tuple[int, ...] = (1_000, 10_000, 50_000, 200_000)
    steady_s: float = 4.0
    warm_s: float = 1.0  # of these seconds, and not counted
    workloads: tuple[str, ...] = WORKLOADS
    patience_s: float = 2.0  # for others to become quiet, before each workload
    limit_s: float = 4 * 3_600.0  # for all rounds: none is begun that would not end by then
    subscribers: int = 8  # of the fan-out
    consumers: int = 4  # of the queue

    def as_json(self) -> dict[str, Any]:
        """For another process, and for the result file."""
        return asdict(self)


@dataclass(frozen=True)
class Task:
    """One turn: what a process of one side is to do. directory: on the disk that is measured."""

    side: str
    kind: str
    number: int
    directory: str
    cache: str
    tree: str
    plan: dict[str, Any] = field(default_factory=dict)


QUICK: Final = Plan(
    rounds=5, messages=200_000, one_by_one=200, rates=(10_000,), steady_s=2.0, warm_s=0.5,
    workloads=QUICK_WORKLOADS, patience_s=0.0, limit_s=105.0,
)  # fmt: skip


def plan_of(fields: dict[str, Any]) -> Plan:
    """What `as_json` of a plan gave."""
    return Plan(**{key: tuple(value) if isinstance(value, list) else value
                   for key, value in fields.items()})  # fmt: skip


def fits(elapsed_s: float, longest_s: float, limit_s: float) -> bool:
    """Whether another round, as long as the longest so far, ends in time; the first always does."""
    return not longest_s or elapsed_s + longest_s <= limit_s


def order(sides: Sequence[str], number: int) -> list[str]:
    """The sides of a round: each begins as often as the others, so none is always the warm one."""
    at = number % len(sides)
    return [*sides[at:], *sides[:at]]
