"""Whatever JSON a signed call or the control API is given, the simulator refuses it and stays up."""

import copy
import json
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import aiohttp
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from streams.simulator.server import Simulator
from tests.simulator_rig import quick_settings, simple_mail

STRANGE: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x" * 300,
    "\u2028",
    [],
    [None],
    [[]],
    {},
    {"x": 1},
    [{"Name": 1}],
]
TEMPLATE = {"Subject": "{{a}}", "Text": "{{#each b}}{{this.c}}{{/each}}"}
DESTINATION = {
    "Enabled": True,
    "MatchingEventTypes": ["SEND"],
    "SnsDestination": {"TopicArn": "arn:aws:sns:eu-central-1:111122223333:ses-events-example"},
}
SES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v2/email/outbound-emails", simple_mail()),
    (
        "POST",
        "/v2/email/outbound-emails",
        simple_mail(Content={"Raw": {"Data": "RnJvbTogYQ0KDQp4"}}),
    ),
    (
        "POST",
        "/v2/email/outbound-emails",
        simple_mail(
            Content={
                "Template": {
                    "TemplateContent": {"Subject": "{{a}}", "Text": "x"},
                    "TemplateData": '{"a": 1}',
                    "Headers": [{"Name": "X-A", "Value": "v"}],
                    "Attachments": [{"FileName": "a.txt", "RawContent": "eA=="}],
                }
            }
        ),
    ),
    (
        "POST",
        "/v2/email/outbound-bulk-emails",
        {
            "FromEmailAddress": "shop@example.com",
            "DefaultEmailTags": [{"Name": "a", "Value": "b"}],
            "DefaultContent": {"Template": {"TemplateContent": {"Subject": "s", "Text": "t"}}},
            "BulkEmailEntries": [
                {
                    "Destination": {"ToAddresses": ["ann@example.com"]},
                    "ReplacementTags": [{"Name": "a", "Value": "b"}],
                    "ReplacementEmailContent": {
                        "ReplacementTemplate": {"ReplacementTemplateData": "{}"}
                    },
                    "ReplacementHeaders": [{"Name": "X-A", "Value": "v"}],
                }
            ],
        },
    ),
    ("POST", "/v2/email/templates", {"TemplateName": "t", "TemplateContent": TEMPLATE}),
    ("POST", "/v2/email/templates/t/render", {"TemplateData": '{"a": 1, "b": [1]}'}),
    (
        "POST",
        "/v2/email/configuration-sets",
        {
            "ConfigurationSetName": "c",
            "DeliveryOptions": {"TlsPolicy": "OPTIONAL", "MaxDeliverySeconds": 300},
            "SuppressionOptions": {"SuppressedReasons": ["BOUNCE"]},
            "TrackingOptions": {"CustomRedirectDomain": "t.example.com"},
            "SendingOptions": {"SendingEnabled": True},
            "Tags": [{"Key": "a", "Value": "b"}],
        },
    ),
    (
        "POST",
        "/v2/email/configuration-sets/mailstreams/event-destinations",
        {"EventDestinationName": "e", "EventDestination": DESTINATION},
    ),
    ("POST", "/v2/email/identities", {"EmailIdentity": "example.com", "Tags": []}),
    (
        "PUT",
        "/v2/email/suppression/addresses",
        {"EmailAddress": "a@example.com", "Reason": "BOUNCE"},
    ),
    ("PUT", "/v2/email/account/suppression", {"SuppressedReasons": ["BOUNCE"]}),
]
QUEUE = "http://127.0.0.1/111122223333/q"
SQS: list[tuple[str, dict[str, Any]]] = [
    ("CreateQueue", {"QueueName": "q", "Attributes": {"RedrivePolicy": '{"maxReceiveCount": 1}'}}),
    ("SetQueueAttributes", {"QueueUrl": QUEUE, "Attributes": {"DelaySeconds": "0"}}),
    ("GetQueueAttributes", {"QueueUrl": QUEUE, "AttributeNames": ["All"]}),
    ("ListQueues", {"QueueNamePrefix": "q"}),
    (
        "SendMessage",
        {"QueueUrl": QUEUE, "MessageBody": "x", "DelaySeconds": 0, "MessageAttributes": {}},
    ),
    ("SendMessageBatch", {"QueueUrl": QUEUE, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
    (
        "ReceiveMessage",
        {
            "QueueUrl": QUEUE,
            "MaxNumberOfMessages": 1,
            "VisibilityTimeout": 0,
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        },
    ),
    ("DeleteMessage", {"QueueUrl": QUEUE, "ReceiptHandle": "x"}),
    ("DeleteMessageBatch", {"QueueUrl": QUEUE, "Entries": [{"Id": "a", "ReceiptHandle": "x"}]}),
    ("ChangeMessageVisibility", {"QueueUrl": QUEUE, "ReceiptHandle": "x", "VisibilityTimeout": 0}),
    ("GetQueueUrl", {"QueueName": "q", "QueueOwnerAWSAccountId": "111122223333"}),
]
CONTROL: list[tuple[str, dict[str, Any]]] = [
    (
        "rules",
        {
            "seed": "s",
            "rules": [
                {
                    "match": "*",
                    "share": 0.5,
                    "script": [
                        {"event": "bounce", "after_ms": [0, 1], "fields": {}, "omit": ["x"]},
                        {"event": "click", "early": True, "copies": 2, "age_s": 1},
                    ],
                }
            ],
        },
    ),
    ("events", {"late_ms": [0, 1], "legacy": "off", "early_share": 0, "unknown_fields": False}),
    ("account", {"rate": 1000, "quota": -1, "enforcement_status": "HEALTHY"}),
    ("bulk", {"entries": [{"match": "x", "status": "FAILED", "next": 1}]}),
    (
        "faults",
        {"faults": [{"when": "after", "lie": "error", "status": 500, "code": "x", "next": 0}]},
    ),
    ("topics", {"name": "t", "signature_version": "1"}),
    ("queues", {"name": "q", "attributes": {"DelaySeconds": "0"}}),
    ("configuration-sets", {"name": "d", "event_types": ["SEND"], "enabled": True}),
    ("identities", {"identity": "example.com", "verified": True}),
    ("templates", {"name": "u", "subject": "s", "text": "t"}),
    ("outcomes", {"addresses": ["a@example.com"]}),
    (
        "publish",
        {
            "message": "x",
            "defects": ["stale"],
            "fields": {"MessageId": "x"},
            "envelope": {"Message": "y"},
            "omit": ["Subject"],
            "headers": {"x": "y"},
        },
    ),
]


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, itself left out."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutants(document: dict[str, Any], random: Random) -> Iterator[dict[str, Any]]:
    """The document with something strange at each of its places, and with it missing."""
    for path in places(document):
        for strange in [*random.sample(STRANGE, 7), ...]:
            mutant = copy.deepcopy(document)
            at: Any = mutant
            for key in path[:-1]:
                at = at[key]
            if strange is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = copy.deepcopy(strange)
            yield mutant


class Caller:
    """Signs and sends what no SDK would."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._credentials = Credentials("test", "test")

    async def call(
        self, service: str, method: str, path: str, document: Any, **headers: str
    ) -> tuple[int, str]:
        body = json.dumps(document).encode()
        request = AWSRequest(
            method,
            self._url + path,
            data=body,
            headers={"Content-Type": "application/json", **headers},
        )
        SigV4Auth(self._credentials, service, "eu-central-1").add_auth(request)
        async with self._session.request(
            method, self._url + path, data=body, headers=dict(request.headers.items())
        ) as response:
            return response.status, await response.text()

    async def control(self, name: str, document: Any) -> tuple[int, str]:
        async with self._session.post(f"{self._url}/control/{name}", json=document) as response:
            return response.status, await response.text()


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with (
        Simulator(quick_settings(rate=1e6)) as simulator,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
    ):
        made = Caller(session, simulator.url)
        await made.control("queues", {"name": "q"})
        await made.control("templates", {"name": "t", "subject": "{{a}}", "text": "x"})
        yield made


@pytest.mark.parametrize("place", range(len(SES)))
async def test_no_ses_call_is_an_internal_error(caller: Caller, place: int) -> None:
    method, path, document = SES[place]
    for mutant in mutants(document, Random(place)):  # noqa: S311 - a spread, not a secret
        status, text = await caller.call("ses", method, path, mutant)
        assert status < 500, (mutant, text)


@pytest.mark.parametrize("place", range(len(SQS)))
async def test_no_sqs_call_is_an_internal_error(caller: Caller, place: int) -> None:
    action, document = SQS[place]
    for mutant in mutants(document, Random(place)):  # noqa: S311 - a spread, not a secret
        target = {"X-Amz-Target": f"AmazonSQS.{action}"}
        status, text = await caller.call("sqs", "POST", "/", mutant, **target)
        assert status < 500, (mutant, text)


@pytest.mark.parametrize("place", range(len(CONTROL)))
async def test_no_change_of_the_control_api_is_an_internal_error(
    caller: Caller, place: int
) -> None:
    name, document = CONTROL[place]
    for mutant in mutants(document, Random(place)):  # noqa: S311 - a spread, not a secret
        status, text = await caller.control(name, mutant)
        assert status in (200, 400), (mutant, text)
