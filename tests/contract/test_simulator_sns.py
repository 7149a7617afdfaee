"""Unmodified boto3 clients and the simulated SNS understand each other; signatures are genuine."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from botocore.exceptions import ClientError

from streams.simulator.server import Simulator
from streams.simulator.settings import SignatureVersions
from tests.simulator_rig import (
    TOPIC_ARN,
    Endpoint,
    client,
    confirm_by_url,
    endpoint,
    quick_settings,
    signature_is_valid,
    simple_mail,
    until,
)

CERTIFICATE_URL = re.compile(
    r"https://sns\.eu-central-1\.amazonaws\.com/SimpleNotificationService-[0-9a-f]{32}\.pem"
)


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings(signature_version=SignatureVersions.MIXED)) as running:
        yield running


@pytest.fixture
async def sns(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sns", simulator.url)
    yield made
    made.close()


@pytest.fixture
async def subscriber() -> AsyncIterator[Endpoint]:
    async with endpoint() as serving:
        yield serving


async def subscribed(sns: Any, subscriber: Endpoint, **changes: Any) -> str:
    arguments: dict[str, Any] = {
        "TopicArn": TOPIC_ARN,
        "Protocol": "http",
        "Endpoint": subscriber.url,
        "ReturnSubscriptionArn": True,
    }
    answer = await asyncio.to_thread(sns.subscribe, **(arguments | changes))
    arn: str = answer["SubscriptionArn"]
    return arn


async def token_of(subscriber: Endpoint) -> str:
    await until(lambda: subscriber.received)
    token: str = subscriber.received[0].envelope["Token"]
    return token


async def confirmed(sns: Any, subscriber: Endpoint, **changes: Any) -> str:
    await subscribed(sns, subscriber)
    answer = await asyncio.to_thread(
        sns.confirm_subscription,
        TopicArn=TOPIC_ARN,
        Token=await token_of(subscriber),
        **({"AuthenticateOnUnsubscribe": "true"} | changes),
    )
    arn: str = answer["SubscriptionArn"]
    return arn


async def send(
    simulator: Simulator, to: str = "ann@example.com", *, subject: str = "Your order"
) -> str:
    ses = client("sesv2", simulator.url)
    content = {"Subject": {"Data": subject}, "Body": {"Text": {"Data": "x"}}}
    mail = simple_mail(to, Content={"Simple": content})
    answer = await asyncio.to_thread(ses.send_email, **mail)
    ses.close()
    message_id: str = answer["MessageId"]
    return message_id


async def error_code(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **arguments)
    code: str = caught.value.response["Error"]["Code"]
    return code


async def certificate(simulator: Simulator, envelope: dict[str, Any]) -> bytes:
    url = simulator.url + urlsplit(envelope["SigningCertURL"]).path
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.read()


async def test_subscribing_asks_for_confirmation(sns: Any, subscriber: Endpoint) -> None:
    hidden = await subscribed(sns, subscriber, ReturnSubscriptionArn=False)
    await until(lambda: subscriber.received)
    request = subscriber.received[0]
    assert hidden == "pending confirmation"
    assert request.kind == request.envelope["Type"] == "SubscriptionConfirmation"
    assert request.headers["content-type"] == "text/plain; charset=UTF-8"
    assert request.headers["user-agent"] == "Amazon Simple Notification Service Agent"
    assert request.headers["x-amz-sns-topic-arn"] == TOPIC_ARN
    assert request.headers["x-amz-sns-message-id"] == request.envelope["MessageId"]
    assert "x-amz-sns-subscription-arn" not in request.headers
    assert request.envelope["SubscribeURL"].startswith("https://sns.eu-central-1.amazonaws.com/?")


async def test_nothing_is_delivered_before_confirmation(
    simulator: Simulator, sns: Any, subscriber: Endpoint
) -> None:
    await subscribed(sns, subscriber)
    message_id = await send(simulator)
    acceptance = simulator.ledger.find(message_id)
    assert acceptance is not None
    await until(lambda: len(acceptance.facts) == 2)
    assert {fact.subscribers for fact in acceptance.facts} == {0}
    second = await confirmed(sns, subscriber) and await send(simulator)
    await until(lambda: len(subscriber.events(second)) == 2)
    assert subscriber.events(message_id) == []


async def test_a_confirmed_subscription_first_hears_that_the_topic_is_valid(
    sns: Any, subscriber: Endpoint
) -> None:
    arn = await confirmed(sns, subscriber)
    await until(lambda: len(subscriber.received) == 2)
    notification = subscriber.received[1]
    assert notification.kind == "Notification"
    assert notification.envelope["Message"] == (
        "Successfully validated SNS topic for Amazon SES event publishing."
    )
    assert notification.headers["x-amz-sns-subscription-arn"] == arn


async def test_confirming_again_changes_nothing(sns: Any, subscriber: Endpoint) -> None:
    arn = await confirmed(sns, subscriber)
    token = await token_of(subscriber)
    answer = await asyncio.to_thread(sns.confirm_subscription, TopicArn=TOPIC_ARN, Token=token)
    assert answer["SubscriptionArn"] == arn
    await until(lambda: len(subscriber.received) == 2)


async def test_a_wrong_token_or_topic_confirms_nothing(sns: Any, subscriber: Endpoint) -> None:
    await subscribed(sns, subscriber)
    token = await token_of(subscriber)
    confirm = sns.confirm_subscription
    assert await error_code(confirm, TopicArn=TOPIC_ARN, Token=token[:-1]) == "InvalidParameter"
    assert await error_code(confirm, TopicArn=TOPIC_ARN + "x", Token=token) == "NotFound"
    listed = await asyncio.to_thread(sns.list_subscriptions_by_topic, TopicArn=TOPIC_ARN)
    assert [s["SubscriptionArn"] for s in listed["Subscriptions"]] == ["PendingConfirmation"]


async def test_subscriptions_are_listed(sns: Any, subscriber: Endpoint) -> None:
    arn = await confirmed(sns, subscriber)
    listed = await asyncio.to_thread(sns.list_subscriptions_by_topic, TopicArn=TOPIC_ARN)
    assert listed["Subscriptions"] == [
        {
            "SubscriptionArn": arn,
            "Owner": "111122223333",
            "Protocol": "http",
            "Endpoint": subscriber.url,
            "TopicArn": TOPIC_ARN,
        }
    ]


async def test_whoever_holds_the_url_can_unsubscribe_only_if_that_was_not_ruled_out(
    simulator: Simulator, sns: Any, subscriber: Endpoint
) -> None:
    arn = await confirmed(sns, subscriber)
    await until(lambda: len(subscriber.received) == 2)
    query = urlsplit(subscriber.received[1].envelope["UnsubscribeURL"]).query
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{simulator.url}/?{query}") as response,
    ):
        assert response.status == 403
    await asyncio.to_thread(sns.unsubscribe, SubscriptionArn=arn)
    await until(lambda: len(subscriber.received) == 3)
    farewell = subscriber.received[2]
    assert farewell.kind == "UnsubscribeConfirmation"
    assert signature_is_valid(farewell.envelope, await certificate(simulator, farewell.envelope))
    assert await error_code(sns.unsubscribe, SubscriptionArn=arn) == "NotFound"


async def test_an_unsigned_unsubscribe_works_for_an_unprotected_subscription(
    simulator: Simulator, sns: Any, subscriber: Endpoint
) -> None:
    await subscribed(sns, subscriber)
    await until(lambda: subscriber.received)
    await confirm_by_url(simulator.url, subscriber.received[0].envelope["SubscribeURL"])
    await until(lambda: len(subscriber.received) == 2)
    query = urlsplit(subscriber.received[1].envelope["UnsubscribeURL"]).query
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{simulator.url}/?{query}") as response,
    ):
        assert response.status == 200


async def test_every_message_is_really_signed_in_both_versions(
    simulator: Simulator, sns: Any, subscriber: Endpoint
) -> None:
    await confirmed(sns, subscriber)
    for number in range(4):
        await send(simulator, f"user{number}@example.com", subject="Grüße \u2028 aus \U0001f4e7")
    await until(lambda: len(subscriber.notifications) == 8)
    pem = await certificate(simulator, subscriber.received[0].envelope)
    for received in subscriber.received:
        assert CERTIFICATE_URL.fullmatch(received.envelope["SigningCertURL"])
        assert signature_is_valid(received.envelope, pem)
        forged = received.envelope | {"Message": received.envelope["Message"] + " "}
        assert not signature_is_valid(forged, pem)
    versions = {received.envelope["SignatureVersion"] for received in subscriber.received}
    assert versions == {"1", "2"}
    assert {received.envelope.get("Subject") for received in subscriber.notifications} == {
        "Amazon SES Email Event Notification"
    }


async def test_the_signature_version_of_the_topic_can_be_set(
    simulator: Simulator, sns: Any, subscriber: Endpoint
) -> None:
    await asyncio.to_thread(
        sns.set_topic_attributes,
        TopicArn=TOPIC_ARN,
        AttributeName="SignatureVersion",
        AttributeValue="2",
    )
    await confirmed(sns, subscriber)
    await send(simulator)
    await until(lambda: len(subscriber.notifications) == 2)
    assert {item.envelope["SignatureVersion"] for item in subscriber.received} == {"2"}


async def test_raw_delivery_removes_the_envelope(
    simulator: Simulator, sns: Any, subscriber: Endpoint
) -> None:
    arn = await confirmed(sns, subscriber)
    await until(lambda: len(subscriber.received) == 2)
    await asyncio.to_thread(
        sns.set_subscription_attributes,
        SubscriptionArn=arn,
        AttributeName="RawMessageDelivery",
        AttributeValue="true",
    )
    await send(simulator)
    await until(lambda: len(subscriber.received) == 4)
    raw = subscriber.received[2]
    assert raw.headers["x-amz-sns-rawdelivery"] == "true"
    assert raw.envelope["eventType"] == "Send"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"TopicArn": TOPIC_ARN + "-other"}, "NotFound"),
        (
            {"Protocol": "sqs", "Endpoint": "arn:aws:sns:eu-central-1:111122223333:q"},
            "InvalidParameter",
        ),
        ({"Protocol": "email", "Endpoint": "ann@example.com"}, "InvalidParameter"),
        ({"Protocol": "https"}, "InvalidParameter"),
        ({"Attributes": {"FilterPolicy": "{}"}}, "InvalidParameter"),
        ({"Attributes": {"DeliveryPolicy": "{"}}, "InvalidParameter"),
        (
            {"Attributes": {"DeliveryPolicy": '{"throttlePolicy": {"perHour": 1}}'}},
            "InvalidParameter",
        ),
        ({"Attributes": {"DeliveryPolicy": '{"http": {}}'}}, "InvalidParameter"),
        ({"Attributes": {"RedrivePolicy": '{"deadLetterTargetArn": "x"}'}}, "InvalidParameter"),
        ({"Attributes": {"RawMessageDelivery": "perhaps"}}, "InvalidParameter"),
    ],
)
async def test_what_is_not_simulated_is_refused(
    sns: Any, subscriber: Endpoint, changes: dict[str, Any], code: str
) -> None:
    arguments = {"TopicArn": TOPIC_ARN, "Protocol": "http", "Endpoint": subscriber.url} | changes
    assert await error_code(sns.subscribe, **arguments) == code


async def test_an_unknown_action_is_invalid(sns: Any) -> None:
    assert await error_code(sns.list_origination_numbers) == "InvalidAction"


async def test_wrong_credentials_are_refused(simulator: Simulator, subscriber: Endpoint) -> None:
    arguments = {"TopicArn": TOPIC_ARN, "Protocol": "http", "Endpoint": subscriber.url}
    for changes, code in (
        ({"aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"aws_access_key_id": "somebody"}, "InvalidClientTokenId"),
    ):
        sns = client("sns", simulator.url, **changes)
        assert await error_code(sns.subscribe, **arguments) == code
        sns.close()
    assert subscriber.received == []
