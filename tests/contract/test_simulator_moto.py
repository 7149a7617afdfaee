"""The same boto3 calls on the simulator and on moto: equal, or different in a way that is written down.

moto knows a part of what the simulator does; where they differ, the reason stands beside it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from streams.simulator.server import Simulator
from tests.simulator_rig import client, quick_settings

ACCOUNTS = ("123456789012", "111122223333")
TOPIC = "arn:aws:sns:eu-central-1:{account}:feedback"
QUEUE = "arn:aws:sqs:eu-central-1:{account}:events"
SIMPLE = {"Simple": {"Subject": {"Data": "x"}, "Body": {"Text": {"Data": "x"}}}}
RAW = {"Raw": {"Data": b"From: a@example.com\r\nTo: b@example.com\r\nSubject: x\r\n\r\nx\r\n"}}

Shape = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What each says where they differ, and why the simulator is right to."""

    moto: Any
    simulator: Any
    why: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call; `shape` is the part of its answer that is compared. `{account}` is filled in,
    `{queue}`, `{handle}` and `{subscription}` are what earlier calls brought."""

    service: str
    operation: str
    arguments: dict[str, Any]
    shape: Shape = sorted
    differs: Difference | None = None


class Runner:
    """Makes the calls of a scenario on one of the two."""

    def __init__(self, clients: dict[str, Any], account: str) -> None:
        self._clients = clients
        self._known = {"account": account}

    def run(self, scenario: list[Call]) -> list[Any]:
        return [self._outcome(call) for call in scenario]

    def _outcome(self, call: Call) -> Any:
        operation = getattr(self._clients[call.service], call.operation)
        try:
            answer = operation(**self._filled(call.arguments))
        except ClientError as error:
            return error.response["Error"]["Code"]
        except (NotImplementedError, KeyError) as error:
            return type(error).__name__
        answer.pop("ResponseMetadata")
        self._remember(answer)
        return call.shape(answer)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            for name, known in self._known.items():
                value = value.replace(f"{{{name}}}", known)
            return value
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, dict):
            return {name: self._filled(item) for name, item in value.items()}
        return value

    def _remember(self, answer: dict[str, Any]) -> None:
        if "QueueUrl" in answer:
            self._known["queue"] = answer["QueueUrl"]
        if "SubscriptionArn" in answer:
            self._known["subscription"] = answer["SubscriptionArn"]
        for message in answer.get("Messages", []):
            self._known["handle"] = message["ReceiptHandle"]


def without_account(answer: Any) -> Any:
    text = repr(answer)
    for account in ACCOUNTS:
        text = text.replace(account, "<account>")
    return text


def at(*path: Any) -> Shape:
    """The member at a path of the answer, without the account."""

    def shape(answer: dict[str, Any]) -> Any:
        found: Any = answer
        for step in path:
            found = found[step]
        return without_account(found)

    return shape


def names(member: str, name: str) -> Shape:
    return lambda answer: [item[name] for item in answer[member]]


def among(member: str, *wanted: str) -> Shape:
    """Some attributes of an answer."""

    def shape(answer: dict[str, Any]) -> Any:
        return without_account({name: answer[member].get(name) for name in wanted})

    return shape


def mail(content: dict[str, Any] = SIMPLE, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "FromEmailAddress": "a@example.com",
        "Destination": {"ToAddresses": ["b@example.com"]},
        "Content": content,
    }
    return given | changes


NOT_IN_MOTO = "moto has no such operation"
SENDING = [
    Call("sesv2", "send_email", mail()),
    Call("sesv2", "create_email_identity", {"EmailIdentity": "example.com"}, at("IdentityType")),
    Call("sesv2", "send_email", mail()),
    Call("sesv2", "send_email", mail(RAW)),
    Call(
        "sesv2",
        "send_email",
        mail(Destination={"ToAddresses": [f"u{n}@example.com" for n in range(50)]}),
    ),
    Call(
        "sesv2",
        "send_email",
        mail(Destination={"ToAddresses": [f"u{n}@example.com" for n in range(51)]}),
        differs=Difference(
            moto="MessageRejected",
            simulator="BadRequestException",
            why="invalid input is a BadRequestException in the v2 API",
        ),
    ),
    Call(
        "sesv2",
        "send_email",
        mail(Destination={"ToAddresses": ["b@"]}),
        differs=Difference(
            moto="InvalidParameterValue",
            simulator="BadRequestException",
            why="moto answers with a code of the v1 API",
        ),
    ),
    Call(
        "sesv2",
        "send_email",
        mail(ConfigurationSetName="unknown"),
        differs=Difference(
            moto=["MessageId"], simulator="NotFoundException", why="moto ignores the member"
        ),
    ),
    Call(
        "sesv2",
        "send_email",
        mail(EmailTags=[{"Name": "a.b", "Value": "@"}]),
        differs=Difference(
            moto=["MessageId"], simulator="BadRequestException", why="moto ignores tags"
        ),
    ),
    Call(
        "sesv2",
        "send_email",
        mail({"Template": {"TemplateName": "t", "TemplateData": "{}"}}),
        differs=Difference(
            moto="NotImplementedError", simulator="NotFoundException", why=NOT_IN_MOTO
        ),
    ),
    Call(
        "sesv2",
        "create_email_template",
        {"TemplateName": "t", "TemplateContent": {"Subject": "x", "Text": "x"}},
        differs=Difference(moto="NotImplementedError", simulator=[], why=NOT_IN_MOTO),
    ),
    Call(
        "sesv2",
        "send_bulk_email",
        {
            "FromEmailAddress": "a@example.com",
            "DefaultContent": {"Template": {"TemplateName": "t"}},
            "BulkEmailEntries": [{"Destination": {"ToAddresses": ["b@example.com"]}}],
        },
        differs=Difference(
            moto="NotImplementedError", simulator=["BulkEmailEntryResults"], why=NOT_IN_MOTO
        ),
    ),
    Call(
        "sesv2",
        "get_account",
        {},
        lambda answer: answer["EnforcementStatus"],
        differs=Difference(moto="NotImplementedError", simulator="HEALTHY", why=NOT_IN_MOTO),
    ),
    Call(
        "sesv2",
        "get_suppressed_destination",
        {"EmailAddress": "b@example.com"},
        differs=Difference(
            moto="NotImplementedError", simulator="NotFoundException", why=NOT_IN_MOTO
        ),
    ),
]
SET = {"ConfigurationSetName": "c"}
RESOURCES = [
    Call("sesv2", "create_configuration_set", SET),
    Call(
        "sesv2",
        "create_configuration_set",
        SET,
        differs=Difference(
            moto="ConfigurationSetAlreadyExistsException",
            simulator="AlreadyExistsException",
            why="moto answers with a code of the v1 API",
        ),
    ),
    Call("sesv2", "get_configuration_set", SET, at("ConfigurationSetName")),
    Call(
        "sesv2",
        "get_configuration_set",
        SET,
        at("SendingOptions", "SendingEnabled"),
        differs=Difference(
            moto="False", simulator="True", why="a new configuration set sends on AWS"
        ),
    ),
    Call("sesv2", "get_configuration_set", {"ConfigurationSetName": "unknown"}),
    Call("sesv2", "list_configuration_sets", {}, at("ConfigurationSets")),
    Call(
        "sesv2",
        "get_configuration_set_event_destinations",
        SET,
        at("EventDestinations"),
        differs=Difference(moto="NotImplementedError", simulator="[]", why=NOT_IN_MOTO),
    ),
    Call("sesv2", "delete_configuration_set", SET),
    Call(
        "sesv2",
        "delete_configuration_set",
        SET,
        differs=Difference(
            moto="KeyError", simulator="NotFoundException", why="moto fails on an unknown set"
        ),
    ),
    Call("sesv2", "create_email_identity", {"EmailIdentity": "example.com"}, at("IdentityType")),
    Call("sesv2", "create_email_identity", {"EmailIdentity": "b@example.net"}, at("IdentityType")),
    Call(
        "sesv2",
        "create_email_identity",
        {"EmailIdentity": "example.com"},
        at("IdentityType"),
        differs=Difference(
            moto="'DOMAIN'",
            simulator="AlreadyExistsException",
            why="the model names the exception",
        ),
    ),
    Call("sesv2", "get_email_identity", {"EmailIdentity": "example.com"}, at("VerificationStatus")),
    Call(
        "sesv2",
        "get_email_identity",
        {"EmailIdentity": "example.com"},
        at("VerifiedForSendingStatus"),
        differs=Difference(
            moto="False", simulator="True", why="moto lets it send all the same: True is the truth"
        ),
    ),
    Call("sesv2", "get_email_identity", {"EmailIdentity": "example.org"}),
    Call("sesv2", "list_email_identities", {}, names("EmailIdentities", "IdentityName")),
    Call("sesv2", "list_email_identities", {}, names("EmailIdentities", "SendingEnabled")),
    Call("sesv2", "delete_email_identity", {"EmailIdentity": "example.com"}),
    Call(
        "sesv2",
        "delete_email_identity",
        {"EmailIdentity": "example.com"},
        differs=Difference(
            moto=[], simulator="NotFoundException", why="the model names the exception"
        ),
    ),
]
SUBSCRIPTION = {"SubscriptionArn": "{subscription}"}
NOTIFICATIONS = [
    Call("sqs", "create_queue", {"QueueName": "events"}),
    Call("sns", "create_topic", {"Name": "feedback"}, at("TopicArn")),
    Call("sns", "create_topic", {"Name": "feedback"}, at("TopicArn")),
    Call("sns", "create_topic", {"Name": "bad name"}),
    Call("sns", "list_topics", {}, at("Topics", -1)),
    Call(
        "sns",
        "get_topic_attributes",
        {"TopicArn": TOPIC},
        among("Attributes", "TopicArn", "Owner", "SubscriptionsConfirmed", "SubscriptionsPending"),
    ),
    Call("sns", "get_topic_attributes", {"TopicArn": TOPIC + "-gone"}),
    Call(
        "sns",
        "set_topic_attributes",
        {"TopicArn": TOPIC, "AttributeName": "SignatureVersion", "AttributeValue": "2"},
    ),
    Call(
        "sns",
        "subscribe",
        {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": QUEUE},
        lambda answer: without_account(answer["SubscriptionArn"].rpartition(":")[0]),
    ),
    Call("sns", "subscribe", {"TopicArn": TOPIC + "-gone", "Protocol": "sqs", "Endpoint": QUEUE}),
    Call(
        "sns",
        "get_subscription_attributes",
        SUBSCRIPTION,
        among(
            "Attributes",
            "PendingConfirmation",
            "ConfirmationWasAuthenticated",
            "Endpoint",
            "Protocol",
            "TopicArn",
            "RawMessageDelivery",
        ),
    ),
    Call(
        "sns",
        "set_subscription_attributes",
        {**SUBSCRIPTION, "AttributeName": "RawMessageDelivery", "AttributeValue": "true"},
    ),
    Call(
        "sns",
        "get_subscription_attributes",
        SUBSCRIPTION,
        among("Attributes", "RawMessageDelivery"),
    ),
    Call("sns", "get_subscription_attributes", {"SubscriptionArn": TOPIC + ":gone"}),
    Call("sns", "list_subscriptions", {}, names("Subscriptions", "Protocol")),
    Call(
        "sns",
        "list_subscriptions_by_topic",
        {"TopicArn": TOPIC},
        lambda answer: sorted(answer["Subscriptions"][0]),
    ),
    Call("sns", "publish", {"TopicArn": TOPIC, "Message": "x", "Subject": "y"}),
    Call("sns", "publish", {"TopicArn": TOPIC + "-gone", "Message": "x"}),
    Call("sns", "publish", {"TopicArn": TOPIC, "Message": "x" * 262_145}),
    Call("sns", "unsubscribe", SUBSCRIPTION),
    Call(
        "sns",
        "unsubscribe",
        SUBSCRIPTION,
        differs=Difference(moto=[], simulator="NotFound", why="the model names the exception"),
    ),
    Call(
        "sns",
        "subscribe",
        {"TopicArn": TOPIC, "Protocol": "http", "Endpoint": "http://127.0.0.1:1/sns"},
        lambda answer: answer["SubscriptionArn"].startswith("arn:"),
        differs=Difference(
            moto=True, simulator=False, why="moto confirms by itself and asks nobody"
        ),
    ),
    Call(
        "sns",
        "confirm_subscription",
        {"TopicArn": TOPIC, "Token": "wrong"},
        differs=Difference(
            moto=["SubscriptionArn"],
            simulator="InvalidParameter",
            why="moto takes any token",
        ),
    ),
    Call("sns", "delete_topic", {"TopicArn": TOPIC}),
    Call("sns", "delete_topic", {"TopicArn": TOPIC}),
]
IN_QUEUE = {"QueueUrl": "{queue}"}
QUEUES = [
    Call("sqs", "create_queue", {"QueueName": "events"}),
    Call("sqs", "create_queue", {"QueueName": "events"}),
    Call("sqs", "create_queue", {"QueueName": "events", "Attributes": {"DelaySeconds": "3"}}),
    Call("sqs", "create_queue", {"QueueName": "bad name"}),
    Call("sqs", "get_queue_url", {"QueueName": "events"}),
    Call("sqs", "get_queue_url", {"QueueName": "gone"}),
    Call("sqs", "list_queues", {}, lambda answer: len(answer["QueueUrls"])),
    Call(
        "sqs",
        "get_queue_attributes",
        {**IN_QUEUE, "AttributeNames": ["All"]},
        among(
            "Attributes",
            "QueueArn",
            "VisibilityTimeout",
            "MaximumMessageSize",
            "MessageRetentionPeriod",
            "ReceiveMessageWaitTimeSeconds",
            "DelaySeconds",
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
        ),
    ),
    Call("sqs", "get_queue_attributes", {**IN_QUEUE, "AttributeNames": ["Whim"]}),
    Call("sqs", "send_message", {**IN_QUEUE, "MessageBody": "one"}, at("MD5OfMessageBody")),
    Call(
        "sqs",
        "send_message",
        {**IN_QUEUE, "MessageBody": "\x01"},
        differs=Difference(
            moto=["MD5OfMessageBody", "MessageId"],
            simulator="InvalidMessageContents",
            why="the documentation lists the characters that are allowed",
        ),
    ),
    Call("sqs", "purge_queue", IN_QUEUE),
    Call("sqs", "purge_queue", IN_QUEUE),
    Call("sqs", "send_message", {**IN_QUEUE, "MessageBody": "two"}),
    Call("sqs", "receive_message", IN_QUEUE, names("Messages", "Body")),
    Call("sqs", "receive_message", IN_QUEUE),
    Call(
        "sqs",
        "change_message_visibility",
        {**IN_QUEUE, "ReceiptHandle": "{handle}", "VisibilityTimeout": 0},
    ),
    Call(
        "sqs",
        "receive_message",
        {**IN_QUEUE, "AttributeNames": ["ApproximateReceiveCount"], "VisibilityTimeout": 60},
        lambda answer: answer["Messages"][0]["Attributes"],
    ),
    Call(
        "sqs",
        "delete_message_batch",
        {
            **IN_QUEUE,
            "Entries": [
                {"Id": "a", "ReceiptHandle": "{handle}"},
                {"Id": "b", "ReceiptHandle": "nothing"},
            ],
        },
        lambda answer: (
            names("Successful", "Id")(answer),
            [(entry["Id"], entry["Code"]) for entry in answer["Failed"]],
        ),
    ),
    Call("sqs", "delete_message", {**IN_QUEUE, "ReceiptHandle": "{handle}"}),
    Call("sqs", "delete_message", {**IN_QUEUE, "ReceiptHandle": "nothing"}),
    Call(
        "sqs",
        "change_message_visibility",
        {**IN_QUEUE, "ReceiptHandle": "{handle}", "VisibilityTimeout": 0},
        differs=Difference(
            moto="ReceiptHandleIsInvalid",
            simulator="InvalidParameterValue",
            why="SQS says that the message does not exist; the handle is well formed",
        ),
    ),
    Call("sqs", "delete_message_batch", {**IN_QUEUE, "Entries": []}),
    Call("sqs", "receive_message", {**IN_QUEUE, "MaxNumberOfMessages": 11}),
    Call("sqs", "receive_message", {**IN_QUEUE, "WaitTimeSeconds": 21}),
    Call("sqs", "delete_queue", IN_QUEUE),
    Call("sqs", "receive_message", IN_QUEUE),
]


def on_moto(scenario: list[Call]) -> list[Any]:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with mock_aws():
        services = {call.service for call in scenario}
        clients = {
            service: boto3.client(service, region_name="eu-central-1", **keys)
            for service in services
        }
        return Runner(clients, ACCOUNTS[0]).run(scenario)


def on_simulator(url: str, scenario: list[Call]) -> list[Any]:
    clients = {call.service: client(call.service, url) for call in scenario}
    outcomes = Runner(clients, ACCOUNTS[1]).run(scenario)
    for made in clients.values():
        made.close()
    return outcomes


@pytest.mark.parametrize(
    "scenario",
    [SENDING, RESOURCES, NOTIFICATIONS, QUEUES],
    ids=["sending", "resources", "notifications", "queues"],
)
async def test_the_simulator_answers_as_moto_does_but_for_what_is_written_down(
    scenario: list[Call],
) -> None:
    moto = await asyncio.to_thread(on_moto, scenario)
    settings = quick_settings(configuration_sets=(), verify_identities=True)
    async with Simulator(settings) as simulator:
        simulated = await asyncio.to_thread(on_simulator, simulator.url, scenario)
    for number, call in enumerate(scenario):
        where = f"{number}: {call.operation}({call.arguments})"
        if call.differs is None:
            assert simulated[number] == moto[number], where
        else:
            assert moto[number] == call.differs.moto, where
            assert simulated[number] == call.differs.simulator, where
            assert call.differs.moto != call.differs.simulator, where
