"""What the samples of a result file come to: medians, ratios of rounds, processor time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rich.table import Table

from perf.latency_histogram import LatencyHistogram
from perf.paired_ratios import Ratio, paired

MACHINE: Final = "machine"  # the side of what was measured without a broker
ROUNDS_TO_DIFFER: Final = 3  # two that agree by chance are no difference
CLIENTS: Final = ("client", "subscriber", "consumers")  # the rest of the processes is the broker's


class Metric(NamedTuple):
    """A row of the tables."""

    workload: str
    name: str

    def __str__(self) -> str:
        return f"{self.workload}, {self.name}"


@dataclass
class Cell:
    """One side's samples of a metric, by round."""

    values: dict[int, float] = field(default_factory=dict)
    cpu_us: dict[int, dict[str, float]] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)
    histogram: LatencyHistogram | None = None

    @property
    def median(self) -> float:
        """Of the rounds."""
        return statistics.median(self.values.values())

    def add(self, sample: dict[str, Any]) -> None:
        """One round's."""
        self.values[sample["round"]] = sample["value"]
        self.others.append(sample.get("others", 0.0))
        if "cpu_us" in sample:
            self.cpu_us[sample["round"]] = sample["cpu_us"]
        if "histogram" in sample:
            histogram = LatencyHistogram(sample["histogram"])
            if self.histogram is None:
                self.histogram = histogram
            else:
                self.histogram.add(histogram)

    def processor_us(self) -> tuple[float, float] | None:
        """Median microseconds of the broker and of its clients for each message."""
        if not self.cpu_us:
            return None
        samples = self.cpu_us.values()
        clients = [sum(used.get(name, 0.0) for name in CLIENTS) for used in samples]
        broker = [sum(used.values()) - mine for used, mine in zip(samples, clients, strict=True)]
        return statistics.median(broker), statistics.median(clients)

    def processor_totals(self) -> dict[int, float]:
        """Microseconds of all processes for each message, by round, where that was to be seen."""
        totals = {number: sum(used.values()) for number, used in self.cpu_us.items()}
        return {number: total for number, total in totals.items() if total}


@dataclass
class Row:
    """A metric and its cells by side."""

    metric: Metric
    unit: str
    lower: bool
    cells: dict[str, Cell] = field(default_factory=dict)

    def ratio(self, base: str, side: str) -> Ratio | None:
        """Of a side to the first one, in the same rounds; above 1 is better for both kinds."""
        if base not in self.cells or side not in self.cells:
            return None
        one, other = self.cells[base].values, self.cells[side].values
        return paired(other, one) if self.lower else paired(one, other)

    def processor_ratio(self, base: str, side: str) -> Ratio | None:
        """The same of processor time, which other work on the machine changes least."""
        if base not in self.cells or side not in self.cells:
            return None
        one, other = (self.cells[name].processor_totals() for name in (base, side))
        return paired(other, one)


@dataclass
class Comparison:
    """Rows in the order in which they were measured. sides: the first is what others are compared
    with. failed: by side, what was not measured and why."""

    sides: list[str]
    rows: list[Row]
    failed: list[tuple[str, str, str]]

    @property
    def rounds(self) -> int:
        """The most that a cell has."""
        return max(
            (len(cell.values) for row in self.rows for cell in row.cells.values()), default=0
        )

    @property
    def others_percent(self) -> float:
        """The median of what other programs took of the machine."""
        found = [each for row in self.rows for cell in row.cells.values() for each in cell.others]
        return statistics.median(found) if found else 0.0


def compared(content: dict[str, Any]) -> Comparison:
    """The content of a result file."""
    rows: dict[Metric, Row] = {}
    failed = []
    for sample in content["samples"]:
        if "failed" in sample:
            failed.append((sample["side"], sample["workload"], sample["failed"]))
            continue
        metric = Metric(sample["workload"], sample["metric"])
        row = rows.setdefault(metric, Row(metric, sample["unit"], sample["lower"]))
        row.cells.setdefault(sample["side"], Cell()).add(sample)
    return Comparison(list(content["sides"]), list(rows.values()), list(dict.fromkeys(failed)))


def shown(value: float) -> str:
    """A figure with three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown_ratio(ratio: Ratio | None) -> str:
    """With its interval, and a mark where it does not contain 1; of one round there is none."""
    if ratio is None:
        return ""
    if ratio.rounds == 1:
        return f"{ratio.median:.2f}"
    mark = " *" if ratio.differs and ratio.rounds >= ROUNDS_TO_DIFFER else ""
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}){mark}"


def table(comparison: Comparison) -> Table:
    """One line per metric, for a terminal."""
    base, *others = comparison.sides
    lines = Table(
        title=f"medians of {comparison.rounds} rounds; ratios of the same rounds with a 95 % "
        f"interval, above 1 is better than {base}; * the interval does not contain 1"
    )
    lines.add_column("metric")
    for side in comparison.sides:
        lines.add_column(side, justify="right")
        if side in others:
            lines.add_column("ratio", justify="right")
    for row in comparison.rows:
        lines.add_row(*_line(row, comparison.sides))
    return lines


def _line(row: Row, sides: list[str]) -> Iterable[str]:
    yield f"{row.metric}, {row.unit}"
    if MACHINE in row.cells:
        yield shown(row.cells[MACHINE].median)
        return
    for side in sides:
        yield shown(row.cells[side].median) if side in row.cells else "-"
        if side != sides[0]:
            yield shown_ratio(row.ratio(sides[0], side))


def processor_table(comparison: Comparison) -> Table:
    """Processor time for each message, broker and clients."""
    base, *others = comparison.sides
    lines = Table(title="processor time for each message, us: broker + clients; ratios of the sums")
    lines.add_column("workload")
    lines.add_column(base, justify="right")
    for side in others:
        lines.add_column(side, justify="right")
        lines.add_column("ratio", justify="right")
    for row in with_processor_time(comparison):
        cells = [processor_cell(row, base)]
        for side in others:
            cells += [processor_cell(row, side), shown_ratio(row.processor_ratio(base, side))]
        lines.add_row(str(row.metric), *cells)
    return lines


def with_processor_time(comparison: Comparison) -> list[Row]:
    """The rows that have any."""
    return [row for row in comparison.rows if any(cell.cpu_us for cell in row.cells.values())]


def processor_cell(row: Row, side: str) -> str:
    """Broker and clients."""
    pair = row.cells[side].processor_us() if side in row.cells else None
    return "-" if pair is None else f"{shown(pair[0])} + {shown(pair[1])}"
