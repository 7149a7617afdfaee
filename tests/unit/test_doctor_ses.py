"""The doctor's rules on what SES answers."""

from dataclasses import replace

import pytest

from streams.domain.diagnosis import Finding, Level
from streams.domain.diagnosis_ses import (
    Account,
    ConfigurationSet,
    Destination,
    Refusal,
    judge_account,
    judge_configuration_set,
    judge_destinations,
)
from streams.domain.sending_account import SendingAccount

TOPIC = "arn:aws:sns:eu-central-1:111122223333:events"
SENDING = SendingAccount(max_send_rate=14.0, sending_enabled=True, enforcement_status="HEALTHY")
ACCOUNT = Account(sending=SENDING, production=True, daily_quota=1000.0, sent_today=10.0)
EVENTS = (
    "SEND",
    "REJECT",
    "BOUNCE",
    "COMPLAINT",
    "DELIVERY",
    "DELIVERY_DELAY",
    "RENDERING_FAILURE",
)
DESTINATION = Destination(name="sns", enabled=True, topic=TOPIC, events=EVENTS)


def levels(findings: list[Finding]) -> dict[str, str]:
    return {f.id: str(f.level) for f in findings if f.level is not Level.OK}


@pytest.mark.parametrize(
    ("account", "found"),
    [
        (ACCOUNT, {}),
        (replace(ACCOUNT, daily_quota=-1.0), {}),
        (replace(ACCOUNT, production=False), {"ses.production": "warning"}),
        (replace(ACCOUNT, sent_today=800.0), {"ses.quota": "warning"}),
        (replace(ACCOUNT, sent_today=1000.0), {"ses.quota": "error"}),
        (
            replace(ACCOUNT, sending=replace(SENDING, sending_enabled=False)),
            {"ses.account": "error"},
        ),
        (
            replace(ACCOUNT, sending=replace(SENDING, enforcement_status="SHUTDOWN")),
            {"ses.account": "error"},
        ),
        (
            replace(ACCOUNT, sending=replace(SENDING, enforcement_status="PROBATION")),
            {"ses.account": "warning"},
        ),
        (Refusal(code="AccessDeniedException"), {"ses.account": "warning"}),
        (Refusal(code="UnrecognizedClientException"), {"ses.account": "error"}),
    ],
)
def test_an_account_that_may_not_send_is_told(
    account: Account | Refusal, found: dict[str, str]
) -> None:
    assert levels(judge_account(account)) == found


def test_a_throttled_call_leaves_the_verdict_open() -> None:
    [finding] = judge_account(Refusal(code="TooManyRequestsException"))
    assert finding.unseen


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (ConfigurationSet(sending_enabled=True), "ok"),
        (ConfigurationSet(sending_enabled=False), "error"),
        (Refusal(code="NotFoundException"), "error"),
        (Refusal(code="AccessDeniedException"), "warning"),
    ],
)
def test_a_configuration_set_has_to_exist_and_send(
    found: ConfigurationSet | Refusal, level: str
) -> None:
    assert judge_configuration_set("mailstreams", found).level == level


@pytest.mark.parametrize(
    ("found", "level"),
    [
        ([DESTINATION], "ok"),
        ([], "error"),
        (Refusal(code="NotFoundException"), "error"),
        (Refusal(code="AccessDeniedException"), "warning"),
        ([replace(DESTINATION, topic=None)], "error"),
        ([replace(DESTINATION, topic=f"{TOPIC}-other")], "error"),
        ([replace(DESTINATION, enabled=False)], "error"),
        ([replace(DESTINATION, enabled=False), replace(DESTINATION, name="other")], "ok"),
        ([replace(DESTINATION, events=("SEND", "BOUNCE"))], "error"),
        ([replace(DESTINATION, events=EVENTS[:-1])], "warning"),
        (
            [
                replace(DESTINATION, events=EVENTS[:3]),
                replace(DESTINATION, name="rest", events=EVENTS[3:]),
            ],
            "ok",
        ),
    ],
)
def test_every_event_has_to_reach_an_allowed_topic(
    found: list[Destination] | Refusal, level: str
) -> None:
    assert judge_destinations(found, allowed=[TOPIC]).level == level


def test_a_permission_that_is_missing_is_named() -> None:
    [finding] = judge_account(Refusal(code="AccessDeniedException"))
    assert finding.remedy == "allow ses:GetAccount to them"
