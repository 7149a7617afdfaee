"""Unmodified boto3 and aioboto3 clients and the simulated SQS understand each other; SNS delivers into it."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aioboto3
import aiohttp
import pytest
from botocore.exceptions import ClientError

from streams.simulator.server import Simulator
from tests.simulator_rig import (
    TOPIC_ARN,
    Control,
    client,
    endpoint,
    quick_settings,
    signature_is_valid,
    simple_mail,
    until,
)

QUEUE_ARN = "arn:aws:sqs:eu-central-1:111122223333:events"


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings()) as running:
        yield running


@pytest.fixture
async def sqs(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sqs", simulator.url)
    yield made
    made.close()


@pytest.fixture
async def queue(sqs: Any) -> str:
    answer = await asyncio.to_thread(sqs.create_queue, QueueName="events")
    url: str = answer["QueueUrl"]
    return url


async def error_code(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **arguments)
    code: str = caught.value.response["Error"]["Code"]
    return code


async def put(sqs: Any, queue: str, *bodies: str) -> None:
    for body in bodies:
        await asyncio.to_thread(sqs.send_message, QueueUrl=queue, MessageBody=body)


async def receive(sqs: Any, queue: str, **arguments: Any) -> list[dict[str, Any]]:
    answer = await asyncio.to_thread(sqs.receive_message, QueueUrl=queue, **arguments)
    messages: list[dict[str, Any]] = answer.get("Messages", [])
    return messages


async def bodies_in(sqs: Any, queue: str, number: int) -> list[dict[str, Any]]:
    """Receive until that many messages have come."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while len(found) < number:
        assert time.monotonic() < deadline, found
        found += await receive(sqs, queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    return found


async def test_a_queue_is_found_by_name_and_has_attributes(sqs: Any, queue: str) -> None:
    assert queue.endswith("/111122223333/events")
    found = await asyncio.to_thread(sqs.get_queue_url, QueueName="events")
    assert found["QueueUrl"] == queue
    assert (await asyncio.to_thread(sqs.list_queues))["QueueUrls"] == [queue]
    await asyncio.to_thread(
        sqs.set_queue_attributes, QueueUrl=queue, Attributes={"VisibilityTimeout": "7"}
    )
    answer = await asyncio.to_thread(
        sqs.get_queue_attributes, QueueUrl=queue, AttributeNames=["All"]
    )
    assert answer["Attributes"]["QueueArn"] == QUEUE_ARN
    assert answer["Attributes"]["VisibilityTimeout"] == "7"
    assert answer["Attributes"]["ApproximateNumberOfMessages"] == "0"


async def test_a_received_message_is_invisible_until_its_time_is_over(sqs: Any, queue: str) -> None:
    await put(sqs, queue, "one")
    (first,) = await receive(sqs, queue, VisibilityTimeout=1, AttributeNames=["All"])
    assert first["Body"] == "one"
    assert first["MD5OfBody"] == hashlib.md5(b"one", usedforsecurity=False).hexdigest()
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert await receive(sqs, queue) == []
    (again,) = await receive(sqs, queue, WaitTimeSeconds=5, AttributeNames=["All"])
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert again["ReceiptHandle"] != first["ReceiptHandle"]


async def test_only_the_newest_receipt_deletes(sqs: Any, queue: str) -> None:
    await put(sqs, queue, "one")
    (old,) = await receive(sqs, queue, VisibilityTimeout=0)
    (new,) = await receive(sqs, queue, VisibilityTimeout=0)
    await asyncio.to_thread(sqs.delete_message, QueueUrl=queue, ReceiptHandle=old["ReceiptHandle"])
    (newest,) = await receive(sqs, queue, VisibilityTimeout=0)
    assert newest["MessageId"] == new["MessageId"]
    await asyncio.to_thread(
        sqs.delete_message, QueueUrl=queue, ReceiptHandle=newest["ReceiptHandle"]
    )
    assert await receive(sqs, queue) == []


async def test_what_is_deleted_does_not_come_again(sqs: Any, queue: str) -> None:
    await put(sqs, queue, "one", "two")
    found = await receive(sqs, queue, MaxNumberOfMessages=10, VisibilityTimeout=0)
    entries = [
        {"Id": str(number), "ReceiptHandle": item["ReceiptHandle"]}
        for number, item in enumerate(found)
    ]
    entries.append({"Id": "bad", "ReceiptHandle": "nothing"})
    answer = await asyncio.to_thread(sqs.delete_message_batch, QueueUrl=queue, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["0", "1"]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("bad", "ReceiptHandleIsInvalid")
    ]
    assert await receive(sqs, queue, MaxNumberOfMessages=10) == []


async def test_a_long_poll_ends_as_soon_as_a_message_comes(sqs: Any, queue: str) -> None:
    started = time.monotonic()
    waiting = asyncio.create_task(receive(sqs, queue, WaitTimeSeconds=20))
    await put(sqs, queue, "one")
    (message,) = await waiting
    assert message["Body"] == "one"
    assert time.monotonic() - started < 10


async def test_a_long_poll_without_a_message_ends_empty(sqs: Any, queue: str) -> None:
    started = time.monotonic()
    assert await receive(sqs, queue, WaitTimeSeconds=1) == []
    assert time.monotonic() - started >= 1


async def test_visibility_can_be_given_back(sqs: Any, queue: str) -> None:
    await put(sqs, queue, "one", "two")
    found = await receive(sqs, queue, MaxNumberOfMessages=10, VisibilityTimeout=600)
    await asyncio.to_thread(
        sqs.change_message_visibility,
        QueueUrl=queue,
        ReceiptHandle=found[0]["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    (one,) = await receive(sqs, queue, MaxNumberOfMessages=10)
    assert one["MessageId"] == found[0]["MessageId"]
    batch = await asyncio.to_thread(
        sqs.change_message_visibility_batch,
        QueueUrl=queue,
        Entries=[
            {"Id": "a", "ReceiptHandle": found[1]["ReceiptHandle"], "VisibilityTimeout": 0},
            {"Id": "b", "ReceiptHandle": found[0]["ReceiptHandle"], "VisibilityTimeout": 0},
        ],
    )
    assert [entry["Id"] for entry in batch["Successful"]] == ["a"]
    assert [entry["Code"] for entry in batch["Failed"]] == [
        "AWS.SimpleQueueService.MessageNotInflight"
    ]


async def test_a_message_received_too_often_goes_to_the_dead_letter_queue(
    sqs: Any, queue: str
) -> None:
    dead = (await asyncio.to_thread(sqs.create_queue, QueueName="dead"))["QueueUrl"]
    policy = {
        "deadLetterTargetArn": "arn:aws:sqs:eu-central-1:111122223333:dead",
        "maxReceiveCount": "2",
    }
    await asyncio.to_thread(
        sqs.set_queue_attributes, QueueUrl=queue, Attributes={"RedrivePolicy": json.dumps(policy)}
    )
    await put(sqs, queue, "poison")
    for _ in range(2):
        assert len(await receive(sqs, queue, VisibilityTimeout=0)) == 1
    assert await receive(sqs, queue) == []
    (letter,) = await receive(sqs, dead, AttributeNames=["All"])
    assert letter["Body"] == "poison"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == QUEUE_ARN


async def test_a_queue_is_purged_and_deleted(sqs: Any, queue: str) -> None:
    await put(sqs, queue, "one")
    await asyncio.to_thread(sqs.purge_queue, QueueUrl=queue)
    assert await receive(sqs, queue) == []
    code = await error_code(sqs.purge_queue, QueueUrl=queue)
    assert code == "AWS.SimpleQueueService.PurgeQueueInProgress"
    await asyncio.to_thread(sqs.delete_queue, QueueUrl=queue)
    assert (
        await error_code(sqs.receive_message, QueueUrl=queue)
        == "AWS.SimpleQueueService.NonExistentQueue"
    )


async def test_refusals_are_the_modelled_exceptions(sqs: Any, queue: str) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        await asyncio.to_thread(sqs.get_queue_url, QueueName="other")
    with pytest.raises(sqs.exceptions.QueueNameExists):
        await asyncio.to_thread(
            sqs.create_queue, QueueName="events", Attributes={"DelaySeconds": "5"}
        )
    for call, arguments, code in (
        (sqs.receive_message, {"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        (sqs.receive_message, {"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        (sqs.delete_message, {"ReceiptHandle": "x"}, "ReceiptHandleIsInvalid"),
        (sqs.send_message, {"MessageBody": "\x01"}, "InvalidMessageContents"),
        (sqs.send_message, {"MessageBody": "x" * 1_048_577}, "InvalidParameterValue"),
        (
            sqs.delete_message_batch,
            {"Entries": []},
            "AWS.SimpleQueueService.EmptyBatchRequest",
        ),
        (
            sqs.delete_message_batch,
            {"Entries": [{"Id": "a", "ReceiptHandle": "x"}] * 2},
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        ),
        (sqs.set_queue_attributes, {"Attributes": {"FifoQueue": "true"}}, "InvalidAttributeName"),
        (
            sqs.set_queue_attributes,
            {"Attributes": {"DelaySeconds": "901"}},
            "InvalidAttributeValue",
        ),
    ):
        assert await error_code(call, QueueUrl=queue, **arguments) == code


async def test_wrong_credentials_are_refused(simulator: Simulator) -> None:
    for changes, code in (
        ({"aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"aws_access_key_id": "somebody"}, "InvalidClientTokenId"),
    ):
        sqs = client("sqs", simulator.url, **changes)
        assert await error_code(sqs.list_queues) == code
        sqs.close()


async def test_a_subscribed_queue_gets_the_signed_envelope(
    simulator: Simulator, sqs: Any, queue: str
) -> None:
    sns, ses = client("sns", simulator.url), client("sesv2", simulator.url)
    answer = await asyncio.to_thread(
        sns.subscribe, TopicArn=TOPIC_ARN, Protocol="sqs", Endpoint=QUEUE_ARN
    )
    assert answer["SubscriptionArn"].startswith(TOPIC_ARN + ":")
    await asyncio.to_thread(ses.send_email, **simple_mail())
    found = await bodies_in(sqs, queue, 3)
    sns.close()
    ses.close()
    envelopes = [json.loads(item["Body"]) for item in found]
    assert envelopes[0]["Message"].startswith("Successfully validated SNS topic")
    assert [json.loads(item["Message"])["eventType"] for item in envelopes[1:]] == [
        "Send",
        "Delivery",
    ]
    url = simulator.url + urlsplit(envelopes[1]["SigningCertURL"]).path
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        pem = await response.read()
    assert all(signature_is_valid(envelope, pem) for envelope in envelopes)
    assert all("UnsubscribeURL" in envelope for envelope in envelopes)


async def test_dead_letters_of_an_endpoint_land_in_the_queue_of_its_redrive_policy(
    simulator: Simulator, sqs: Any, queue: str
) -> None:
    sns, ses = client("sns", simulator.url), client("sesv2", simulator.url)
    async with endpoint() as subscriber, aiohttp.ClientSession() as session:
        subscriber.simulator_url = simulator.url
        subscriber.status_of = lambda received, _n: (
            403 if received.record and received.record["eventType"] == "Send" else 200
        )
        await asyncio.to_thread(
            sns.subscribe,
            TopicArn=TOPIC_ARN,
            Protocol="http",
            Endpoint=subscriber.url,
            Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": QUEUE_ARN})},
        )
        await until(lambda: len(subscriber.received) == 2)
        await asyncio.to_thread(ses.send_email, **simple_mail())
        control = Control(session, simulator.url)
        await control.quiet()
        (letter,) = (await control.get("dead-letters"))["dead_letters"]
        (message,) = await bodies_in(sqs, queue, 1)
    sns.close()
    ses.close()
    assert letter["queued"] is True
    assert json.loads(message["Body"]) == letter["body"]
    assert json.loads(letter["body"]["Message"])["eventType"] == "Send"


async def test_aioboto3_reads_a_queue(simulator: Simulator) -> None:
    session = aioboto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-central-1"
    )
    async with session.client("sqs", endpoint_url=simulator.url) as sqs:
        queue = (await sqs.create_queue(QueueName="events"))["QueueUrl"]
        await sqs.send_message_batch(
            QueueUrl=queue,
            Entries=[{"Id": str(n), "MessageBody": f"body {n}"} for n in range(10)],
        )
        answer = await sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1
        )
        assert [item["Body"] for item in answer["Messages"]] == [f"body {n}" for n in range(10)]
