"""Who may read what: what is not permitted never leaves, on no path, in no part of a body."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.world import ANN, BOB, World
from zbroker.access.core import Access, Permit
from zbroker.access.format import parse
from zbroker.delivery.connections import CREDIT_MIN_BYTES, Rights
from zbroker.delivery.contract import Planned
from zbroker.delivery.core import DeliveryCore
from zbroker.delivery.pending_lookups import Asking
from zbroker.delivery.subscription_commands import SubscriptionRegistry
from zbroker.engine.events import RulesChanged
from zbroker.server.budgets import Budget
from zbroker.wire import bodies
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry

A, B = "a" * 40, "b" * 40
TOPICS = ("open", "half", "shut")


def rules(text: str) -> Access:
    principals = (
        f'[principal.ann]\nkeys = ["{A}"]\nroles = ["r"]\n[principal.bob]\nkeys = ["{B}"]\n'
    )
    return parse(principals + text, "access.toml")


def grant(kind: str, actions: str, topics: str, content: str = "") -> str:
    names = json.dumps(topics.split())
    extra = f"\nfilter = {json.dumps(content)}" if content else ""
    return f"[[role.r.{kind}]]\nactions = {json.dumps(actions.split())}\ntopics = {names}{extra}\n"


READS = "subscribe replay"
MIXED = grant("allow", READS, "open") + grant("allow", READS, "half", "/n < 5")


def world(text: str = MIXED) -> World:
    made = World(access=rules(text))
    made.welcome()
    made.logon_as("ann", A)
    return made


def payload(n: int, which: int = 0) -> bytes:
    return b'{"n": %d, "secret": "s%ds"}' % (n, which)


def may(topic: str, data: bytes) -> bool:
    return topic == "open" or (topic == "half" and json.loads(data)["n"] < 5)


def leaked(made: World, rid: bytes = ANN) -> list[bytes]:
    """Messages that may not be had and whose bytes, or whose topic, went out all the same."""
    gone = [(header, body) for to, header, body in made.passed if to == rid]
    found = [
        one.data for one in made.published if not may(one.topic, one.data)
        for _, body in gone if one.data in body
    ]  # fmt: skip
    return found + [header for header, _ in gone if b"shut" in header]


# -- what goes out ----------------------------------------------------------------------------


@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9)), min_size=1, max_size=8),
        min_size=1, max_size=6,
    ),
    options=st.fixed_dictionaries({}, optional={
        "limit": st.integers(1, 9),
        "conflation_s": st.sampled_from([0.5, 3.0]),
        "select": st.just("-/other"),
    }),
    zstd=st.booleans(),
    content=st.sampled_from([None, "/n > 2", "LENGTH(/secret) > 0"]),
    until=st.sampled_from([None, "now"]),
    skip=st.integers(0, 1),
)  # fmt: skip
def test_nothing_but_what_is_permitted_leaves(
    batches: Any, options: Any, zstd: bool, content: Any, until: Any, skip: int
) -> None:
    made = world()
    for at, rows in enumerate(batches):
        payloads = [payload(n, 100 * at + i) for i, (_, n) in enumerate(rows)]
        topics = [topic for topic, _ in rows]
        made.publish(*topics, payloads=payloads, zstd=zstd, skip=min(skip, len(rows) - 1))
    made.persist()
    made.subscribe(
        "open|half|shut", regex=True, filter=content, until=until,
        options=m.Options(codecs=["zstd"] if zstd else [], **options), credit=1 << 20,
    )  # fmt: skip
    made.wake_until(10_000)
    assert leaked(made) == []
    if not options and content is None:
        permitted = [one for one in made.published if may(one.topic, one.data)]
        assert made.got() == permitted


def test_what_one_may_see_whole_is_not_what_another_may() -> None:
    """Parts that were made for one subscriber are remembered for others: never across rights."""
    everything = '[[role.all.allow]]\nactions = ["replay"]\n'
    made = World(access=parse(
        f'[principal.ann]\nkeys = ["{A}"]\nroles = ["r"]\n'
        f'[principal.bob]\nkeys = ["{B}"]\nroles = ["all"]\n' + MIXED + everything, "access.toml",
    ))  # fmt: skip
    made.welcome()
    made.logon_as("bob", B, BOB)
    made.logon_as("ann", A)
    made.publish("open", "half", "shut", payloads=[payload(1), payload(7), payload(2)])
    made.publish("open", "shut", payloads=[payload(3), payload(4)])
    for rid in (BOB, ANN, BOB, ANN):
        made.subscribe(".*", f"s{len(made.seen)}", rid, regex=True)
    made.persist()
    assert leaked(made) == []
    assert len(made.got("s0", BOB)) == 5


def test_a_part_of_a_batch_never_brings_its_body_along() -> None:
    """Where only a span counts, the rest of the body would be sent, too: it is packed again."""
    made = world()
    made.publish("open", "open", "shut", payloads=[payload(1), payload(2), payload(3)])
    made.persist()
    made.subscribe("open", until="1|2|", credit=1 << 20)
    assert [one.data for one in made.got()] == [payload(1), payload(2)]
    assert leaked(made) == []


def test_what_is_not_recorded_obeys_the_same_rules() -> None:
    from zbroker.config import RecordConfig
    from zbroker.recording import Recording

    made = World(access=rules(MIXED), recording=Recording([RecordConfig("recorded")]))
    made.welcome()
    made.logon_as("ann", A)
    made.subscribe("open|half|shut", regex=True, bookmark=None, credit=1 << 20)
    data = [payload(1), payload(7), payload(2), payload(3)]
    body = bodies.pack(data)
    columns = m.Columns(index=bytes.fromhex("0000010001000200"))
    entry = Entry(1, 1, 1, 4, 0, 0, None, ["open", "half", "shut"], None, columns)
    made.pass_on([entry], [body])
    (passed,) = [body for _, _, body in made.passed]
    assert bodies.unpack(passed, None, 2, 1 << 20) == [payload(1), payload(2)]


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "bookmark", "until", "good"),
    [
        ("subscribe", None, None, True),
        ("subscribe", "0", None, False),
        ("subscribe", None, "now", False),
        ("replay", "0", None, True),
        ("replay", None, "now", True),
        ("replay", None, None, False),
    ],
)
def test_from_now_on_and_from_the_log_are_two_rights(
    allowed: str, bookmark: Any, until: Any, good: bool
) -> None:
    made = world(grant("allow", allowed, "open"))
    made.subscribe("open", bookmark=bookmark, until=until)
    assert made.errors() == ([] if good else ["not_entitled"])


def test_ranges_need_the_right_to_replay() -> None:
    made = world(grant("allow", "replay", "open"))
    for topic, regex in (("shut", False), ("open", False), (None, False)):
        made.send(m.Ranges("c", topic=topic, regex=regex, bookmark="0"))
    assert made.errors() == ["not_entitled"]
    made.logon_as("bob", B, BOB)
    made.send(m.Ranges("c", bookmark="0"), BOB)
    assert made.errors() == ["not_entitled"] * 2


LONG_LIST = ",".join(f"1|{n}|" for n in range(1, 901))
LOOK_UPS: list[dict[str, Any]] = [
    {"bookmark": "point:noon"},
    {"bookmark": "1|99|"},
    {"bookmark": "20990101T000000Z"},
    {"bookmark": "no bookmark"},
    {"bookmark": LONG_LIST},
    {"bookmark": "[1|1|:1|2|]", "until": "1|1|"},
    {"bookmark": "0", "until": "1|1|,1|2|"},
]


@pytest.mark.parametrize("ends", LOOK_UPS, ids=lambda ends: str(ends)[:40])
@pytest.mark.parametrize("kind", [m.Subscribe, m.Ranges])
def test_rights_come_before_everything_that_is_looked_up(kind: Any, ends: Any) -> None:
    """Whoever may not read a topic does not learn what a point, a bookmark or a list is worth."""
    made = World(access=rules(MIXED), budget=Budget(lookups=100))
    made.welcome()
    made.logon_as("ann", A)
    sid = {"sid": "s"} if kind is m.Subscribe else {}
    for number in range(6):
        made.send(kind(topic="shut", cid=f"c{number}", **sid, **ends))
    assert made.errors() == ["not_entitled"] * 6
    assert made.asked == []
    made.core.check()


@pytest.mark.parametrize("until", ["now", "point:noon"])
def test_a_look_up_for_ranges_ends_with_its_right(until: str) -> None:
    made = world()
    made.up = False
    made.send(m.Ranges("c", topic="open", until=until))
    made.send(m.Ranges("d", topic="half", until=until))
    made.hear(RulesChanged(rules(grant("allow", READS, "half"))))
    assert [(one.code, one.cid) for _, one in made.answers if isinstance(one, m.Error)] == [
        ("not_entitled", "c")
    ]
    assert made.core.connections[ANN].plans == 1, "the other one is still looked up"
    made.core.check()


PLACES = ("0", "0|1|", "now", "1|1|", "1|99|", "77|1|", "point:morning", "point:noon", "nonsense",
          "1|1|,1|2|", "[1|1|:1|2|]", "20990101T000000Z")  # fmt: skip
RULES = (MIXED, grant("allow", READS, "half"), grant("allow", READS, "open shut"),
         grant("allow", "subscribe", "*"))  # fmt: skip
REPLAYS = (
    {"open", "half"},
    {"half"},
    {"open", "shut"},
    set[str](),
)  # by RULES: any of its messages


class Asked:
    """Commands in any order, while rules change and the journal answers late or not at all.

    wrong: answers that tell whoever may not know. open: topics by cid of what has no answer yet.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made = made = world(RULES[0])
        made.points["morning"] = 2
        made.publish("open", "half", "shut", payloads=[payload(n) for n in (1, 2, 3)])
        made.persist()
        self.rules = 0
        self.open: dict[str, str] = {}
        self.wrong: list[object] = []

    def run(self, steps: int) -> list[object]:
        for number in range(steps):
            draw = self.rng.random()
            if draw < 0.75:
                self.ask(f"c{number}")
            elif draw < 0.9:
                self.rules = self.rng.randrange(len(RULES))
                self.step(lambda: self.made.hear(RulesChanged(rules(RULES[self.rules]))))
            else:
                self.made.up = not self.made.up
                if self.made.up:
                    self.step(self.made.welcome)
            self.made.core.check()
        return self.wrong

    def may(self, topic: str) -> bool:
        allowed = REPLAYS[self.rules]
        return bool(allowed) if topic == ".*" else topic in allowed

    def ask(self, cid: str) -> None:
        topic = self.rng.choice([*TOPICS, ".*"])
        begin, end = self.rng.choice(PLACES), self.rng.choice([*PLACES, None])
        what: dict[str, Any] = {"topic": topic, "regex": topic == ".*", "bookmark": begin}
        if end is not None:
            what["until"] = end
        if self.rng.random() < 0.5:
            command: m.ClientCommand = m.Ranges(cid, **what)
        else:
            command = m.Subscribe(sid=cid, cid=cid, **what)
        before = len(self.made.asked)
        self.open[cid] = topic
        self.step(lambda: self.made.send(command))
        if not self.may(topic) and (len(self.made.asked) > before or cid in self.open):
            self.wrong.append(("looked up", command))

    def step(self, act: Callable[[], None]) -> None:
        """Every answer that comes is judged by the rules as they are now."""
        answers, plans = len(self.made.answers), len(self.made.plans)
        act()
        for _, answer in self.made.answers[answers:]:
            topic = self.open.pop(getattr(answer, "cid", None) or getattr(answer, "sid", ""), None)
            code = getattr(answer, "code", "")
            if topic is not None and (code == "not_entitled") is self.may(topic):
                self.wrong.append((topic, self.rules, answer))
        for plan in self.made.plans[plans:]:
            self.made.hear(Planned(plan, []))
            topic = self.open.pop(plan.cid or "", None)
            if topic is not None and not self.may(topic):
                self.wrong.append((topic, self.rules, plan))
        for cid in [cid for cid, topic in self.open.items() if not self.may(topic)]:
            self.wrong.append(("still open", self.open.pop(cid)))


SEEDS = int(os.environ.get("ZB_SEEDS", "100"))


def test_answers_to_look_ups_tell_only_whoever_may_know() -> None:
    for seed in range(SEEDS):
        assert Asked(seed).run(40) == [], f"seed {seed}"


#: where a rule is left out, and what is there instead
BUGS: dict[str, tuple[object, str, Any]] = {
    "subscriptions are checked after their places": (
        SubscriptionRegistry,
        "check",
        lambda *_: None,
    ),
    "ranges are not checked": (Rights, "check_ranges", lambda *_: None),
    "ranges that are looked up are not checked again": (Asking, "ranges_of", lambda *_: []),
    "subscriptions are not checked again": (DeliveryCore, "_entitle", lambda *_: []),
    "a pattern is always permitted": (
        Permit,
        "nothing",
        property(lambda _: False, lambda *_: None),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_left_out_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = BUGS[bug]
    monkeypatch.setattr(where, name, instead, raising=False)  # an attribute of instances
    assert any(Asked(seed).run(40) for seed in range(50))


def test_another_topic_is_checked_as_the_first_one() -> None:
    made = world()
    made.subscribe("open")
    made.send(m.Replace("s", topic="shut", cid="r"))
    assert made.errors() == ["not_entitled"]
    made.publish("open", "shut", payloads=[payload(1), payload(2)])
    made.persist()
    assert [one.topic for one in made.got()] == ["open"]


def test_unrecorded_beside_a_replay_needs_both_rights() -> None:
    made = world(grant("allow", "replay", "open"))
    made.subscribe("open", unrecorded=True)
    assert made.errors() == ["not_entitled"]


# -- whose connection it is -------------------------------------------------------------------


def test_a_token_is_worth_nothing_with_another_key() -> None:
    made = world()
    made.logon_as("ann", A, BOB)
    said = made.last()
    assert isinstance(said, m.Ack)
    made.keys[BOB] = B
    made.send(m.Subscribe("s", "open", "c"), BOB)
    assert made.errors() == ["auth_failed"], "the connection was logged on with another key"
    thief = World(access=rules(MIXED))
    thief.welcome()
    thief.logon_as("ann", B)
    assert thief.errors() == ["auth_failed"], "the key is bob's"


def test_a_key_that_is_taken_away_ends_its_connection_at_once() -> None:
    made = world()
    made.subscribe("open")
    made.hear(RulesChanged(parse(f'[principal.bob]\nkeys = ["{B}"]', "access.toml")))
    assert made.errors() == ["auth_failed"]
    made.publish("open", payloads=[payload(1)])
    made.persist()
    assert made.got() == []
    made.send(m.Subscribe("s", "open", "c"))
    assert made.errors() == ["auth_failed", "not_logged_on"]


def test_rights_that_are_taken_away_end_a_subscription_or_narrow_it() -> None:
    made = world()
    made.subscribe("open", "o")
    made.subscribe("half", "h")
    made.subscribe(".*", "all", regex=True)
    made.hear(RulesChanged(rules(grant("allow", READS, "half", "/n < 5"))))
    assert [(one.code, one.sid) for _, one in made.answers if isinstance(one, m.Error)] == [
        ("not_entitled", "o")
    ]
    made.publish("open", "half", payloads=[payload(1), payload(2)])
    made.persist()
    assert [len(made.got(sid)) for sid in ("o", "h", "all")] == [0, 1, 1]


def test_what_conflation_holds_is_looked_at_again() -> None:
    made = world(grant("allow", READS, "open half"))
    made.publish("half", payloads=[payload(7)])
    made.persist()
    made.subscribe("half", options=m.Options(conflation_s=100.0), credit=1 << 20)
    assert made.got() == []
    made.hear(RulesChanged(rules(MIXED)))
    made.wake_until(200_000)
    assert made.got() == []


def test_resume_points_do_not_name_what_may_not_be_seen() -> None:
    made = world()
    made.publish("shut", payloads=[payload(1)])
    made.persist()
    made.subscribe("open")
    (ack,) = made.acks("completed")
    assert ack.bookmark is None
    assert ack.vector is not None


def test_more_rights_come_into_force_at_once() -> None:
    made = world()
    made.subscribe(".*", regex=True)
    made.hear(RulesChanged(rules(grant("allow", READS, "*"))))
    made.publish("shut", payloads=[payload(9)])
    made.persist()
    assert [one.topic for one in made.got()] == ["shut"]


DEAR_FILTER = "/a LIKE '(bad'"  # whoever compiles it says bad_filter


@pytest.mark.parametrize("command", [
    m.Subscribe("s", "shut", filter=DEAR_FILTER),
    m.Subscribe("s", "shut", bookmark="0", options=m.Options(select="bad")),
    m.Subscribe("s", "(bad", regex=True),
    m.Ranges(topic="(bad", regex=True),
])  # fmt: skip
def test_nothing_is_compiled_for_who_may_not_have_it(command: m.ClientCommand) -> None:
    made = world(grant("deny", "*", "*"))
    made.send(command)
    assert made.last().code == "not_entitled"


def test_nothing_is_compiled_for_a_replacement_that_is_not_allowed() -> None:
    made = world()
    made.subscribe("open")
    made.send(m.Replace("s", topic="shut", filter=DEAR_FILTER))
    assert made.last().code == "not_entitled"


# -- budgets --------------------------------------------------------------------------------------


def two_of_ann(budget: Budget) -> World:
    made = World(access=rules(MIXED), budget=budget)
    made.welcome()
    made.logon_as("ann", A)
    made.logon_as("ann", A, BOB)
    return made


def test_the_connections_of_a_principal_share_its_budget_of_subscriptions() -> None:
    made = two_of_ann(Budget(subscriptions=2))
    made.subscribe("open", "a")
    made.subscribe("open", "b", BOB)
    made.subscribe("open", "c", BOB)
    assert made.last().code == "too_many"
    made.send(m.Unsubscribe("a"))
    made.subscribe("open", "d", BOB)
    assert made.errors() == ["too_many"]
    made.core.check()


def test_the_connections_of_a_principal_share_its_credit() -> None:
    made = two_of_ann(Budget(credit_bytes=3 << 20))
    made.subscribe("open", "a", credit=2 << 20)
    made.subscribe("open", "b", BOB, credit=2 << 20)
    made.subscribe("open", "c", BOB, credit=2 << 20)
    given = [ack.credit for ack in made.acks("processed") if ack.sid]
    assert given == [2 << 20, 1 << 20, CREDIT_MIN_BYTES]
    made.send(m.Logoff())
    made.send(m.Flow("b", 8 << 20), BOB)
    one = made.core.connections[BOB].subscriptions["b"]
    assert one.credit > 1 << 20, "what others gave back may be had"
    assert made.core.connections[BOB].use.credit <= 3 << 20


def test_look_ups_have_a_budget() -> None:
    made = two_of_ann(Budget(lookups=1_000))
    marks = ",".join(f"1|{n}|" for n in range(1, 601))
    waits = m.Options(wait_s=60)
    made.publish("open")
    made.persist()
    made.subscribe("open", "a", bookmark=marks.replace("1|1|,", ""), options=waits)
    made.send(m.Ranges("r", bookmark="0"), BOB)
    assert made.errors() == []
    made.send(m.Subscribe("b", "open", bookmark=marks, options=waits), BOB)
    assert made.last().code == "too_many"
    made.core.check()


LONG_FILTER = " OR ".join(f"/field{n} = {n}" for n in range(200))
SELECT = ",".join(f"+/f{n}" for n in range(400))
COMPILE = Budget(compile_ms=4)  # 40 ms saved up: a few texts of 1,000 characters and more
NUMBERS = count()  # no text is like one that is compiled already


def taken_until_too_many(made: World, command: Callable[[int], m.ClientCommand]) -> int:
    """How many commands are taken until compiling is refused."""
    before = len(made.errors())
    for number in range(100):
        made.send(command(next(NUMBERS)))
        if made.errors()[before:]:
            assert made.errors()[before:] == ["too_many"], made.last()
            assert "compile_ms_per_principal" in made.last().hint
            return number
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("command", [
    lambda n: m.Subscribe(f"f{n}", "open", filter=f"{LONG_FILTER} OR /n = {n}"),
    lambda n: m.Subscribe(f"f{n}", "open", options=m.Options(select=f"{SELECT},+/n{n}")),
    lambda n: m.Replace("old", filter=f"{LONG_FILTER} OR /n = {n}"),
    lambda n: m.Subscribe(f"f{n}", f"(open|{'x' * 900}{n})", regex=True),
    lambda n: m.Ranges(f"r{n}", f"(open|{'x' * 900}{n})", regex=True),
])  # fmt: skip
def test_compiling_has_a_budget(command: Callable[[int], m.ClientCommand]) -> None:
    made = two_of_ann(COMPILE)
    made.publish("open")
    made.persist()
    made.subscribe("open", "old")
    assert 1 <= taken_until_too_many(made, command) <= 3
    made.send(m.Subscribe("other", "open", filter="/n = 77"), BOB)
    assert made.last().code == "too_many", "it is that of the principal, not of the connection"
    errors = len(made.errors())
    made.subscribe("open", "plain", BOB)
    assert len(made.errors()) == errors, "what needs no compiling goes on"
    made.core.check()


def test_what_somebody_has_compiled_costs_nothing() -> None:
    made = two_of_ann(Budget(compile_ms=10))
    for n in range(50):
        made.send(m.Subscribe(f"f{n}", "open", filter=LONG_FILTER))
        made.send(m.Subscribe(f"p{n}", f"(open|{'x' * 1_000})", regex=True), BOB)
    assert made.errors() == []
    made.core.check()


def test_time_gives_back_what_compiling_took() -> None:
    made = two_of_ann(COMPILE)

    def command(n: int) -> m.ClientCommand:
        return m.Subscribe(f"f{n}", "open", filter=f"{LONG_FILTER} OR /n = {n}")

    first = taken_until_too_many(made, command)
    assert taken_until_too_many(made, command) == 0
    made.now_ms += 20_000
    assert taken_until_too_many(made, command) == first


def test_rights_that_change_in_the_middle_of_a_shared_scan_hold_for_the_rest_of_it() -> None:
    made = world()
    made.steps_max = 4
    for n in range(10):
        for topic in ("half", "open"):
            made.publish(topic, payloads=[payload(n)])
    made.persist()
    made.asleep = True
    made.subscribe("half", "first", credit=0)
    for number, topic in enumerate(("open", "half", "half")):
        made.subscribe(topic, f"s{number}", credit=1 << 40)
    made.pump(1)
    assert [read.key for read in made.reads] == [-1], "all of them share it"
    made.hear(RulesChanged(rules(grant("allow", READS, "half", "/n = 9"))))
    made.pump()
    assert made.errors() == ["not_entitled"]
    assert [len(made.got(f"s{number}")) for number in range(3)] == [2, 3, 3]
    for sid in ("s1", "s2"):
        assert [one.data for one in made.got(sid)] == [payload(n) for n in (0, 1, 9)]
    assert not [body for _, _, body in made.passed if payload(5) in body]
