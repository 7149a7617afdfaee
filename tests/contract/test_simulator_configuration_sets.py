"""Unmodified boto3 clients and the simulator's configuration sets and identities understand each other."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import ClientError

from streams.simulator.server import Simulator
from tests.simulator_rig import (
    TOPIC_ARN,
    Control,
    Endpoint,
    client,
    endpoint,
    quick_settings,
    simple_mail,
    until,
)

ALL = ["SEND", "DELIVERY", "BOUNCE"]


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings()) as running:
        yield running


@pytest.fixture
async def ses(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sesv2", simulator.url)
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


async def error_of(call: Any, **arguments: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **arguments)
    return caught.value


def destination(topic: str = TOPIC_ARN, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "Enabled": True,
        "MatchingEventTypes": ALL,
        "SnsDestination": {"TopicArn": topic},
    }
    return given | changes


async def second_topic(simulator: Simulator) -> str:
    sns = client("sns", simulator.url)
    answer = await asyncio.to_thread(sns.create_topic, Name="second")
    sns.close()
    arn: str = answer["TopicArn"]
    return arn


async def subscribe(control: Control, subscriber: Endpoint, topic: str) -> None:
    await control.post("subscriptions", endpoint=subscriber.url, topic=topic)
    await control.until(lambda state: state["subscriptions"][0]["state"] == "confirmed")


async def test_a_configuration_set_is_created_read_changed_and_deleted(ses: Any) -> None:
    await asyncio.to_thread(
        ses.create_configuration_set,
        ConfigurationSetName="other",
        SendingOptions={"SendingEnabled": True},
        SuppressionOptions={"SuppressedReasons": ["BOUNCE"]},
        DeliveryOptions={"TlsPolicy": "REQUIRE", "MaxDeliverySeconds": 300},
        Tags=[{"Key": "stage", "Value": "test"}],
    )
    again = await error_of(ses.create_configuration_set, ConfigurationSetName="other")
    assert isinstance(again, ses.exceptions.AlreadyExistsException)
    found = await asyncio.to_thread(ses.get_configuration_set, ConfigurationSetName="other")
    assert found["SendingOptions"] == {"SendingEnabled": True}
    assert found["SuppressionOptions"] == {"SuppressedReasons": ["BOUNCE"]}
    assert found["DeliveryOptions"] == {"TlsPolicy": "REQUIRE", "MaxDeliverySeconds": 300}
    assert found["Tags"] == [{"Key": "stage", "Value": "test"}]
    listed = await asyncio.to_thread(ses.list_configuration_sets)
    assert listed["ConfigurationSets"] == ["mailstreams", "other"]
    for call, arguments in (
        (ses.put_configuration_set_sending_options, {"SendingEnabled": False}),
        (ses.put_configuration_set_suppression_options, {"SuppressedReasons": []}),
        (ses.put_configuration_set_delivery_options, {"TlsPolicy": "OPTIONAL"}),
        (ses.put_configuration_set_tracking_options, {"CustomRedirectDomain": "t.example.com"}),
        (ses.put_configuration_set_reputation_options, {"ReputationMetricsEnabled": True}),
    ):
        await asyncio.to_thread(call, ConfigurationSetName="other", **arguments)
    found = await asyncio.to_thread(ses.get_configuration_set, ConfigurationSetName="other")
    assert found["SendingOptions"] == {"SendingEnabled": False}
    assert found["SuppressionOptions"] == {"SuppressedReasons": []}
    assert found["DeliveryOptions"] == {"TlsPolicy": "OPTIONAL"}
    assert found["TrackingOptions"]["CustomRedirectDomain"] == "t.example.com"
    assert found["ReputationOptions"]["ReputationMetricsEnabled"] is True
    await asyncio.to_thread(ses.delete_configuration_set, ConfigurationSetName="other")
    for call in (ses.get_configuration_set, ses.delete_configuration_set):
        error = await error_of(call, ConfigurationSetName="other")
        assert isinstance(error, ses.exceptions.NotFoundException)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ConfigurationSetName": "with space"},
        {"DeliveryOptions": {"MaxDeliverySeconds": 50_401}},
        {"SuppressionOptions": {"SuppressedReasons": ["WHIM"]}},
        {"VdmOptions": {"DashboardOptions": {"EngagementMetrics": "ENABLED"}}},
    ],
)
async def test_what_a_set_cannot_be_is_refused(ses: Any, arguments: dict[str, Any]) -> None:
    given = {"ConfigurationSetName": "other"} | arguments
    error = await error_of(ses.create_configuration_set, **given)
    assert isinstance(error, ses.exceptions.BadRequestException)


async def test_a_set_that_is_paused_sends_nothing(simulator: Simulator, ses: Any) -> None:
    await asyncio.to_thread(
        ses.put_configuration_set_sending_options,
        ConfigurationSetName="mailstreams",
        SendingEnabled=False,
    )
    error = await error_of(ses.send_email, **simple_mail())
    assert isinstance(error, ses.exceptions.SendingPausedException)
    mail = simple_mail()
    del mail["ConfigurationSetName"]
    await asyncio.to_thread(ses.send_email, **mail)
    assert len(simulator.ledger.acceptances) == 1


async def test_a_set_overrides_the_reasons_of_the_account(simulator: Simulator, ses: Any) -> None:
    await asyncio.to_thread(
        ses.put_suppressed_destination, EmailAddress="ann@example.com", Reason="BOUNCE"
    )

    async def fate() -> str:
        answer = await asyncio.to_thread(ses.send_email, **simple_mail())
        acceptance = simulator.ledger.find(answer["MessageId"])
        assert acceptance is not None
        outcome: str = acceptance.outcomes["ann@example.com"].fate
        return outcome

    assert await fate() == "bounce"
    for reasons, expected in (
        (["COMPLAINT"], "delivered"),
        ([], "delivered"),
        (["BOUNCE"], "bounce"),
    ):
        await asyncio.to_thread(
            ses.put_configuration_set_suppression_options,
            ConfigurationSetName="mailstreams",
            SuppressedReasons=reasons,
        )
        assert await fate() == expected


async def test_a_new_event_destination_is_validated_and_hears_only_what_it_matches(
    simulator: Simulator, ses: Any, control: Control, subscriber: Endpoint
) -> None:
    topic = await second_topic(simulator)
    await subscribe(control, subscriber, topic)
    await asyncio.to_thread(ses.create_configuration_set, ConfigurationSetName="other")
    await asyncio.to_thread(
        ses.create_configuration_set_event_destination,
        ConfigurationSetName="other",
        EventDestinationName="feedback",
        EventDestination=destination(topic, MatchingEventTypes=["BOUNCE"]),
    )
    await until(lambda: len(subscriber.received) == 2)
    assert subscriber.received[1].envelope["Message"] == (
        "Successfully validated SNS topic for Amazon SES event publishing."
    )
    mail = simple_mail("bounce@simulator.amazonses.com", ConfigurationSetName="other")
    answer = await asyncio.to_thread(ses.send_email, **mail)
    await control.quiet()
    assert subscriber.events(answer["MessageId"]) == ["Bounce"]
    (record,) = subscriber.records
    assert record["mail"]["tags"]["ses:configuration-set"] == ["other"]
    acceptance = simulator.ledger.find(answer["MessageId"])
    assert acceptance is not None
    assert sorted((fact.event, fact.subscribers) for fact in acceptance.facts) == [
        ("Bounce", 1),
        ("Send", 0),
    ]


async def test_event_destinations_are_read_changed_and_deleted(
    simulator: Simulator, ses: Any, control: Control, subscriber: Endpoint
) -> None:
    topic = await second_topic(simulator)
    await subscribe(control, subscriber, topic)
    named = {"ConfigurationSetName": "mailstreams", "EventDestinationName": "second"}
    await asyncio.to_thread(
        ses.create_configuration_set_event_destination,
        **named,
        EventDestination=destination(topic),
    )
    again = await error_of(
        ses.create_configuration_set_event_destination,
        **named,
        EventDestination=destination(topic),
    )
    assert isinstance(again, ses.exceptions.AlreadyExistsException)
    found = await asyncio.to_thread(
        ses.get_configuration_set_event_destinations, ConfigurationSetName="mailstreams"
    )
    first, second = found["EventDestinations"]
    assert first["SnsDestination"] == {"TopicArn": TOPIC_ARN}
    assert len(first["MatchingEventTypes"]) == 10
    assert second == {"Name": "second", **destination(topic)}
    first_answer = await asyncio.to_thread(ses.send_email, **simple_mail())
    await control.quiet()
    await asyncio.to_thread(
        ses.update_configuration_set_event_destination,
        **named,
        EventDestination=destination(topic, Enabled=False),
    )
    second_answer = await asyncio.to_thread(ses.send_email, **simple_mail())
    await control.quiet()
    assert sorted(subscriber.events(first_answer["MessageId"])) == ["Delivery", "Send"]
    assert subscriber.events(second_answer["MessageId"]) == []
    await asyncio.to_thread(ses.delete_configuration_set_event_destination, **named)
    error = await error_of(ses.delete_configuration_set_event_destination, **named)
    assert isinstance(error, ses.exceptions.NotFoundException)


@pytest.mark.parametrize(
    "changes",
    [
        {"SnsDestination": {"TopicArn": TOPIC_ARN + "-gone"}},
        {"MatchingEventTypes": ["WHIM"]},
        {"MatchingEventTypes": []},
        {"EventBridgeDestination": {"EventBusArn": "arn:aws:events:eu-central-1:1:event-bus/x"}},
    ],
)
async def test_a_destination_that_cannot_be_is_refused(ses: Any, changes: dict[str, Any]) -> None:
    error = await error_of(
        ses.create_configuration_set_event_destination,
        ConfigurationSetName="mailstreams",
        EventDestinationName="second",
        EventDestination=destination(**changes),
    )
    assert isinstance(error, ses.exceptions.BadRequestException)


async def test_identities_are_created_read_listed_and_deleted(ses: Any) -> None:
    made = await asyncio.to_thread(ses.create_email_identity, EmailIdentity="example.com")
    assert (made["IdentityType"], made["VerifiedForSendingStatus"]) == ("DOMAIN", True)
    await asyncio.to_thread(
        ses.create_email_identity,
        EmailIdentity="ann@example.org",
        ConfigurationSetName="mailstreams",
    )
    again = await error_of(ses.create_email_identity, EmailIdentity="Example.com")
    assert isinstance(again, ses.exceptions.AlreadyExistsException)
    found = await asyncio.to_thread(ses.get_email_identity, EmailIdentity="ann@example.org")
    assert found["IdentityType"] == "EMAIL_ADDRESS"
    assert found["VerificationStatus"] == "SUCCESS"
    assert found["ConfigurationSetName"] == "mailstreams"
    listed = await asyncio.to_thread(ses.list_email_identities)
    assert [item["IdentityName"] for item in listed["EmailIdentities"]] == [
        "example.com",
        "ann@example.org",
    ]
    await asyncio.to_thread(ses.delete_email_identity, EmailIdentity="example.com")
    for call in (ses.get_email_identity, ses.delete_email_identity):
        error = await error_of(call, EmailIdentity="example.com")
        assert isinstance(error, ses.exceptions.NotFoundException)
    bad = await error_of(ses.create_email_identity, EmailIdentity="not a domain")
    assert isinstance(bad, ses.exceptions.BadRequestException)


async def test_senders_are_checked_once_that_is_switched_on(ses: Any, control: Control) -> None:
    await asyncio.to_thread(ses.send_email, **simple_mail())
    await control.post("account", verify_identities=True)
    error = await error_of(ses.send_email, **simple_mail())
    assert isinstance(error, ses.exceptions.MessageRejected)
    assert error.response["Error"]["Message"] == (
        "Email address is not verified. The following identities failed the check in region "
        "EU-CENTRAL-1: shop@example.com"
    )
    await asyncio.to_thread(ses.create_email_identity, EmailIdentity="example.com")
    await asyncio.to_thread(ses.send_email, **simple_mail())
    await control.post("identities", identity="example.com", verified=False)
    assert isinstance(
        await error_of(ses.send_email, **simple_mail()), ses.exceptions.MessageRejected
    )


async def test_the_sandbox_sends_to_verified_recipients_and_the_mailbox_simulator_only(
    ses: Any, control: Control
) -> None:
    await control.post("account", production_access=False)
    error = await error_of(ses.send_email, **simple_mail("ann@example.net"))
    assert isinstance(error, ses.exceptions.MessageRejected)
    assert error.response["Error"]["Message"].endswith("EU-CENTRAL-1: ann@example.net")
    await asyncio.to_thread(ses.send_email, **simple_mail("success@simulator.amazonses.com"))
    await asyncio.to_thread(ses.create_email_identity, EmailIdentity="ann@example.net")
    await asyncio.to_thread(ses.send_email, **simple_mail("ann@example.net"))


async def test_an_identity_has_a_default_configuration_set(simulator: Simulator, ses: Any) -> None:
    mail = simple_mail()
    del mail["ConfigurationSetName"]
    await asyncio.to_thread(ses.send_email, **mail)
    await asyncio.to_thread(
        ses.create_email_identity, EmailIdentity="example.com", ConfigurationSetName="mailstreams"
    )
    await asyncio.to_thread(ses.send_email, **mail)
    assert [item.submission.configuration_set for item in simulator.ledger.acceptances] == [
        None,
        "mailstreams",
    ]
