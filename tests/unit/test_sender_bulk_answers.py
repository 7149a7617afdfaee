"""Every result of an entry of SendBulkEmail, judged by the table of SendEmail."""

import json
from typing import Any

import botocore.session
import pytest

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.bulk_answers import CODES, SUCCESS, entry_answers
from streams.domain.ses_answers import Answer, Fault, FaultKind, read_answer
from streams.domain.ses_errors import Meaning, meaning

K = OutcomeKind
SENDER, RECIPIENT = "sender@example.com", "user1@example.com"
MEANINGS = {
    "MESSAGE_REJECTED": ("message-rejected", K.PERMANENT, None),
    "MAIL_FROM_DOMAIN_NOT_VERIFIED": ("mail-from-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    "CONFIGURATION_SET_NOT_FOUND": (
        "configuration-set-missing",
        K.MISCONFIGURED,
        PauseScope.ACCOUNT,
    ),
    "CONFIGURATION_SET_DOES_NOT_EXIST": (
        "configuration-set-missing",
        K.MISCONFIGURED,
        PauseScope.ACCOUNT,
    ),
    "TEMPLATE_NOT_FOUND": ("not-found", K.MISCONFIGURED, PauseScope.SENDER),
    "TEMPLATE_DOES_NOT_EXIST": ("not-found", K.MISCONFIGURED, PauseScope.SENDER),
    "ACCOUNT_SUSPENDED": ("account-suspended", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    "ACCOUNT_THROTTLED": ("rate-exceeded", K.THROTTLED, None),
    "ACCOUNT_DAILY_QUOTA_EXCEEDED": ("daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    "INVALID_SENDING_POOL_NAME": ("not-found", K.MISCONFIGURED, PauseScope.SENDER),
    "ACCOUNT_SENDING_PAUSED": ("sending-paused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    "CONFIGURATION_SET_SENDING_PAUSED": (
        "configuration-set-paused",
        K.MISCONFIGURED,
        PauseScope.ACCOUNT,
    ),
    "INVALID_PARAMETER": ("bad-request", K.PERMANENT, None),
    "INVALID_PARAMETER_VALUE": ("bad-request", K.PERMANENT, None),
    "TRANSIENT_FAILURE": ("refused-for-now", K.RETRY, None),
    "FAILED": ("refused-for-now", K.RETRY, None),
}


def whole(*results: Any, status: int = 200) -> Answer:
    text = json.dumps({"BulkEmailEntryResults": list(results)}).encode()
    return read_answer(status, {"x-amzn-RequestId": "r-1"}, text)


def meanings(*results: Any) -> list[Meaning]:
    answers = entry_answers(whole(*results), len(results))
    assert answers is not None
    return [meaning(answer, sender=SENDER, addresses=(RECIPIENT,)) for answer in answers]


def kinds(*results: Any) -> list[OutcomeKind]:
    return [meant.row.kind for meant in meanings(*results)]


def test_every_status_of_the_service_model_is_known() -> None:
    """Fails when a newer botocore knows one that we lack."""
    shape: Any = botocore.session.Session().get_service_model("sesv2").shape_for("BulkEmailStatus")
    assert len(shape.enum) >= 14
    assert set(shape.enum) <= {SUCCESS, *CODES}
    assert set(CODES) == set(MEANINGS)


@pytest.mark.parametrize("status", MEANINGS)
def test_status_means_what_the_table_says(status: str) -> None:
    [meant] = meanings({"Status": status, "Error": f"It says so to {RECIPIENT}."})
    assert (meant.row.name, meant.row.kind, meant.row.pause) == MEANINGS[status]
    assert (meant.code, meant.http_status) == (status, 200)
    assert meant.reason.endswith(f"(SES said of this entry {status}: It says so to <address>.)")


def test_success_with_a_message_id_is_accepted() -> None:
    answers = entry_answers(whole({"Status": "SUCCESS", "MessageId": "m-1"}), 1)
    assert answers is not None
    assert answers[0].message_id == "m-1"
    [meant] = meanings({"Status": "SUCCESS", "MessageId": "m-1"})
    assert (meant.row.kind, meant.code, meant.http_status) == (K.ACCEPTED, None, 200)


@pytest.mark.parametrize(
    "result",
    [
        {"Status": "SUCCESS"},
        {"Status": "SUCCESS", "MessageId": ""},
        {"Status": "SUCCESS", "MessageId": 7},
        {"Status": "SUCCESS", "MessageId": "a b"},
        {"Status": "SOMETHING_NEW"},
        {"Status": "SOMETHING_NEW", "MessageId": "m-1"},
        {"Status": "FAILED", "MessageId": "m-1"},
        {"Status": "MESSAGE_REJECTED", "MessageId": ""},
        {"Status": ["SUCCESS"], "MessageId": "m-1"},
        {"Status": f"<{RECIPIENT}>"},
        {"MessageId": "m-1"},
        {},
        None,
        "SUCCESS",
        7,
    ],
)
def test_a_result_that_is_no_proof_makes_its_entry_unknown_and_no_other(result: Any) -> None:
    good = {"Status": "SUCCESS", "MessageId": "m-9"}
    assert kinds(good, result, good) == [K.ACCEPTED, K.UNKNOWN, K.ACCEPTED]
    assert RECIPIENT not in meanings(result)[0].reason


def test_results_are_matched_by_their_place() -> None:
    assert kinds(
        {"Status": "MESSAGE_REJECTED"},
        {"Status": "SUCCESS", "MessageId": "m-1"},
        {"Status": "ACCOUNT_THROTTLED"},
    ) == [K.PERMANENT, K.ACCEPTED, K.THROTTLED]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_results_proves_nothing_of_any_entry(count: int) -> None:
    seen = whole(*[{"Status": "SUCCESS", "MessageId": "m-1"}] * 2)
    assert entry_answers(seen, count) is None
    assert meaning(seen, sender=SENDER, addresses=()).row.kind is K.UNKNOWN


@pytest.mark.parametrize(
    "seen",
    [
        read_answer(200, {}, b"{}"),
        read_answer(200, {}, b'{"BulkEmailEntryResults": {"0": {"Status": "FAILED"}}}'),
        read_answer(200, {}, b'{"BulkEmailEntryResults": [{"Status": "FAI'),
        whole({"Status": "FAILED"}, status=500),
        whole({"Status": "FAILED"}, status=302),
        Fault(kind=FaultKind.BROKEN, written=True),
        Fault(kind=FaultKind.TIMEOUT, written=True),
    ],
)
def test_what_is_no_list_of_results_is_about_the_call_and_proves_nothing(
    seen: Answer | Fault,
) -> None:
    assert entry_answers(seen, 1) is None
    assert meaning(seen, sender=SENDER, addresses=()).row.kind is K.UNKNOWN
