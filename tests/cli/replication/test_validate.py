"""`zbroker-admin replication validate` reads configs of several instances before they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zbroker.access import keys
from zbroker.cli.admin_main import main

LISTENS = '[listen]\nreplication = "tcp://127.0.0.1:{port}"\n'
SENDS = '[[destination]]\nname = "{to}"\nto = ["tcp://{to}.example:9104"]\n'


def config(place: Path, name: str, *parts: str) -> str:
    file = place / f"{name}.toml"
    file.write_text("\n".join([f'[instance]\nname = "{name}"', *parts]))
    return str(file)


def listens(port: int = 9104) -> str:
    return LISTENS.format(port=port)


def sends(to: str, more: str = "") -> str:
    return SENDS.format(to=to) + more


def validate(*files: str) -> Result:
    return CliRunner().invoke(main, ["--json", "replication", "validate", *files])


def found(result: Result) -> list[tuple[str, str, str]]:
    rows = json.loads(result.stdout)["mismatches"]
    assert all(row["fix"] for row in rows)
    return [(row["level"], row["instance"], row["text"]) for row in rows]


def test_two_that_send_to_each_other_are_right(tmp_path: Path) -> None:
    a = config(tmp_path, "a", listens(), sends("b"))
    b = config(tmp_path, "b", listens(), sends("a"))
    result = validate(a, b)
    assert (found(result), result.exit_code) == ([], 0)
    shown = CliRunner().invoke(main, ["replication", "validate", a, b]).stdout
    assert shown == "2 configs: nothing is wrong between them\n"


@pytest.mark.parametrize(
    ("there", "level", "text"),
    [
        ([sends("a")], "error", "b does not listen for sources"),
        ([listens(9999), sends("a")], "warning", "b listens on port 9999, and `to` names 9104"),
        ([listens()], "warning", "b does not send its log back to a"),
        (
            [listens(), sends("a"), '[[record]]\ntopic = "t"\n'],
            "warning", "a and b record different topics",
        ),
    ],
)  # fmt: skip
def test_a_link_needs_both_ends(tmp_path: Path, there: list[str], level: str, text: str) -> None:
    a = config(tmp_path, "a", listens(), sends("b"))
    result = validate(a, config(tmp_path, "b", *there))
    assert [(one, instance) for one, instance, _ in found(result)] == [(level, "a")]
    assert text in found(result)[0][2]
    assert result.exit_code == (level == "error")


def test_a_quorum_has_to_pass_on_what_it_holds(tmp_path: Path) -> None:
    """One of two destinations has a message when it is acknowledged: it must send it to the other
    if the source is lost."""
    sync = 'mode = "sync"\n'
    a = config(
        tmp_path, "a", listens(), sends("b", sync), sends("c", sync), "[replication]",
        "sync_needed = 1",
    )  # fmt: skip
    b = config(tmp_path, "b", listens(), sends("a"), sends("c"))
    c = config(tmp_path, "c", listens(), sends("a"))
    (level, instance, text), (other, *_) = found(validate(a, b, c))
    assert (level, instance, other) == ("error", "a", "warning")
    assert "c does not send to b" in text
    c = config(tmp_path, "c", listens(), sends("a"), sends("b"))
    assert found(validate(a, b, c)) == []


def test_two_ways_have_the_same_topics(tmp_path: Path) -> None:
    b = config(tmp_path, "b", listens(), sends("a"))
    a = config(tmp_path, "a", listens(), sends("b", 'topics = ["orders"]\n'))
    [(level, instance, text)] = found(validate(a, b))
    assert (level, instance, text) == ("warning", "a", "a sends orders to b, and gets all topics")
    same = config(tmp_path, "a", listens(), sends("b", 'topics = ["*", "orders"]\n'))
    assert found(validate(same, b)) == []


def test_two_ways_have_the_same_filter(tmp_path: Path) -> None:
    b = config(tmp_path, "b", listens(), sends("a", "filter = '/n > 1'\n"))
    a = config(tmp_path, "a", listens(), sends("b", "filter = '/n > 2'\n"))
    [(level, _, text)] = found(validate(a, b))
    assert level == "warning"
    assert text == "a sends all topics where /n > 2 to b, and gets all topics where /n > 1"
    same = config(tmp_path, "a", listens(), sends("b", "filter = ' /n  >  1'\n"))
    assert found(validate(same, b)) == []


def test_a_filter_reads_payloads_by_the_same_types(tmp_path: Path) -> None:
    """Else two sources would send other messages of one origin."""
    large, record = "filter = '/n > 1'\n", '[[record]]\ntopic = "t"\ntype = "{}"\n'
    b = config(tmp_path, "b", listens(), sends("a", large), record.format("json"))
    a = config(tmp_path, "a", listens(), sends("b", large), record.format("msgpack"))
    assert "a sends all topics where /n > 1 to b" in found(validate(a, b))[1][2]
    same = config(tmp_path, "a", listens(), sends("b", large), record.format("json"))
    assert found(validate(same, b)) == []
    header = large.replace("/n > 1", 'HEADER("book") IS NULL')
    b = config(tmp_path, "b", listens(), sends("a", header), record.format("json"))
    a = config(tmp_path, "a", listens(), sends("b", header), record.format("msgpack"))
    (only,) = found(validate(a, b))
    assert "record different topics" in only[2], "it reads no payload"


def test_an_audit_copy_has_its_topics_from_one_source_or_the_same_of_all(tmp_path: Path) -> None:
    topics = 'topics = ["orders"]\n'
    audit = config(tmp_path, "audit", listens())
    a = config(tmp_path, "a", listens(), sends("b"), sends("audit", topics))
    b = config(tmp_path, "b", listens(), sends("a"), sends("audit", topics))
    texts = [text for _, _, text in found(validate(a, b, audit))]
    assert texts == [f"audit does not send its log back to {one}" for one in "ab"]
    b = config(tmp_path, "b", listens(), sends("a"), sends("audit"))
    *_, last = found(validate(a, b, audit))
    assert "audit gets different topics from its sources (a: orders; b: all topics)" in last[2]


def test_a_file_that_is_missing_or_twice_is_said(tmp_path: Path) -> None:
    a = config(tmp_path, "a", listens(), sends("b"))
    [(level, _, text)] = found(validate(a))
    assert (level, "b is not among these files" in text) == ("warning", True)
    texts = [text for _, _, text in found(validate(a, a))]
    assert "have the same `instance.name`" in texts[0]


def test_a_config_that_is_wrong_by_itself_ends_it(tmp_path: Path) -> None:
    bad = config(tmp_path, "a", "[replication]\nsync_needed = 3\n")
    result = validate(bad)
    assert result.exit_code == 78
    assert "there are 0 synchronous destinations" in result.output


def test_keys_and_rights_are_compared(tmp_path: Path) -> None:
    """Wrong keys, no right, and security at one end only."""
    pairs = {name: keys.make(tmp_path / name) for name in "ab"}

    def secured(name: str, to: str, key: str, role: str, more: str = "") -> str:
        other = pairs[to].public
        (tmp_path / f"{name}.access").write_text(
            f'[principal.{to}]\nkeys = ["{other}"]\nroles = ["{role}"]\n'
            '[[role.copies.allow]]\nactions = ["replicate"]\ntopics = ["*"]\n'
            '[[role.some.allow]]\nactions = ["replicate"]\ntopics = ["orders*"]\n'
            '[[role.denied.allow]]\nactions = ["replicate"]\ntopics = ["*"]\n'
            '[[role.denied.deny]]\nactions = ["replicate"]\ntopics = ["trades"]\n'
            '[[role.reader.allow]]\nactions = ["subscribe"]\n'
        )
        return config(
            tmp_path, name, listens(), sends(to, f'server_key = "{key}"\n{more}'), "[security]",
            f'key = "{tmp_path / name}.key_secret"', f'access = "{tmp_path / name}.access"',
        )  # fmt: skip

    a = secured("a", "b", pairs["b"].public, "copies")
    assert found(validate(a, secured("b", "a", pairs["a"].public, "copies"))) == []
    wrong = secured("b", "a", pairs["b"].public, "reader")
    texts = {(instance, text) for _, instance, text in found(validate(a, wrong))}
    assert texts == {
        ("a", "b permits nothing to a: no role of its key has `replicate`"),
        ("b", "`server_key` of the destination a is not the public key of a"),
    }
    narrow = secured("b", "a", pairs["a"].public, "some")
    [(level, _, text)] = found(validate(a, narrow))
    assert (level, "it lacks *" in text) == ("error", True)
    orders = 'topics = ["orders", "orders.*"]\n'
    fits = secured("a", "b", pairs["b"].public, "copies", orders)
    assert "fewer topics" not in str(found(validate(fits, narrow)))
    a = secured("a", "b", pairs["b"].public, "copies")
    [(level, _, text)] = found(validate(a, secured("b", "a", pairs["a"].public, "denied")))
    assert (level, "refuses the link" in text) == ("error", True)
    without = config(tmp_path, "b", listens(), sends("a"))
    assert all("security is off at b only" in text for _, _, text in found(validate(a, without)))
    (tmp_path / "a.key_secret").unlink()
    result = validate(a, secured("b", "a", pairs["b"].public, "copies"))
    assert "what needs it is not checked" in result.stderr
