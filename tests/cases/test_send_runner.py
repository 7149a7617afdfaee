"""A wrong expectation turns a ses_send case red, whichever key it stands under; so does the breach of what always holds."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from streams.domain.errors import BadMessage
from tests.cases import send_always, send_checks, send_runner
from tests.cases.conftest import RunSend
from tests.cases.loading import Group
from tests.cases.send_found import Found, most_in_window
from tests.cases.send_queue import SendQueue
from tests.cases.send_state import Attempt, OutboxRow
from tests.cases.ses_script import Call, Script

ROW = {"recipient": "user1@example.com", "sender": "sender@example.com", "subject": "Hello"}
ACCEPTED = {"status": 200, "body": {"MessageId": "<provider-message-id>"}}
BOUNCE: dict[str, Any] = {
    "eventType": "Bounce",
    "mail": {
        "timestamp": "<now>",
        "messageId": "<provider-message-id>",
        "source": "sender@example.com",
        "sendingAccountId": "111122223333",
        "destination": ["user1@example.com"],
        "tags": {"ses:configuration-set": ["mailstreams"], "attempt": ["<attempt-2>"]},
    },
    "bounce": {
        "bounceType": "Permanent",
        "bounceSubType": "General",
        "bouncedRecipients": [{"emailAddress": "user1@example.com", "status": "5.1.1"}],
        "timestamp": "<now>",
        "feedbackId": "0107010000012631-ed6fa0d2-32fd-5d65-814a-320477333e34-000000",
    },
}
RIGHT: dict[str, Any] = {
    "calls": 2,
    "outcomes": [["retry"], ["unknown"]],
    "row_state": ["ambiguous"],
    "attempts_charged": 2,
    "pauses": [None],
    "retry_after_s": [0.4, 2],
    "suppressed": ["user1@example.com"],
    "row_state_after": ["submitted"],
    "events": ["bounced"],
    "request": {"to": ["user1@example.com"], "subject": "Hello"},
    "windows": [{"seconds": 1, "max": 1}],
    "throttled_calls": 0,
}
WRONG: dict[str, Any] = {
    "calls": 1,
    "outcomes": [["throttled"], ["accepted"]],
    "row_state": ["pending"],
    "attempts_charged": 0,
    "pauses": ["account"],
    "retry_after_s": [60, 90],
    "suppressed": ["user2@example.com"],
    "row_state_after": ["ambiguous"],
    "events": ["expired"],
    "request": {"to": ["user2@example.com"], "subject": "hello"},
    "windows": [{"seconds": 1, "max": 0}],
    "throttled_calls": 1,
}
KEYS = [
    "calls",
    "outcomes: 1",
    "outcomes: 2",
    "row_state",
    "attempts_charged",
    "pauses",
    "retry_after_s",
    "suppressed",
    "row_state_after",
    "events",
    "request: to",
    "request: subject",
    "windows: 1 s",
    "throttled_calls",
]


def group(expect: dict[str, Any], **changes: Any) -> Group:
    variant = {
        "name": "one",
        "row": ROW | {"text": "Hi"},
        "observe_s": 30,
        "stub": [
            {"fault": "refuse-connection", "accepted": False},
            {"fault": "reset-after-write", "accepted": True},
        ],
        "deliveries": [{"ses": BOUNCE}],
        "expect": expect,
    }
    return Group(file="Z01.json", case="Z01", variants=[variant | changes])


@pytest.mark.servers
def test_a_wrong_expectation_of_ses_send_is_red(
    run_send: RunSend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_send(group(RIGHT)) == []
    monkeypatch.setattr(send_runner, "TOLD_WITHIN_S", 0.2)
    [report] = run_send(group(WRONG))
    assert report.startswith("Z01.json: variant 'one'")
    found = [line.split(": expected")[0].strip() for line in report.splitlines()[1:]]
    named = [key for key in found if key in KEYS]
    assert sorted(named) == sorted(KEYS), report
    assert len(report.splitlines()) == 1 + 2 * len(KEYS), report


@pytest.mark.servers
def test_a_call_beyond_the_list_is_red(run_send: RunSend) -> None:
    throttled = {"status": 429, "headers": {"x-amzn-ErrorType": "Throttling"}, "body": {}}
    expect = RIGHT | {"calls": [1, 9], "outcomes": None, "row_state": None, "suppressed": []}
    expect |= {"attempts_charged": None, "retry_after_s": None, "throttled_calls": None}
    del expect["row_state_after"], expect["events"], expect["request"], expect["windows"]
    changed = group(expect, stub=[throttled])
    del changed.variants[0]["deliveries"]  # type: ignore[attr-defined]
    [report] = run_send(changed)
    assert "  stub: expected" in report
    assert report.count("expected") == 1, report


async def test_each_group_gets_its_own_result_also_where_another_one_stood_in_memory() -> None:
    async def name(group: Group) -> list[str]:
        return [group.case]

    queue = SendQueue(name, [])
    for number in range(20):
        asked = Group(file="Z.json", case=f"Z{number}", variants=[{"expect": {}}])
        assert await queue.result(asked) == [f"Z{number}"]
        del asked


# Without servers --------------------------------------------------------------------------------------------------------


def call(
    *, to: str = "user1@example.com", at: float = 1.0, ended: float | None = 2.0, **fields: Any
) -> Call:
    tags = [{"Name": "attempt", "Value": fields.pop("attempt", "a1")}]
    request = {"Destination": {"ToAddresses": [to]}, "EmailTags": tags}
    return Call(answer=ACCEPTED, arrived=at, ended=ended, request=request, **fields)


def row(state: str = "submitted", *, attempts: int = 1, reason: str | None = None) -> OutboxRow:
    return OutboxRow(
        id=uuid4(), recipient="user1@example.com", state=state, attempts=attempts, reason=reason
    )


def attempt(name: str = "a1", outcome: str = "accepted", *, of: UUID | None = None) -> Attempt:
    now = datetime.now(UTC)
    return Attempt(
        id=name,
        outbox_id=of or uuid4(),
        outcome=outcome,
        error_class=None,
        started=now,
        finished=now,
    )


def found(**fields: Any) -> Found:
    given: dict[str, Any] = {
        "rows": [row()],
        "attempts": [attempt()],
        "calls": [call()],
        "pauses": set(),
        "leases": {},
        "tries": [],
        "refused": None,
        "dead_letters": {},
    }
    return Found(**given | fields)


UNCHECKED: dict[str, Any] = {
    "calls": None,
    "outcomes": None,
    "row_states": None,
    "attempts_charged": None,
    "pauses": None,
    "retry_after_s": None,
    "suppressed": None,
}


def keys(expect: dict[str, Any], seen: Found, script: Script | None = None) -> list[str]:
    script = script or Script(stub=[])
    script.calls = list(seen.calls)
    variant = {"expect": UNCHECKED | expect}
    return [d.key for d in send_checks.observed(variant, seen, script)]


def test_states_of_many_rows_are_counted_and_those_not_named_are_zero() -> None:
    seen = found(rows=[row(), row(), row("ambiguous")])
    assert keys({"row_states": {"submitted": 2, "ambiguous": [0, 3]}}, seen) == []
    assert keys({"row_states": {"submitted": 2}}, seen) == ["row_states"]
    assert keys({"row_states": {"submitted": 3, "ambiguous": 1}}, seen) == ["row_states"]


def test_a_refused_insert_is_a_state() -> None:
    seen = found(rows=[], attempts=[], calls=[], refused=BadMessage("the address is wrong"))
    assert keys({"row_states": {"refused": 1}}, seen) == []
    assert keys({"row_states": {}}, seen) == ["row_states"]
    assert send_checks.observed(
        {"expect": UNCHECKED | {"row_state": ["submitted"]}}, seen, Script(stub=[])
    )


def test_the_call_that_succeeded_or_is_under_way_is_not_charged() -> None:
    for state, attempts, charged in (("submitted", 3, 2), ("sending", 1, 0), ("pending", 1, 1)):
        seen = found(rows=[row(state, attempts=attempts)])
        assert keys({"attempts_charged": charged}, seen) == []
        assert keys({"attempts_charged": charged + 1}, seen) == ["attempts_charged"]


def test_the_last_entry_of_outcomes_holds_for_all_further_calls() -> None:
    calls = [call(attempt=f"a{n}") for n in range(4)]
    outcomes = ["retry", "throttled", "throttled", "accepted"]
    attempts = [attempt(f"a{n}", outcome) for n, outcome in enumerate(outcomes)]
    seen = found(calls=calls, attempts=attempts)
    assert keys({"outcomes": [["retry"], ["throttled", "accepted"]]}, seen) == []
    assert keys({"outcomes": [["retry"], ["throttled"]]}, seen) == ["outcomes: 4"]
    assert keys({"outcomes": [None, ["throttled", "accepted"]]}, seen) == []
    assert keys({"outcomes": [["accepted"]]}, found(attempts=[])) == ["outcomes: 1"]
    assert keys({"outcomes": [["accepted"]]}, found(attempts=[], calls=[call(ended=None)])) == []


def test_calls_that_told_nobody_their_attempt_are_matched_in_time() -> None:
    refused = Call(answer={"fault": "refuse-connection"}, arrived=0.0, ended=0.0)
    seen = found(calls=[refused, call()], attempts=[attempt("a0", "retry"), attempt("a1")])
    assert [a and a.id for _, a in seen.paired()] == ["a0", "a1"]
    assert seen.attempt_ids() == ["a0", "a1"]


def test_every_pause_that_was_seen_has_to_be_allowed() -> None:
    assert keys({"pauses": ["account", "stream"]}, found(pauses={"account"})) == []
    assert keys({"pauses": ["account"]}, found(pauses={"account", "lane"})) == ["pauses"]
    assert keys({"pauses": ["account"]}, found()) == ["pauses"]
    assert keys({"pauses": [None]}, found()) == []


def test_retry_after_counts_from_the_end_of_the_first_call_that_failed() -> None:
    failed = attempt("a1", "retry")
    before, after = (failed.finished + timedelta(seconds=s) for s in (-1, 2))
    seen = found(attempts=[failed], tries=[before, after])
    assert keys({"retry_after_s": [1.5, 2.5]}, seen) == []
    assert keys({"retry_after_s": [0, 1]}, seen) == ["retry_after_s"]
    assert keys({"retry_after_s": [0, 9]}, dataclasses.replace(seen, tries=[before])) == [
        "retry_after_s"
    ]


def test_windows_hold_what_was_accepted_in_any_of_them() -> None:
    accepted = [(0.0, 1), (0.5, 2), (0.99, 1), (1.0, 1), (1.4, 1)]
    assert most_in_window(accepted, 1.0) == 5
    assert most_in_window(accepted, 0.4) == 2
    assert most_in_window([], 1.0) == 0


def test_throttled_calls_are_counted_by_their_answers() -> None:
    seen = found(calls=[call(status=429), call(status=200)])
    assert keys({"throttled_calls": 1}, seen) == []
    assert keys({"throttled_calls": 0}, seen) == ["throttled_calls"]


# Always -------------------------------------------------------------------------------------------------------------------


def test_a_row_accepted_twice_or_called_twice_at_a_time_is_red() -> None:
    def told(*calls: Call) -> list[str]:
        script = Script(stub=[])
        script.calls = list(calls)
        return [d.key for d in send_always.calls(found(calls=calls), script)]

    assert told(call(accepted_at=1.0), call(to="b@example.com", accepted_at=1.0)) == []
    assert told(call(accepted_at=1.0), call(at=3.0, ended=4.0, accepted_at=3.0)) == ["accepted"]
    assert told(call(), call(at=1.5)) == ["at a time"]
    assert told(call(ended=None), call(at=9.0)) == ["at a time"]


def test_a_call_that_outlives_its_lease_is_red() -> None:
    late = call(ended=9.0)
    assert send_always.leases(found(calls=[late], leases={"a1": 10.0})) == []
    assert send_always.leases(found(calls=[late], leases={"a1": 5.0}))


@pytest.mark.parametrize("reason", [None, "", "failed", "user1@example.com is not what SES takes"])
def test_a_failure_that_does_not_say_what_to_change_is_red(reason: str | None) -> None:
    variant = {"row": ROW}
    good = row("failed", reason="the text has too many bytes: shorten it")
    letters = {good.id: str(good.reason)}
    assert send_always.reasons(variant, found(rows=[good], dead_letters=letters)) == []
    assert send_always.reasons(variant, found(rows=[good])), "no dead letter"
    bad = dataclasses.replace(good, reason=reason)
    assert send_always.reasons(variant, found(rows=[bad], dead_letters=letters))
    refused = found(rows=[], refused=BadMessage(reason or ""))
    assert send_always.reasons(variant, refused)


def test_a_dead_stage_another_request_a_traceback_and_an_address_in_a_log_are_red() -> None:
    variant = {"row": ROW}
    assert send_always.survival([]) == []
    assert send_always.survival(["sender"])
    assert send_always.network([], []) == []
    assert send_always.network(["evil.example:443"], [])
    assert send_always.network([], ["GET evil.example/"])
    assert send_always.logs(variant, ['{"message": "sent"}'], ["{}"]) == []
    for lines, told in (
        (['{"exception": "x"}'], []),
        (["Traceback (most recent call last):"], []),
        (['{"message": "to USER1@example.com"}'], []),
        ([], ['{"to": "user1@example.com"}']),
        ([], ["x" * 1_000_000]),
    ):
        assert send_always.logs(variant, lines, told)
