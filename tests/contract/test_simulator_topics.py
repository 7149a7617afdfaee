"""Unmodified boto3 clients and the simulator's topics understand each other: policies, throttle, restoring."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import ClientError

from streams.simulator.server import Simulator
from tests.simulator_rig import Control, Endpoint, client, endpoint, quick_settings, until

PREFIX = "arn:aws:sns:eu-central-1:111122223333:"


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings()) as running:
        yield running


@pytest.fixture
async def sns(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sns", simulator.url)
    yield made
    made.close()


@pytest.fixture
async def control(simulator: Simulator) -> AsyncIterator[Control]:
    async with aiohttp.ClientSession() as session:
        yield Control(session, simulator.url)


@pytest.fixture
async def subscriber(simulator: Simulator) -> AsyncIterator[Endpoint]:
    async with endpoint() as serving:
        serving.simulator_url = simulator.url
        yield serving


@pytest.fixture
async def topic(sns: Any) -> str:
    arn: str = (await asyncio.to_thread(sns.create_topic, Name="second"))["TopicArn"]
    return arn


async def error_code(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **arguments)
    code: str = caught.value.response["Error"]["Code"]
    return code


async def subscribed(sns: Any, subscriber: Endpoint, topic: str, **attributes: Any) -> str:
    answer = await asyncio.to_thread(
        sns.subscribe,
        TopicArn=topic,
        Protocol="http",
        Endpoint=subscriber.url,
        ReturnSubscriptionArn=True,
        Attributes={name: json.dumps(value) for name, value in attributes.items()},
    )
    await until(lambda: subscriber.received)
    arn: str = answer["SubscriptionArn"]

    deadline = time.monotonic() + 60
    while True:
        found = await asyncio.to_thread(sns.get_subscription_attributes, SubscriptionArn=arn)
        if found["Attributes"]["PendingConfirmation"] == "false":
            return arn
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def publish(sns: Any, topic: str, number: int) -> list[str]:
    return [
        (await asyncio.to_thread(sns.publish, TopicArn=topic, Message=f"{n}"))["MessageId"]
        for n in range(number)
    ]


async def test_topics_are_created_once_listed_and_deleted(sns: Any, topic: str) -> None:
    assert topic == PREFIX + "second"
    again = await asyncio.to_thread(sns.create_topic, Name="second")
    assert again["TopicArn"] == topic
    listed = await asyncio.to_thread(sns.list_topics)
    assert [item["TopicArn"] for item in listed["Topics"]] == [
        PREFIX + "ses-events-example",
        topic,
    ]
    assert await error_code(sns.create_topic, Name="bad name") == "InvalidParameter"
    await asyncio.to_thread(sns.delete_topic, TopicArn=topic)
    await asyncio.to_thread(sns.delete_topic, TopicArn=topic)
    assert await error_code(sns.get_topic_attributes, TopicArn=topic) == "NotFound"
    assert await error_code(sns.publish, TopicArn=topic, Message="x") == "NotFound"


async def test_topics_have_their_own_subscribers_and_signature_version(
    sns: Any, subscriber: Endpoint, topic: str
) -> None:
    await asyncio.to_thread(
        sns.set_topic_attributes,
        TopicArn=topic,
        AttributeName="SignatureVersion",
        AttributeValue="2",
    )
    await subscribed(sns, subscriber, topic)
    await publish(sns, PREFIX + "ses-events-example", 1)
    (message_id,) = await publish(sns, topic, 1)
    await until(lambda: len(subscriber.received) == 2)
    envelope = subscriber.received[1].envelope
    assert envelope["MessageId"] == message_id
    assert envelope["TopicArn"] == topic
    assert envelope["SignatureVersion"] == "2"
    assert "Subject" not in envelope


async def test_the_policy_of_a_topic_holds_where_a_subscription_has_none(
    sns: Any, subscriber: Endpoint, topic: str
) -> None:
    policy = {"http": {"defaultHealthyRetryPolicy": {"numRetries": 5, "minDelayTarget": 1}}}
    await asyncio.to_thread(
        sns.set_topic_attributes,
        TopicArn=topic,
        AttributeName="DeliveryPolicy",
        AttributeValue=json.dumps(policy),
    )
    arn = await subscribed(sns, subscriber, topic)

    async def retries() -> int:
        found = await asyncio.to_thread(sns.get_subscription_attributes, SubscriptionArn=arn)
        effective = json.loads(found["Attributes"]["EffectiveDeliveryPolicy"])
        number: int = effective["healthyRetryPolicy"]["numRetries"]
        return number

    assert await retries() == 5
    await asyncio.to_thread(
        sns.set_subscription_attributes,
        SubscriptionArn=arn,
        AttributeName="DeliveryPolicy",
        AttributeValue=json.dumps({"healthyRetryPolicy": {"numRetries": 7}}),
    )
    assert await retries() == 7
    policy["http"]["disableSubscriptionOverrides"] = True  # type: ignore[assignment]
    await asyncio.to_thread(
        sns.set_topic_attributes,
        TopicArn=topic,
        AttributeName="DeliveryPolicy",
        AttributeValue=json.dumps(policy),
    )
    assert await retries() == 5


async def test_an_endpoint_is_tried_as_often_as_its_policy_says(
    sns: Any, control: Control, topic: str, simulator: Simulator
) -> None:
    """Refused connections are tried again as 5xx are."""
    policy = {"numRetries": 4, "numNoDelayRetries": 1, "minDelayTarget": 1, "maxDelayTarget": 2}
    async with endpoint() as serving:
        serving.simulator_url = simulator.url
        await subscribed(sns, serving, topic, DeliveryPolicy={"healthyRetryPolicy": policy})
    await publish(sns, topic, 1)
    state = await control.quiet()
    (letter,) = (await control.get("dead-letters"))["dead_letters"]
    assert (letter["tries"], letter["error"]) == (5, "ClientConnectorError")
    assert letter["queued"] is False
    assert state["events"]["retries"] == 4


async def test_a_throttle_policy_spaces_the_deliveries(
    sns: Any, control: Control, subscriber: Endpoint, topic: str
) -> None:
    await subscribed(
        sns, subscriber, topic, DeliveryPolicy={"throttlePolicy": {"maxReceivesPerSecond": 20}}
    )
    started = time.monotonic()
    await publish(sns, topic, 9)
    await control.quiet()
    assert time.monotonic() - started >= 8 / 20
    assert len(subscriber.received) == 10


async def test_the_token_of_the_farewell_restores_the_subscription(
    sns: Any, subscriber: Endpoint, topic: str
) -> None:
    arn = await subscribed(sns, subscriber, topic)
    await asyncio.to_thread(sns.unsubscribe, SubscriptionArn=arn)
    await until(lambda: len(subscriber.received) == 2)
    farewell = subscriber.received[1]
    assert farewell.kind == "UnsubscribeConfirmation"
    assert farewell.headers["x-amz-sns-subscription-arn"] == arn
    await publish(sns, topic, 1)
    answer = await asyncio.to_thread(
        sns.confirm_subscription, TopicArn=topic, Token=farewell.envelope["Token"]
    )
    assert answer["SubscriptionArn"] == arn
    (message_id,) = await publish(sns, topic, 1)
    await until(lambda: len(subscriber.received) == 3)
    assert subscriber.received[2].envelope["MessageId"] == message_id


async def test_messages_that_sns_would_not_take_are_refused(sns: Any, topic: str) -> None:
    for arguments in ({"Message": "x" * 262_145}, {"Message": "x", "Subject": "y" * 101}):
        assert await error_code(sns.publish, TopicArn=topic, **arguments) == "InvalidParameter"
