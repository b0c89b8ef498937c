"""One queue, next to a simple reference, whatever is done to it in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.queues.machine import Machine
from zbroker.config.queues import QueueConfig
from zbroker.queues.queue import Queue


def config(**kwargs: Any) -> QueueConfig:
    defaults: dict[str, Any] = {"name": "q", "max_per_subscription": 8, "lease": 1_000}
    return QueueConfig(**{**defaults, **kwargs})


PLAIN = [
    config(),
    config(lease=0),
    config(fairness="round-robin"),
    config(fairness="fast", leasing="strict"),
    config(max_backlog=3, lease=30_000),
    config(max_deliveries=2, dead_letter="dead"),
    config(max_cancels=1, max_deliveries=3, retry_delay=[10, 2_000]),
    config(max_cancels=2, dead_letter="dead", retry_delay=[0, 100]),
]
PRIORITY = [config(priority="/p"), config(priority="/p", max_deliveries=2, retry_delay=[50])]
GROUP = [config(group_key="/g"), config(group_key="/g", retry_delay=[50], max_backlog=3)]
BARRIER = [config(barrier="/b"), config(barrier="/b", group_key="/g")]
ONCE = [
    config(semantics="at-most-once"),
    config(semantics="at-most-once", leasing="strict", barrier="/b"),
    config(semantics="at-most-once", group_key="/g", dead_letter="dead", max_backlog=3),
]
WAYS = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))


def machine(
    configs: list[QueueConfig], *, expiring: bool = False, filtered: bool = False,
    kind: type[Queue] = Queue,
) -> type[Machine]:  # fmt: skip
    names = {"configs": configs, "expiring": expiring, "filtered": filtered, "kind": kind}
    return type("Machine", (Machine,), names)


@pytest.mark.parametrize("configs", [PLAIN, PRIORITY, GROUP, BARRIER, ONCE])
@pytest.mark.parametrize("expiring", [False, True])
def test_a_queue_does_what_the_reference_says(configs: list[QueueConfig], expiring: bool) -> None:
    run_state_machine_as_test(machine(configs, expiring=expiring), settings=WAYS)


@pytest.mark.parametrize("configs", [PLAIN, PRIORITY, GROUP, BARRIER, ONCE])
def test_consumers_with_filters_get_what_fits_and_all_of_it(configs: list[QueueConfig]) -> None:
    run_state_machine_as_test(machine(configs, filtered=True), settings=WAYS)
