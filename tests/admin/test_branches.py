"""/transactions: what the queues process says, as JSON; what it is asked to decide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.queue_rows import SECOND_NS, Clock, FakeQueues
from zbroker.admin import requests
from zbroker.admin.branches import BranchReports
from zbroker.admin.process_link import CHANGE_MAX_MS
from zbroker.admin.requests import parse, parse_query
from zbroker.errors import ClientError
from zbroker.wire import branch_surveys as b
from zbroker.xids import Xid

X = Xid(7, "a:b", "broker")
ROW = b.SurveyedBranch(
    "shop", X, "prepared", "billing", 0xAB, True, 2, 3, ["orders"], 40 * SECOND_NS
)  # fmt: skip
TEXT = "7:a%3Ab:broker"
KEYS = {
    "principal": "shop", "xid": TEXT, "state": "prepared", "session": "billing",
    "instance": "00000000000000ab", "here": True, "messages": 2, "locked": 3,
    "queues": ["orders"], "prepared": "19700101T000040Z", "age_s": 60.0,
}  # fmt: skip


def reports(answer: Any) -> tuple[FakeQueues, BranchReports]:
    process = FakeQueues()
    process.say = lambda ask: answer
    return process, BranchReports(process.link, Clock())


def test_transactions_have_the_published_keys() -> None:
    process, answers = reports(b.BranchesSurveyed(0, [ROW], 3))
    wanted = parse_query(requests.TransactionsQuery, "principal=shop&xid=7:a%253Ab:broker&limit=1")
    assert answers.transactions(wanted) == {"left_out": 3, "transactions": [KEYS]}
    assert process.asked == [b.AskBranchRows(0, "shop", X, 1)]
    answers.transactions(requests.TransactionsQuery())
    assert process.asked[-1] == b.AskBranchRows(0, "", None, requests.ROWS_MAX)


@pytest.mark.parametrize("decision", ["commit", "rollback", "forget"])
def test_a_decision_is_a_change(decision: str) -> None:
    process, answers = reports(b.BranchChanged(0, 90, 2, 3, mixed=True))
    body = b'{"xid": "7:a%3Ab:broker", "principal": "shop", "dry_run": true}'
    kind: Any = requests.CommitRequest if decision == "commit" else requests.ForcedRequest
    assert getattr(answers, decision)(parse(kind, body)) == {
        "principal": "shop", "xid": TEXT, "decision": decision, "dry_run": True,
        "position": 90, "messages": 2, "locked": 3, "mixed": True,
    }  # fmt: skip
    assert process.asked == [b.ChangeBranch(0, "shop", X, decision, dry_run=True)]  # type: ignore[arg-type]
    assert process.waits == [CHANGE_MAX_MS]


def test_what_another_instance_prepared_is_never_committed_by_force() -> None:
    process, answers = reports(b.BranchChanged(0))
    with pytest.raises(ClientError) as refused:
        parse(requests.CommitRequest, b'{"xid": "7:a:b", "force": true}')
    assert refused.value.code == "bad_field"
    answers.rollback(parse(requests.ForcedRequest, b'{"xid": "7:a:b", "force": true}'))
    answers.forget(parse(requests.ForcedRequest, b'{"xid": "7:a:b", "force": true}'))
    assert [ask.force for ask in process.asked] == [True, True]


def test_the_instance_that_prepared_it_may_be_named() -> None:
    process, answers = reports(b.BranchChanged(0))
    body = b'{"xid": "7:a:b", "force": true, "instance": "00000000000000a1"}'
    answers.rollback(parse(requests.ForcedRequest, body))
    answers.forget(parse(requests.ForcedRequest, body))
    assert [ask.instance for ask in process.asked] == [0xA1, 0xA1]
    with pytest.raises(ClientError):
        parse(requests.ForcedRequest, b'{"xid": "7:a:b", "instance": "a1"}')


def test_a_refusal_of_the_process_is_an_error() -> None:
    _, answers = reports(b.BranchChanged(0, code="unknown_branch", reason="no"))
    with pytest.raises(ClientError) as refused:
        answers.commit(requests.CommitRequest("7:a:b"))
    assert refused.value.code == "unknown_branch"


@pytest.mark.parametrize("text", ["7", "a:b", "7:a:b:c"])
def test_a_name_that_none_can_have_is_refused(text: str) -> None:
    process, answers = reports(b.BranchChanged(0))
    with pytest.raises(ClientError, match="key `xid`") as refused:
        answers.commit(requests.CommitRequest(text))
    with pytest.raises(ClientError, match="key `xid`"):
        answers.transactions(requests.TransactionsQuery(xid=text))
    assert (refused.value.code, process.asked) == ("bad_field", [])


def test_a_process_that_is_silent_may_have_decided_all_the_same() -> None:
    process, answers = reports(None)
    process.silent = True
    with pytest.raises(ClientError, match="may be done all the same") as refused:
        answers.commit(requests.CommitRequest("7:a:b"))
    assert refused.value.code == "not_ready"
