"""From what SES answered to what is written, paused and tried again."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from streams.domain.attempts import (
    AttemptId,
    OutcomeKind,
    Pause,
    PauseScope,
    new_attempt_id,
)
from streams.domain.outcomes import (
    delay_of,
    outcome_of_call,
    pause_of,
    released,
    unsendable,
)
from streams.domain.ses_answers import Answer
from streams.domain.ses_errors import Meaning, meaning
from tests.unit.test_sender_mail_content import EMAIL

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def meant(seen: Answer) -> Meaning:
    return meaning(seen, sender=EMAIL.sender, addresses=EMAIL.addresses)


def test_accepted_outcome_has_the_provider_s_id_and_no_reason() -> None:
    seen = Answer(status=200, message_id="m-1")
    email = replace(EMAIL, attempt=3)
    outcome = outcome_of_call(email, seen, meant(seen), started=NOW, finished=NOW, delay_s=0.0)
    assert (outcome.kind, outcome.provider_message_id) == (OutcomeKind.ACCEPTED, "m-1")
    assert (outcome.number, outcome.error_class, outcome.reason) == (3, None, None)


def test_refused_outcome_says_class_code_status_and_reason() -> None:
    seen = Answer(status=400, code="BadRequestException", message="bad o'neil@example.com")
    outcome = outcome_of_call(EMAIL, seen, meant(seen), started=NOW, finished=NOW, delay_s=0.0)
    assert (outcome.error_class, outcome.code, outcome.http_status) == (
        "bad-request",
        "BadRequestException",
        400,
    )
    assert outcome.reason is not None
    assert "o'neil" not in outcome.reason


@pytest.mark.parametrize(
    ("seen", "delay"),
    [
        (Answer(status=429, code="Throttling"), 7.0),
        (Answer(status=400, code="SendingPausedException"), 60.0),
        (Answer(status=400, code="LimitExceededException"), 60.0),
    ],
)
def test_row_is_looked_at_again_in_time(seen: Answer, delay: float) -> None:
    assert delay_of(meant(seen), waits_s=7.0) == delay


def test_account_stop_pauses_the_account_and_an_unverified_sender_itself() -> None:
    stop = meant(Answer(status=400, code="LimitExceededException", message="quota"))
    assert pause_of(EMAIL, stop) == Pause(
        scope=PauseScope.ACCOUNT, value="*", reason=stop.reason, seconds=300.0
    )
    text = f"Email address is not verified: {EMAIL.sender}"
    own = meant(Answer(status=400, code="MessageRejected", message=text))
    found = pause_of(replace(EMAIL, sender="Sender@Example.com"), own)
    assert found is not None
    assert (found.scope, found.value) == (PauseScope.SENDER, "sender@example.com")
    assert pause_of(EMAIL, meant(Answer(status=500))) is None


def test_released_and_unsendable_never_called() -> None:
    for outcome in (
        released(EMAIL, finished=NOW),
        unsendable(EMAIL, error_class="template", reason="for o'neil@example.com", finished=NOW),
    ):
        assert outcome.started is None
        assert "@" not in (outcome.reason or "")


def test_attempt_id_is_a_uuid_of_version_7_that_orders_by_time() -> None:
    first = new_attempt_id(1_700_000_000_000, b"\xff" * 10)
    second = new_attempt_id(1_700_000_000_001, b"\x00" * 10)
    assert (first.version, second.version) == (7, 7)
    assert {first.variant, second.variant} == {"specified in RFC 4122"}
    assert first < second
    assert AttemptId(UUID(int=first.int >> 80)).int == 1_700_000_000_000
