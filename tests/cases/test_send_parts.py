"""The parts of the runner of ses_send without servers: what the fake answers, and how requests are read."""

import base64
import copy
from typing import Any

import pytest

from tests.cases.loading import Group
from tests.cases.send_account import account
from tests.cases.send_queue import SLOTS, weight
from tests.cases.send_requests import check_request
from tests.cases.send_run import recipients
from tests.cases.ses_script import Script

ROW = {"recipient": "user1@example.com", "sender": "sender@example.com", "subject": "Hello"}
ACCEPTED = {"status": 200, "body": {"MessageId": "<provider-message-id>"}}


# The script of the fake ---------------------------------------------------------------------------------------------------


def request(*to: str) -> dict[str, Any]:
    return {"Destination": {"ToAddresses": list(to)}}


def test_answers_come_in_order_and_again_only_in_a_cycle() -> None:
    answers = [ACCEPTED, {"status": 500, "body": ""}]
    script = Script(stub=answers)
    assert [script.take({}, port=0, wrong=None).status for _ in range(3)] == [200, 500, 500]
    assert script.beyond == 1
    cycle = Script(stub=answers, cycle=True)
    assert [cycle.take({}, port=0, wrong=None).status for _ in range(3)] == [200, 500, 200]
    assert cycle.beyond == 0


def test_a_call_above_the_enforced_rate_takes_no_answer_of_the_list() -> None:
    script = Script(stub=[ACCEPTED] * 3, enforced=2)
    taken = [
        script.take(request(*to), port=0, wrong=None).status for to in (["a"], ["b", "c"], ["d"])
    ]
    assert taken == [200, 429, 200]
    assert len(script.accepted) == 2


@pytest.mark.parametrize(
    ("answer", "is_accepted"),
    [
        (ACCEPTED, True),
        ({"status": 200, "body": {}}, False),
        ({"status": 200, "body": "OK", "accepted": True}, True),
        ({"status": 500, "body": {}, "accepted": True}, True),
        ({"status": 400, "body": {}}, False),
        ({"fault": "no-answer", "accepted": True}, True),
        ({"fault": "no-answer", "accepted": False}, False),
    ],
)
def test_what_is_accepted_has_an_id_that_deliveries_name(
    answer: dict[str, Any], is_accepted: bool
) -> None:
    script = Script(stub=[answer])
    taken = script.take(request("a"), port=0, wrong=None)
    assert (taken.accepted_at is not None) is is_accepted
    assert (script.last_message_id is not None) is is_accepted


def test_faults_of_connecting_are_left_to_connections() -> None:
    refused = {"fault": "refuse-connection", "accepted": False}
    script = Script(stub=[refused, ACCEPTED])
    assert script.closes_connections
    assert script.connection_fault() is not None
    assert script.connection_fault() is None
    assert script.take({}, port=0, wrong=None).status == 200


def test_the_account_is_as_the_case_says_from_the_first_call_on() -> None:
    variant = {"account": "paused"}
    before = Script(stub=[ACCEPTED])
    assert account(variant, before)["SendingEnabled"]
    before.take({}, port=0, wrong=None)
    assert not account(variant, before)["SendingEnabled"]
    assert not account(variant, Script(stub=[]))["SendingEnabled"], "no call may come"
    assert account({"account": "shutdown"}, before)["EnforcementStatus"] == "SHUTDOWN"
    assert not account({"account": "sandbox"}, before)["ProductionAccessEnabled"]
    quota = account({"account": "quota-used"}, before)["SendQuota"]
    assert quota["SentLast24Hours"] == quota["Max24HourSend"]


def test_each_row_of_several_has_a_recipient_of_its_own() -> None:
    made = recipients("user1@example.com", 3)
    assert made[0] == "user1@example.com"
    assert len(set(made)) == 3
    assert all(address.endswith("@example.com") for address in made)


def test_what_is_timed_runs_alone() -> None:
    timed = {"row": ROW, "limits": {"enforced": 7}, "expect": {}}
    assert weight(Group(file="", case="", variants=[timed])) == SLOTS
    several = {"row": ROW, "senders": 2, "expect": {}}
    assert 1 < weight(Group(file="", case="", variants=[several])) < SLOTS
    assert weight(Group(file="", case="", variants=[{"row": ROW, "expect": {}}])) == 1


# Requests -----------------------------------------------------------------------------------------------------------------

SIMPLE: dict[str, Any] = {
    "FromEmailAddress": "sender@example.com",
    "Destination": {"ToAddresses": ["User1@Example.com"], "BccAddresses": ["b@example.com"]},
    "ReplyToAddresses": ["reply@example.com"],
    "Content": {
        "Simple": {
            "Subject": {"Data": "Grüße", "Charset": "UTF-8"},
            "Headers": [{"Name": "X-Ref", "Value": "1"}],
        }
    },
    "EmailTags": [{"Name": "ses:feedback-id-a", "Value": "x_1"}],
}
WANTED: dict[str, Any] = {
    "to": ["user1@example.com", "b@example.com"],
    "subject": "Grüße",
    "one_line": True,
    "tags_valid": True,
}


def changed(*path: Any, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(SIMPLE)
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("request_", "key"),
    [
        (changed("Destination", "CcAddresses", value=["c@example.com"]), "to"),
        (changed("Destination", "BccAddresses", value=[]), "to"),
        (changed("Content", "Simple", "Headers", 0, value={"Name": "Bcc", "Value": "v@b.c"}), "to"),
        (changed("Content", "Simple", "Subject", "Charset", value="US-ASCII"), "subject"),
        (changed("Content", "Simple", "Subject", "Data", value="Grüße "), "subject"),
        (changed("FromEmailAddress", value="a\r\nBcc: v <sender@example.com>"), "one_line"),
        (changed("ReplyToAddresses", value=["a@example.com\nBcc: v"]), "one_line"),
        (changed("Content", "Simple", "Headers", 0, "Value", value="1\rBcc: v"), "one_line"),
        (changed("Content", "Simple", "Headers", 0, "Name", value="X\n"), "one_line"),
        (changed("EmailTags", 0, "Value", value="a:b"), "tags_valid"),
        (changed("EmailTags", 0, "Value", value=""), "tags_valid"),
        (changed("EmailTags", 0, "Value", value="a" * 257), "tags_valid"),
        (changed("EmailTags", 0, "Name", value="other:x"), "tags_valid"),
    ],
)
def test_a_request_that_is_not_as_wanted_is_red(request_: dict[str, Any], key: str) -> None:
    assert check_request(WANTED, [SIMPLE, SIMPLE]) == []
    assert [d.key for d in check_request(WANTED, [SIMPLE, request_])] == [f"request: {key}"]


def raw(text: str) -> dict[str, Any]:
    return {"Content": {"Raw": {"Data": base64.b64encode(text.encode()).decode()}}}


def test_raw_content_is_read_by_its_mime() -> None:
    head = "From: sender@example.com\r\nTo: A <user1@example.com>\r\n"
    good = head + "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nHi\r\n"
    wanted = {"to": ["user1@example.com"], "subject": "Grüße", "one_line": True}
    assert check_request(wanted, [raw(good)]) == []
    hidden = head + "Subject: Hi\r\nBcc: v@example.net\r\n\r\nHi\r\n"
    assert [d.key for d in check_request({"to": ["user1@example.com"]}, [raw(hidden)])] == [
        "request: to"
    ]
    for long in (head + "Subject: " + "a" * 999 + "\r\n\r\nHi", head + "\r\n" + "a" * 999):
        assert [d.key for d in check_request({}, [raw(long)])] == ["request: MIME"]
