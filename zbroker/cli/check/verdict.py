"""From what an instance says of itself to one verdict, and its texts for monitoring. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

OK: Final = 0
WARNING: Final = 1
CRITICAL: Final = 2
UNKNOWN: Final = 3
WORDS: Final = ("ok", "warning", "critical", "unknown")

#: messages are refused or not acknowledged, or some cannot be read, or reading becomes slow, or
#: keys that were taken away still let clients in
GRAVE: Final = frozenset({"disk_full", "damage", "index_failed", "access_file", "sync_unreachable"})
_UNSAFE: Final = str.maketrans({"|": "/", "\n": " ", "\r": " "})  # `|` begins performance data
_STATES: Final = {"ready": OK, "starting": WARNING, "degraded": CRITICAL, "stopping": CRITICAL}


class Thresholds(NamedTuple):
    """A value above one of them is a warning, or critical; None: there is no such bound."""

    warning: float | None = None
    critical: float | None = None

    def code(self, value: float) -> int:
        """What a value is."""
        if self.critical is not None and value > self.critical:
            return CRITICAL
        return WARNING if self.warning is not None and value > self.warning else OK


class HealthLimits(NamedTuple):
    """The bounds of what is measured."""

    lag: Thresholds = Thresholds()
    lag_s: Thresholds = Thresholds()
    disk: Thresholds = Thresholds()
    sync_ms: Thresholds = Thresholds()
    clients: Thresholds = Thresholds()
    replication_lag: Thresholds = Thresholds()


class AdminAnswers(NamedTuple):
    """What the admin answered; disks: percent used, by directory; None: not asked for yet."""

    status: Mapping[str, Any]
    subscriptions: Mapping[str, Any]
    disks: Mapping[str, float] | None


class Value(NamedTuple):
    """A number that was looked at; unit as performance data has it."""

    name: str
    value: float
    unit: str = ""
    bounds: Thresholds = Thresholds()


class Reason(NamedTuple):
    """A reason for the verdict; detail: a longer explanation."""

    code: int
    text: str
    detail: str = ""


class HealthVerdict(NamedTuple):
    """Everything that was found out; `text` says how it is where nothing is wrong."""

    reasons: tuple[Reason, ...]
    values: tuple[Value, ...] = ()
    text: str = ""

    @property
    def code(self) -> int:
        """Critical counts before unknown: something is known to be wrong."""
        codes = {reason.code for reason in self.reasons}
        return next((code for code in (CRITICAL, UNKNOWN, WARNING) if code in codes), OK)


def judge(said: AdminAnswers, limits: HealthLimits, warn_alarms: bool = False) -> HealthVerdict:
    """The verdict on an instance that answers."""
    status, values = said.status, tuple(_values(said, limits))
    reasons = [*_state(status), *_alarms(status, warn_alarms), *_silent(said), *_crossed(values)]
    lag = next(value for value in values if value.name == "lag")
    text = f"{status.get('state')}, {status.get('clients', 0)} clients, lag {_number(lag)}"
    return HealthVerdict(tuple(sorted(reasons, key=lambda one: -one.code)), values, text)


def _values(said: AdminAnswers, limits: HealthLimits) -> Iterator[Value]:
    status, rows = said.status, said.subscriptions.get("subscriptions", ())
    journal: Mapping[str, Any] = status.get("journal", {})
    yield Value("clients", _of(status, "clients"), "", limits.clients)
    yield Value("subscriptions", _of(status, "subscriptions"))
    yield Value("lag", max((_of(row, "lag") for row in rows), default=0), "", limits.lag)
    lag_s = max((_of(row, "lag_s") for row in rows), default=0)
    yield Value("lag_s", lag_s, "s", limits.lag_s)
    for number, (_, used) in enumerate(sorted((said.disks or {}).items()), 1):
        yield Value("disk" if number == 1 else f"disk{number}", round(used, 1), "%", limits.disk)
    yield Value("sync_ms", _of(journal, "sync_ms"), "ms", limits.sync_ms)
    yield Value("log_bytes", _of(journal, "bytes"), "B")
    if links := status.get("replication"):
        yield Value("replication_lag", _of(links, "lag"), "", limits.replication_lag)
    yield Value("persisted", max(0, _of(journal, "persisted") - 1), "c")
    for name, rate in status.get("rates", {}).items():
        if isinstance(rate, int | float):
            yield Value(name, round(rate, 1))


def _of(found: Mapping[str, Any], key: str) -> float:
    """A number; 0 where there is none."""
    value = found.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _state(status: Mapping[str, Any]) -> Iterator[Reason]:
    state = str(status.get("state", ""))
    code = _STATES.get(state, UNKNOWN)
    if code != OK:
        down = [
            f"{one.get('room')} {one.get('state')}"
            for one in status.get("processes", ())
            if one.get("state") != "ready" and one.get("room") != "supervisor"
        ]
        yield Reason(code, f"it is {state or 'in no known state'}", ", ".join(down))


def _alarms(status: Mapping[str, Any], warn_alarms: bool) -> Iterator[Reason]:
    for alarm in status.get("alarms", ()):
        grave = alarm.get("code") in GRAVE and not warn_alarms
        detail = "; ".join(str(alarm[key]) for key in ("means", "next") if alarm.get(key))
        text = f"{alarm.get('code')}: {alarm.get('what')}"
        yield Reason(CRITICAL if grave else WARNING, text, detail)


def _silent(said: AdminAnswers) -> Iterator[Reason]:
    if silent := said.subscriptions.get("silent"):
        yield Reason(WARNING, f"{', '.join(silent)} did not say how far subscriptions are")
    if said.disks == {}:
        yield Reason(UNKNOWN, "the log's disk is not on this host")


def _crossed(values: tuple[Value, ...]) -> Iterator[Reason]:
    for value in values:
        code = value.bounds.code(value.value)
        if code != OK:
            bound = value.bounds.critical if code == CRITICAL else value.bounds.warning
            yield Reason(code, f"{value.name} {_number(value)}, over {bound:g}{value.unit}")


def _number(value: Value) -> str:
    return f"{value.value:.15g}{value.unit}"


def nagios(verdict: HealthVerdict) -> list[str]:
    """One line with performance data, then a line for each detail."""
    why = "; ".join(reason.text for reason in verdict.reasons) or verdict.text
    head = f"ZBROKER {WORDS[verdict.code].upper()}: {why}".translate(_UNSAFE)
    data = " ".join(map(_performance, verdict.values))
    details = [reason.detail.translate(_UNSAFE) for reason in verdict.reasons if reason.detail]
    return [f"{head} | {data}" if data else head, *details]


def _performance(value: Value) -> str:
    """label=value[unit];warning;critical;minimum"""
    unit = value.unit
    bounds = ";".join("" if bound is None else f"{bound:g}" for bound in value.bounds)
    return f"{value.name}={value.value:.15g}{unit};{bounds};0"


def as_json(verdict: HealthVerdict) -> list[str]:
    """A document with stable keys."""
    document = {
        "state": WORDS[verdict.code],
        "code": verdict.code,
        "text": verdict.text,
        "reasons": [
            {"state": WORDS[reason.code], "text": reason.text, "detail": reason.detail}
            for reason in verdict.reasons
        ],
        "values": {
            value.name: {"value": value.value, "unit": value.unit, **value.bounds._asdict()}
            for value in verdict.values
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False).splitlines()


def prometheus(verdict: HealthVerdict) -> list[str]:
    """For the textfile collector of a node exporter."""
    lines = [
        "# HELP zbroker_check_state 0 ok, 1 warning, 2 critical, 3 unknown.",
        "# TYPE zbroker_check_state gauge",
        f"zbroker_check_state {verdict.code}",
        "# HELP zbroker_check_value What was looked at.",
        "# TYPE zbroker_check_value gauge",
    ]
    lines += [
        f'zbroker_check_value{{name="{one.name}"}} {one.value:.15g}' for one in verdict.values
    ]
    lines += ["# HELP zbroker_check_over 1: over a bound.", "# TYPE zbroker_check_over gauge"]
    lines += [
        f'zbroker_check_over{{name="{one.name}"}} {int(one.bounds.code(one.value) != OK)}'
        for one in verdict.values
        if one.bounds != (None, None)
    ]
    return lines


FORMS: Final = {"nagios": nagios, "json": as_json, "prometheus": prometheus}
