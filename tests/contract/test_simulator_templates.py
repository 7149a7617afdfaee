"""Unmodified boto3 clients and the simulator's templates understand each other, one by one and in bulk."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import ClientError

from streams.simulator.server import Simulator
from tests.simulator_rig import Control, client, endpoint, quick_settings, simple_mail, until

RECEIPT = {
    "Subject": "Order {{order}}",
    "Text": "Dear {{name}}, {{#each items}}{{this}};{{/each}}",
    "Html": "<p>Dear {{name}}</p>",
}


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings()) as running:
        yield running


@pytest.fixture
async def ses(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sesv2", simulator.url)
    await asyncio.to_thread(
        made.create_email_template, TemplateName="receipt", TemplateContent=RECEIPT
    )
    yield made
    made.close()


async def error_of(call: Any, **arguments: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **arguments)
    return caught.value


def with_template(**template: Any) -> dict[str, Any]:
    return simple_mail(Content={"Template": template})


def bulk(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    data = json.dumps({"order": 1, "name": "nobody"})
    given: dict[str, Any] = {
        "FromEmailAddress": "shop@example.com",
        "ConfigurationSetName": "mailstreams",
        "DefaultEmailTags": [{"Name": "attempt", "Value": "default"}],
        "DefaultContent": {"Template": {"TemplateName": "receipt", "TemplateData": data}},
        "BulkEmailEntries": list(entries),
    }
    return given | changes


def entry(*to: str, **changes: Any) -> dict[str, Any]:
    return {"Destination": {"ToAddresses": list(to)}} | changes


async def test_a_template_is_created_read_changed_listed_and_deleted(ses: Any) -> None:
    found = await asyncio.to_thread(ses.get_email_template, TemplateName="receipt")
    assert found["TemplateContent"] == RECEIPT
    again = await error_of(
        ses.create_email_template, TemplateName="receipt", TemplateContent=RECEIPT
    )
    assert isinstance(again, ses.exceptions.AlreadyExistsException)
    changed = {"Subject": "Now {{order}}", "Text": "x"}
    await asyncio.to_thread(
        ses.update_email_template, TemplateName="receipt", TemplateContent=changed
    )
    found = await asyncio.to_thread(ses.get_email_template, TemplateName="receipt")
    assert found["TemplateContent"] == changed
    for number in range(3):
        await asyncio.to_thread(
            ses.create_email_template, TemplateName=f"t{number}", TemplateContent=changed
        )
    page = await asyncio.to_thread(ses.list_email_templates, PageSize=3)
    assert [item["TemplateName"] for item in page["TemplatesMetadata"]] == ["receipt", "t0", "t1"]
    rest = await asyncio.to_thread(ses.list_email_templates, NextToken=page["NextToken"])
    assert [item["TemplateName"] for item in rest["TemplatesMetadata"]] == ["t2"]
    await asyncio.to_thread(ses.delete_email_template, TemplateName="receipt")
    for call, more in (
        (ses.get_email_template, {}),
        (ses.delete_email_template, {}),
        (ses.update_email_template, {"TemplateContent": changed}),
        (ses.test_render_email_template, {"TemplateData": "{}"}),
    ):
        error = await error_of(call, TemplateName="receipt", **more)
        assert isinstance(error, ses.exceptions.NotFoundException)


@pytest.mark.parametrize(
    "content",
    [
        {"Text": "x"},
        {"Subject": "x"},
        {"Subject": "{{#if a}}x", "Text": "x"},
        {"Subject": "x", "Text": "{{#loop a}}{{/loop}}"},
        {"Subject": "x", "Text": "x" * 500 * 1024},
    ],
)
async def test_a_template_that_cannot_work_is_refused(ses: Any, content: dict[str, str]) -> None:
    error = await error_of(ses.create_email_template, TemplateName="bad", TemplateContent=content)
    assert isinstance(error, ses.exceptions.BadRequestException)


async def test_a_template_is_rendered_for_a_look(ses: Any) -> None:
    data = json.dumps({"order": 7, "name": "Ann & <Bob>", "items": ["a", "b"]})
    answer = await asyncio.to_thread(
        ses.test_render_email_template, TemplateName="receipt", TemplateData=data
    )
    rendered = answer["RenderedTemplate"]
    assert "Subject: Order 7" in rendered
    assert "Dear Ann & <Bob>, a;b;" in rendered
    assert "<p>Dear Ann &amp; &lt;Bob&gt;</p>" in rendered
    error = await error_of(
        ses.test_render_email_template, TemplateName="receipt", TemplateData='{"order": 7}'
    )
    assert isinstance(error, ses.exceptions.BadRequestException)
    assert "Attribute 'name' is not present in the rendering data." in str(error)


@pytest.mark.parametrize(
    "source",
    [
        {"TemplateName": "receipt"},
        {"TemplateArn": "arn:aws:ses:eu-central-1:111122223333:template/receipt"},
        {"TemplateContent": {"Subject": "Order {{order}}", "Text": "Dear {{name}}"}},
    ],
)
async def test_a_templated_message_is_accepted_with_its_values(
    simulator: Simulator, ses: Any, source: dict[str, Any]
) -> None:
    data = json.dumps({"order": 7, "name": "Ann"})
    mail = with_template(**source, TemplateData=data, Headers=[{"Name": "X-Kind", "Value": "r"}])
    answer = await asyncio.to_thread(ses.send_email, **mail)
    acceptance = simulator.ledger.find(answer["MessageId"])
    assert acceptance is not None
    assert acceptance.submission.subject == "Order 7"
    assert ("X-Kind", "r") in acceptance.submission.headers
    assert acceptance.submission.rendering_error is None


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ({"TemplateName": "other"}, "NotFoundException"),
        (
            {"TemplateArn": "arn:aws:ses:eu-central-1:444455556666:template/receipt"},
            "NotFoundException",
        ),
        ({"TemplateData": "{}"}, "BadRequestException"),
        ({"TemplateName": "receipt", "TemplateData": "{"}, "BadRequestException"),
        ({"TemplateName": "receipt", "TemplateData": "[]"}, "BadRequestException"),
        (
            {"TemplateContent": {"Subject": "x", "Text": "{{#if a}}b{{/if}}"}},
            "BadRequestException",
        ),
    ],
)
async def test_a_template_that_cannot_be_used_is_refused(
    simulator: Simulator, ses: Any, template: dict[str, Any], code: str
) -> None:
    error = await error_of(ses.send_email, **with_template(**template))
    assert error.response["Error"]["Code"] == code
    assert simulator.ledger.acceptances == []


async def test_a_missing_value_is_accepted_and_told_as_a_rendering_failure(
    simulator: Simulator, ses: Any
) -> None:
    async with endpoint() as subscriber, aiohttp.ClientSession() as session:
        subscriber.simulator_url = simulator.url
        control = Control(session, simulator.url)
        await control.post("subscriptions", endpoint=subscriber.url)
        await until(lambda: len(subscriber.received) == 2)
        answer = await asyncio.to_thread(
            ses.send_email, **with_template(TemplateName="receipt", TemplateData='{"order": 7}')
        )
        await control.quiet()
    (record,) = subscriber.records
    assert record["eventType"] == "Rendering Failure"
    assert record["failure"] == {
        "templateName": "receipt",
        "errorMessage": "Attribute 'name' is not present in the rendering data.",
    }
    assert record["mail"]["messageId"] == answer["MessageId"]
    assert record["mail"]["tags"]["attempt"] == ["att-1"]
    assert "headers" not in record["mail"]


async def test_every_entry_of_a_bulk_call_has_its_own_result_in_order(
    simulator: Simulator, ses: Any
) -> None:
    data = {"ReplacementTemplate": {"ReplacementTemplateData": json.dumps({"order": 2})}}
    answer = await asyncio.to_thread(
        ses.send_bulk_email,
        **bulk(
            entry("ann@example.com"),
            entry("nobody"),
            entry(
                "bob@example.com",
                "cid@example.com",
                ReplacementTags=[{"Name": "attempt", "Value": "own"}],
                ReplacementEmailContent=data,
                ReplacementHeaders=[{"Name": "X-Kind", "Value": "own"}],
            ),
        ),
    )
    results = answer["BulkEmailEntryResults"]
    assert [result["Status"] for result in results] == ["SUCCESS", "INVALID_PARAMETER", "SUCCESS"]
    assert results[1]["Error"] == "Missing final '@domain'"
    assert "MessageId" not in results[1]
    first, second = simulator.ledger.acceptances
    assert (first.message_id, second.message_id) == (
        results[0]["MessageId"],
        results[2]["MessageId"],
    )
    assert first.submission.subject == "Order 1"
    assert first.submission.tags == (("attempt", "default"),)
    assert second.submission.subject == "Order 2"
    assert second.submission.tags == (("attempt", "own"),)
    assert ("X-Kind", "own") in second.submission.headers
    assert second.submission.recipients == ("bob@example.com", "cid@example.com")


async def test_replacement_headers_take_the_place_of_those_of_the_same_name(
    simulator: Simulator, ses: Any
) -> None:
    template = {
        "TemplateName": "receipt",
        "TemplateData": json.dumps({"order": 1, "name": "x"}),
        "Headers": [{"Name": "X-A", "Value": "default"}, {"Name": "X-B", "Value": "default"}],
    }
    own = entry("ann@example.com", ReplacementHeaders=[{"Name": "x-a", "Value": "own"}])
    await asyncio.to_thread(ses.send_bulk_email, **bulk(own, DefaultContent={"Template": template}))
    headers = simulator.ledger.acceptances[0].submission.headers
    assert [header for header in headers if header[0].lower().startswith("x-")] == [
        ("X-B", "default"),
        ("x-a", "own"),
    ]


async def test_the_statuses_of_entries_can_be_scripted(simulator: Simulator, ses: Any) -> None:
    async with aiohttp.ClientSession() as session:
        await Control(session, simulator.url).post(
            "bulk",
            entries=[
                {"match": "ann@*", "status": "TRANSIENT_FAILURE", "next": 1, "error": "Later."},
                {"match": "bob@*", "status": "SOMETHING_NEW"},
            ],
        )
    call = bulk(entry("ann@example.com"), entry("bob@example.com"), entry("cid@example.com"))
    first = await asyncio.to_thread(ses.send_bulk_email, **call)
    second = await asyncio.to_thread(ses.send_bulk_email, **call)
    statuses = [
        [result["Status"] for result in answer["BulkEmailEntryResults"]]
        for answer in (first, second)
    ]
    assert statuses == [
        ["TRANSIENT_FAILURE", "SOMETHING_NEW", "SUCCESS"],
        ["SUCCESS", "SOMETHING_NEW", "SUCCESS"],
    ]
    assert first["BulkEmailEntryResults"][0]["Error"] == "Later."
    assert len(simulator.ledger.acceptances) == 3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"BulkEmailEntries": []}, "BadRequestException"),
        (
            {"BulkEmailEntries": [entry(f"u{n}@example.com") for n in range(51)]},
            "BadRequestException",
        ),
        ({"ConfigurationSetName": "other"}, "NotFoundException"),
        ({"DefaultContent": {"Template": {"TemplateName": "other"}}}, "NotFoundException"),
        ({"FromEmailAddress": "nobody"}, "BadRequestException"),
        ({"DefaultEmailTags": [{"Name": "a.b", "Value": "v"}]}, "BadRequestException"),
        ({"TenantName": "t"}, "NotFoundException"),
    ],
)
async def test_what_is_common_to_the_entries_refuses_the_call(
    simulator: Simulator, ses: Any, changes: dict[str, Any], code: str
) -> None:
    error = await error_of(ses.send_bulk_email, **bulk(entry("ann@example.com"), **changes))
    assert error.response["Error"]["Code"] == code
    assert simulator.ledger.acceptances == []


async def test_a_bulk_call_counts_recipients() -> None:
    async with Simulator(quick_settings(rate=0.01, daily_quota=3.0)) as simulator:
        ses = client("sesv2", simulator.url)
        await asyncio.to_thread(
            ses.create_email_template, TemplateName="receipt", TemplateContent=RECEIPT
        )
        answer = await asyncio.to_thread(
            ses.send_bulk_email,
            **bulk(
                entry("a@example.com", "b@example.com"),
                entry("c@example.com", "d@example.com"),
                entry("e@example.com"),
            ),
        )
        throttled = await error_of(ses.send_bulk_email, **bulk(entry("f@example.com")))
        account = await asyncio.to_thread(ses.get_account)
        ses.close()
    assert [result["Status"] for result in answer["BulkEmailEntryResults"]] == [
        "SUCCESS",
        "ACCOUNT_DAILY_QUOTA_EXCEEDED",
        "SUCCESS",
    ]
    assert isinstance(throttled, ses.exceptions.TooManyRequestsException)
    assert account["SendQuota"]["SentLast24Hours"] == 3.0


async def test_faults_lie_about_bulk_calls_too(simulator: Simulator, ses: Any) -> None:
    fault = {"when": "after", "lie": "no-message-id", "next": 1}
    async with aiohttp.ClientSession() as session:
        await Control(session, simulator.url).post("faults", faults=[fault])
    answer = await asyncio.to_thread(
        ses.send_bulk_email, **bulk(entry("ann@example.com"), entry("bob@example.com"))
    )
    assert "BulkEmailEntryResults" not in answer
    assert [item.answer for item in simulator.ledger.acceptances] == ["spoilt", "spoilt"]
