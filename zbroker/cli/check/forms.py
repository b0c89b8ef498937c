"""A verdict as those who watch want to read it. Pure."""

from __future__ import annotations

import json
from typing import Final

from zbroker.cli.check.judging import OK, WORDS, HealthVerdict, Value

_UNSAFE: Final = str.maketrans({"|": "/", "\n": " ", "\r": " "})  # `|` begins performance data


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
            value.name: {
                "value": value.value, "unit": value.unit,
                "warning": value.bounds.warning, "critical": value.bounds.critical,
            }
            for value in verdict.values
        },
    }  # fmt: skip
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
