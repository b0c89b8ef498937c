"""What a principal may do with one action: which topics, and which of their messages. Pure.

Grants are brought to a normal form: pairs of a topic pattern and a filter, without those that
others make needless. Permits with equal pairs have equal keys, so what is remembered for one holds
for all of them, also after the access file was read again.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from typing import Final, Literal

from zbroker.access.content import Clause, TopicFilters
from zbroker.access.grants import Grant
from zbroker.access.patterns import ANY, AccessPattern
from zbroker.limits import TOPICS_MAX

Verdict = Literal["all", "some", "no"]
Rule = tuple[AccessPattern, Clause | None]
Rules = dict[tuple[str, str], Rule]  # (pattern, filter or "") -> the same, compiled

_EVERYTHING: Final = (ANY, "")


class Permit:
    """The topics and messages that are permitted.

    everything: no topic is refused, and no filter asked. nothing: every topic is refused.
    key: equal for two permits if and only if their rules are.
    """

    __slots__ = (
        "_allow",
        "_contents",
        "_deny",
        "_made",
        "_verdicts",
        "everything",
        "key",
        "nothing",
    )

    def __init__(self, allow: Rules, deny: Rules) -> None:
        self._allow, self._deny = _normal(allow, deny)
        self.nothing = not self._allow
        self.everything = _EVERYTHING in self._allow and not self._deny
        self.key = json.dumps([sorted(self._allow), sorted(self._deny)], ensure_ascii=False)
        self._verdicts: dict[str, Verdict] = {}
        self._contents: dict[str, TopicFilters] = {}
        self._made: dict[Hashable, TopicFilters] = {}  # by the texts of its filters

    def verdict(self, topic: str) -> Verdict:
        """Whether all, some or none of the messages of `topic` are permitted; remembered."""
        verdict = self._verdicts.get(topic)
        return self._judge(topic) if verdict is None else verdict

    def content(self, topic: str) -> TopicFilters:
        """What decides over the messages of a topic whose verdict is "some"."""
        if topic not in self._contents:
            assert self._judge(topic) == "some", "only filters decide over messages"
        return self._contents[topic]

    def __repr__(self) -> str:
        return f"Permit({self.key})"

    def _judge(self, topic: str) -> Verdict:
        if len(self._verdicts) >= TOPICS_MAX:
            self._verdicts.clear()
            self._contents.clear()
            self._made.clear()
        allow, deny = _about(self._allow, topic), _about(self._deny, topic)
        verdict: Verdict = "some"
        if not allow or None in deny:
            verdict = "no"
        elif None in allow and not deny:
            verdict = "all"
        else:
            names = (tuple(allow), tuple(deny))
            if names not in self._made:
                allowed = None if None in allow else _clauses(allow)
                self._made[names] = TopicFilters(allowed, _clauses(deny))
            self._contents[topic] = self._made[names]
        self._verdicts[topic] = verdict
        return verdict


def rules_of(grants: Iterable[Grant]) -> Rules:
    """Every pair of a pattern and its filter."""
    return {
        (pattern.text, grant.clause.text if grant.clause else ""): (pattern, grant.clause)
        for grant in grants
        for pattern in grant.topics
    }


def _normal(allow: Rules, deny: Rules) -> tuple[Rules, Rules]:
    deny = _without_needless(deny)
    if _EVERYTHING in deny:
        return {}, {}
    # a pattern that fits the text of another one, stars included, fits all that the other one does
    barred = [pattern for (_, text), (pattern, _) in deny.items() if not text]
    allow = {
        pair: rule for pair, rule in allow.items() if not any(fits(pair[0]) for fits in barred)
    }
    return (_without_needless(allow), deny) if allow else ({}, {})


def _without_needless(rules: Rules) -> Rules:
    """Without those that the same filter for every topic, or the same topics unfiltered, imply."""

    def is_needless(pattern: str, filter_text: str) -> bool:
        wider = {(pattern, ""), (ANY, filter_text), _EVERYTHING} - {(pattern, filter_text)}
        return not wider.isdisjoint(rules)

    return {pair: rule for pair, rule in rules.items() if not is_needless(*pair)}


def _about(rules: Rules, topic: str) -> dict[str | None, Clause | None]:
    """The filters of the rules that `topic` fits, by text; None: one has no filter."""
    return {
        clause.text if clause else None: clause
        for pattern, clause in rules.values()
        if pattern(topic)
    }


def _clauses(found: dict[str | None, Clause | None]) -> list[Clause]:
    return [clause for clause in found.values() if clause is not None]
