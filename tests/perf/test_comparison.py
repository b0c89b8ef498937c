"""Claims about tables, plots and the section of the page, from samples made here."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from perf.compare import arguments, planned
from perf.comparison import Metric, compared, processor_table, shown, shown_ratio, table
from perf.latency_histogram import LatencyHistogram
from perf.page import replaced, section, without_places
from perf.paired_ratios import Ratio
from perf.plots import bars, drawn, percentiles
from perf.round_plan import QUICK, Plan

SVG = "{http://www.w3.org/2000/svg}"


def histogram(*ms: float) -> str:
    made = LatencyHistogram()
    made.record(each / 1e3 for each in ms)
    return made.encoded


def samples(side: str, rate: float, ms: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(3):
        slow = 2 if number == 1 else 1  # the machine, for both sides
        used = {"client": 1.0, "journal": 0.5, "ingest": 0.25, "subscriber": 2.0}
        found += [
            {"side": side, "round": number, "workload": "publish", "metric": "publish()",
             "value": rate / slow, "unit": "messages/s", "lower": False, "cpu_us": used,
             "others": 4.0},
            {"side": side, "round": number, "workload": "steady 10,000/s", "metric": "p99",
             "value": ms * slow, "unit": "ms", "lower": True,
             "histogram": histogram(ms, ms * slow)},
        ]  # fmt: skip
    return found


CONTENT: dict[str, Any] = {
    "about": {
        "date": "2026-11-23", "machine": "A processor", "cpus": 2, "memory_gb": 24,
        "file_system": "ext4", "kernel": "6.1", "python": "3.11.7", "pyzmq": "27", "libzmq": "4.3",
        "versions": {"main": {"commit": "abc"}, "kafka": {"server": "4.3.0", "client": "ck 2"}},
    },
    "plan": Plan().as_json(),
    "sides": {
        "main": {"kind": "zbroker", "acknowledged": "fsync"},
        "kafka": {"kind": "kafka", "acknowledged": "page cache"},
    },
    "samples": [
        {"side": "machine", "round": 0, "workload": "raw synced 4 KiB write", "metric": "p50",
         "value": 0.2, "unit": "ms", "lower": True},
        *samples("main", 100_000, 10.0),
        *samples("kafka", 50_000, 5.0),
        {"side": "kafka", "round": 0, "workload": "queue", "failed": "TimeoutError: no answer"},
        {"side": "kafka", "round": 1, "workload": "queue", "failed": "TimeoutError: no answer"},
    ],
}  # fmt: skip


def rows() -> dict[Metric, Any]:
    return {row.metric: row for row in compared(CONTENT).rows}


def test_a_ratio_above_one_is_better_for_rates_as_for_times() -> None:
    publish = rows()[Metric("publish", "publish()")].ratio("main", "kafka")
    steady = rows()[Metric("steady 10,000/s", "p99")].ratio("main", "kafka")
    assert publish[:3] == pytest.approx((0.5, 0.5, 0.5))
    assert steady[:3] == pytest.approx((2.0, 2.0, 2.0))


def test_processor_time_of_clients_is_told_apart() -> None:
    cell = rows()[Metric("publish", "publish()")].cells["main"]
    assert cell.processor_us() == (0.75, 3.0)


def test_processor_time_is_compared_within_rounds() -> None:
    row = rows()[Metric("publish", "publish()")]
    assert row.processor_ratio("main", "kafka")[:3] == (1.0, 1.0, 1.0)
    row.cells["kafka"].cpu_us[0] = {"server": 0.0}  # too short to be seen
    assert row.processor_ratio("main", "kafka").rounds == 2


def test_histograms_of_all_rounds_add_up() -> None:
    cell = rows()[Metric("steady 10,000/s", "p99")].cells["main"]
    assert cell.histogram.count == 6


def test_the_same_failure_is_reported_once() -> None:
    assert compared(CONTENT).failed == [("kafka", "queue", "TimeoutError: no answer")]


def test_a_single_round_has_no_interval() -> None:
    assert shown_ratio(Ratio(0.5, 0.5, 0.5, 1)) == "0.50"


def test_two_rounds_are_no_difference() -> None:
    assert shown_ratio(Ratio(0.5, 0.4, 0.6, 2)) == "0.50 (0.40 to 0.60)"


def test_a_side_without_samples_has_no_figure() -> None:
    content = {**CONTENT, "samples": samples("main", 1.0, 1.0)}
    comparison = compared(content)
    assert comparison.rows[0].ratio("main", "kafka") is None
    assert "| - |" in section(content, [])


def text_of(each: Any) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(each)
    return captured.get()


def test_the_table_has_medians_with_ratios_of_rounds() -> None:
    lines = text_of(table(compared(CONTENT)))
    assert "medians of 3 rounds" in lines
    assert "publish, publish(), messages/s" in lines
    assert "100,000" in lines
    assert "0.50 (0.50 to 0.50) *" in lines
    assert "0.75 + 3" in text_of(processor_table(compared(CONTENT)))


@pytest.mark.parametrize(
    ("value", "text"), [(1234567.8, "1,234,568"), (12.345, "12.3"), (0.01234, "0.0123")]
)
def test_figures_have_the_digits_that_count(value: float, text: str) -> None:
    assert shown(value) == text


def test_the_section_says_when_where_and_with_which_versions() -> None:
    text = section(CONTENT, [("publish", "../images/publish.svg")])
    for part in (
        "Measured on 2026-11-23: A processor, 2 processors, 24 GB",
        "main (commit abc); kafka (server 4.3.0, client ck 2)",
        "| an acknowledgement means | fsync | page cache |",
        "| publish, publish(), messages/s | 100,000 | 50,000; 0.50 (0.50 to 0.50) * |",
        "| raw synced 4 KiB write, p50, ms | 0.2 | |",
        "| publish, publish() | 0.75 + 3 | 0.75 + 3; 1.00 (1.00 to 1.00) |",
        "![publish](../images/publish.svg)",
        "- not measured: kafka, queue, TimeoutError: no answer",
    ):
        assert part in text


def test_a_busy_machine_is_reported() -> None:
    busy = [{**each, "others": 40.0} for each in CONTENT["samples"]]
    text = section({**CONTENT, "samples": busy}, [])
    assert "Other programs took 40 % of the machine meanwhile." in text
    assert "Other programs" not in section(CONTENT, [])


def test_the_page_names_no_directory_of_the_machine() -> None:
    assert without_places("x does not start:\n/some/place/server.log") == (
        "x does not start: server.log"
    )


def test_only_the_named_section_of_the_page_changes() -> None:
    page = "# Page\n\n## One\n\nold\n\n## Two\n\nkept\n"
    assert replaced(page, "One", "new\n") == "# Page\n\n## One\n\nnew\n\n## Two\n\nkept\n"
    assert replaced(page, "Two", "new") == "# Page\n\n## One\n\nold\n\n## Two\n\nnew\n"
    assert replaced(page, "Three", "new").endswith("kept\n\n## Three\n\nnew\n")


def test_a_bar_is_as_long_as_its_value() -> None:
    drawing = ElementTree.fromstring(bars("publish", "messages/s", {"a": 100.0, "b": 50.0}))
    long, short = (float(each.attrib["width"]) for each in drawing.iter(f"{SVG}rect"))
    assert long == pytest.approx(2 * short, abs=0.2)


def test_a_curve_rises_to_the_right() -> None:
    made = LatencyHistogram(histogram(*(n / 10 for n in range(1, 1_000))))
    drawing = ElementTree.fromstring(percentiles("steady", {"a": made.curve()}))
    (line,) = drawing.iter(f"{SVG}polyline")
    points = [tuple(map(float, each.split(","))) for each in line.attrib["points"].split()]
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))
    assert points[0][1] > points[-1][1]  # y goes downwards


def test_the_same_results_make_the_same_plots() -> None:
    assert drawn(compared(CONTENT)) == drawn(compared(CONTENT))
    assert set(drawn(compared(CONTENT))) == {
        "publish-publish.svg", "steady-10000-s-p99.svg", "steady-10000-s-percentiles.svg",
    }  # fmt: skip


def test_names_of_sides_cannot_break_a_plot() -> None:
    drawing = bars("x", "ms", {"<main> & co": 1.0})
    assert "&lt;main&gt; &amp; co" in drawing


def test_the_command_line_changes_the_plan() -> None:
    assert planned(arguments(["--quick"])) == QUICK
    plan = planned(arguments(["--sides", ".", "--rounds", "2", "steady"]))
    assert (plan.rounds, plan.workloads, plan.messages) == (2, ("steady",), Plan().messages)


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(SystemExit):
        arguments(["--quick", "curve"])
