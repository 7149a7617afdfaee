"""Unmodified boto3 clients and the simulated SES v2 understand each other."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from streams.simulator.server import Simulator
from tests.simulator_rig import client, quick_settings, simple_mail


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings()) as running:
        yield running


@pytest.fixture
async def ses(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sesv2", simulator.url)
    yield made
    made.close()


async def error_of(call: Any, **arguments: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **arguments)
    return caught.value


async def test_simple_content_is_accepted(simulator: Simulator, ses: Any) -> None:
    answer = await asyncio.to_thread(ses.send_email, **simple_mail())
    (acceptance,) = simulator.ledger.acceptances
    assert answer["MessageId"] == acceptance.message_id
    assert answer["ResponseMetadata"]["RequestId"]
    assert acceptance.submission.recipients == ("ann@example.com",)


async def test_raw_content_is_accepted(simulator: Simulator, ses: Any) -> None:
    mime = b"From: shop@example.com\r\nTo: ann@example.com\r\nSubject: Hi\r\n\r\nHello\r\n"
    answer = await asyncio.to_thread(ses.send_email, Content={"Raw": {"Data": mime}})
    (acceptance,) = simulator.ledger.acceptances
    assert answer["MessageId"] == acceptance.message_id
    assert acceptance.submission.subject == "Hi"


async def test_attachments_and_headers_are_accepted(simulator: Simulator, ses: Any) -> None:
    content = simple_mail()["Content"]["Simple"] | {
        "Headers": [{"Name": "List-Unsubscribe", "Value": "<https://example.com/u>"}],
        "Attachments": [{"FileName": "bill.pdf", "RawContent": b"%PDF-"}],
    }
    await asyncio.to_thread(ses.send_email, **simple_mail(Content={"Simple": content}))
    assert ("List-Unsubscribe", "<https://example.com/u>") in (
        simulator.ledger.acceptances[0].submission.headers
    )


async def test_refusals_are_the_modelled_exceptions(simulator: Simulator, ses: Any) -> None:
    bad = await error_of(ses.send_email, **simple_mail("nobody"))
    unknown = await error_of(ses.send_email, **simple_mail(ConfigurationSetName="other"))
    assert isinstance(bad, ses.exceptions.BadRequestException)
    assert isinstance(unknown, ses.exceptions.NotFoundException)
    assert bad.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert unknown.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    assert simulator.ledger.acceptances == []
    assert dict(simulator.ledger.refused) == {"BadRequestException": 1, "NotFoundException": 1}


async def test_the_rate_is_that_of_the_account(ses: Any) -> None:
    account = await asyncio.to_thread(ses.get_account)
    assert account["SendQuota"] == {
        "Max24HourSend": -1.0,
        "MaxSendRate": 1000.0,
        "SentLast24Hours": 0.0,
    }
    assert account["SendingEnabled"] is True
    assert account["EnforcementStatus"] == "HEALTHY"
    assert account["ProductionAccessEnabled"] is True
    assert account["SuppressionAttributes"] == {"SuppressedReasons": ["BOUNCE", "COMPLAINT"]}


async def test_throttle_quota_and_pause_are_the_modelled_exceptions() -> None:
    async with Simulator(quick_settings(rate=0.01, daily_quota=1.0)) as simulator:
        ses = client("sesv2", simulator.url)
        await asyncio.to_thread(ses.send_email, **simple_mail())
        quota = await error_of(ses.send_email, **simple_mail())
        throttled = await error_of(ses.send_email, **simple_mail("success@simulator.amazonses.com"))
        await asyncio.to_thread(ses.put_account_sending_attributes, SendingEnabled=False)
        paused = await error_of(ses.send_email, **simple_mail())
        account = await asyncio.to_thread(ses.get_account)
        ses.close()
    assert isinstance(quota, ses.exceptions.LimitExceededException)
    assert quota.response["Error"]["Message"] == "Daily message quota exceeded."
    assert isinstance(throttled, ses.exceptions.TooManyRequestsException)
    assert throttled.response["Error"]["Message"] == "Maximum sending rate exceeded."
    assert throttled.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert isinstance(paused, ses.exceptions.SendingPausedException)
    assert account["SendingEnabled"] is False
    assert account["SendQuota"]["SentLast24Hours"] == 1.0


async def test_an_unverified_sender_is_rejected() -> None:
    async with Simulator(quick_settings(verified_identities=("example.com",))) as simulator:
        ses = client("sesv2", simulator.url)
        await asyncio.to_thread(ses.send_email, **simple_mail("bob@example.net"))
        error = await error_of(ses.send_email, **simple_mail(FromEmailAddress="x@example.org"))
        ses.close()
    assert isinstance(error, ses.exceptions.MessageRejected)
    assert error.response["Error"]["Message"] == (
        "Email address is not verified. The following identities failed the check in region "
        "EU-CENTRAL-1: x@example.org"
    )


async def test_the_suppression_list_is_kept(ses: Any) -> None:
    start = datetime.now(UTC) - timedelta(seconds=5)
    for number in range(3):
        await asyncio.to_thread(
            ses.put_suppressed_destination, EmailAddress=f"u+{number}@example.com", Reason="BOUNCE"
        )
    await asyncio.to_thread(
        ses.put_suppressed_destination, EmailAddress="c@example.com", Reason="COMPLAINT"
    )
    one = await asyncio.to_thread(ses.get_suppressed_destination, EmailAddress="U+1@example.com")
    assert one["SuppressedDestination"]["EmailAddress"] == "u+1@example.com"
    assert one["SuppressedDestination"]["Reason"] == "BOUNCE"
    assert one["SuppressedDestination"]["LastUpdateTime"] >= start

    def listed(**arguments: Any) -> list[str]:
        found, token = [], None
        while True:
            more: dict[str, str] = {} if token is None else {"NextToken": token}
            page = ses.list_suppressed_destinations(PageSize=2, **arguments, **more)
            found += [entry["EmailAddress"] for entry in page["SuppressedDestinationSummaries"]]
            token = page.get("NextToken")
            if token is None:
                return found

    bounced = ["u+0@example.com", "u+1@example.com", "u+2@example.com"]
    assert await asyncio.to_thread(listed, Reasons=["BOUNCE"], StartDate=start) == bounced
    assert await asyncio.to_thread(listed) == [*bounced, "c@example.com"]
    assert await asyncio.to_thread(listed, EndDate=start) == []

    await asyncio.to_thread(ses.delete_suppressed_destination, EmailAddress="u+1@example.com")
    gone = await error_of(ses.get_suppressed_destination, EmailAddress="u+1@example.com")
    again = await error_of(ses.delete_suppressed_destination, EmailAddress="u+1@example.com")
    assert isinstance(gone, ses.exceptions.NotFoundException)
    assert isinstance(again, ses.exceptions.NotFoundException)


async def test_an_operation_that_does_not_exist_is_unknown(ses: Any) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = [
        (ses.list_contact_lists, {}),
        (ses.get_tenant, {"TenantName": "t"}),
        (ses.get_dedicated_ip_pool, {"PoolName": "p"}),
    ]
    for call, arguments in calls:
        error = await error_of(call, **arguments)
        assert error.response["Error"]["Code"] == "UnknownOperationException"
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 404


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"aws_access_key_id": "somebody"}, "UnrecognizedClientException"),
    ],
)
async def test_wrong_credentials_are_refused(
    simulator: Simulator, changes: dict[str, str], code: str
) -> None:
    ses = client("sesv2", simulator.url, **changes)
    error = await error_of(ses.send_email, **simple_mail())
    ses.close()
    assert error.response["Error"]["Code"] == code
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert simulator.ledger.acceptances == []


async def test_other_calls_can_be_limited_as_on_aws() -> None:
    async with Simulator(quick_settings(other_calls_per_s=0.01)) as simulator:
        ses = client("sesv2", simulator.url)
        await asyncio.to_thread(ses.get_account)
        error = await error_of(ses.get_account)
        await asyncio.to_thread(ses.send_email, **simple_mail())
        ses.close()
    assert isinstance(error, ses.exceptions.TooManyRequestsException)


async def test_what_boto3_encodes_is_what_the_ledger_shows(simulator: Simulator, ses: Any) -> None:
    mime = b"Subject: Hi\r\n\r\n" + bytes(range(32, 127)) * 5
    answer = await asyncio.to_thread(ses.send_email, **simple_mail(Content={"Raw": {"Data": mime}}))
    request = simulator.ledger.request_of(answer["MessageId"])
    assert request is not None
    assert base64.b64encode(mime) in request
