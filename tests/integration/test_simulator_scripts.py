"""Events by script and by share: early, late, again, out of order, in every shape that SES has."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any

import aiohttp
import pytest

from streams.simulator.outcomes import BOUNCE_SUBTYPES, DELAY_TYPES, FEEDBACK_TYPES
from streams.simulator.server import Simulator
from streams.simulator.settings import EventTimes
from tests.simulator_rig import (
    QUICK,
    Control,
    Endpoint,
    client,
    endpoint,
    quick_settings,
    simple_mail,
    until,
)

VIRUS = ("X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + "EICAR-STANDARD-" + "ANTIVIRUS-TEST-FILE!$H+H*").encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A simulator with one confirmed subscriber."""

    simulator: Simulator
    subscriber: Endpoint
    control: Control
    ses: Any

    async def script(self, *steps: dict[str, Any], **changes: Any) -> None:
        await self.control.post("rules", rules=[{"match": "*", "script": list(steps), **changes}])

    async def send(self, to: str = "ann@example.com", **changes: Any) -> str:
        answer = await asyncio.to_thread(self.ses.send_email, **simple_mail(to, **changes))
        message_id: str = answer["MessageId"]
        return message_id

    def record(self, event: str) -> dict[str, Any]:
        (found,) = [item for item in self.subscriber.records if item.get("eventType") == event]
        return found

    @property
    def events(self) -> list[str]:
        """In the order in which they came."""
        return [record["eventType"] for record in self.subscriber.records]


@asynccontextmanager
async def scene(**changes: Any) -> AsyncIterator[Scene]:
    async with (
        endpoint() as subscriber,
        Simulator(quick_settings(subscribe=(subscriber.url,), **changes)) as simulator,
        aiohttp.ClientSession() as session,
    ):
        subscriber.simulator_url = simulator.url
        ses = client("sesv2", simulator.url)
        try:
            await until(lambda: len(subscriber.received) >= 2)
            yield Scene(
                simulator=simulator,
                subscriber=subscriber,
                control=Control(session, simulator.url),
                ses=ses,
            )
        finally:
            ses.close()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_script_is_followed_in_its_own_order() -> None:
    async with scene(concurrent_deliveries=1) as it:
        await it.script(
            {"event": "complaint", "after_ms": 40, "occurs_ms": 60},
            {"event": "delivery", "after_ms": 80, "occurs_ms": 10},
            {"event": "bounce", "after_ms": 120, "bounce_type": "Transient"},
        )
        await it.send()
        await it.control.quiet()
        assert it.events == ["Send", "Complaint", "Delivery", "Bounce"]
        delivered = at(it.record("Delivery")["delivery"]["timestamp"])
        complained = at(it.record("Complaint")["complaint"]["timestamp"])
        assert complained - delivered == timedelta(milliseconds=50)
        (line,) = await it.control.lines("ledger")
        assert line["outcomes"] == {"ann@example.com": "script"}
        assert [fact["event"] for fact in line["facts"]] == it.events


async def test_a_script_may_have_its_own_send() -> None:
    async with scene(concurrent_deliveries=1) as it:
        await it.script({"event": "send", "after_ms": 30}, {"event": "delivery"})
        await it.send()
        await it.control.quiet()
        assert it.events == ["Delivery", "Send"]


@pytest.mark.parametrize(("same_id", "ids"), [(True, 1), (False, 3)])
async def test_copies_come_under_the_same_or_under_other_sns_ids(same_id: bool, ids: int) -> None:
    async with scene() as it:
        await it.script(
            {"event": "complaint", "copies": 3, "same_id": same_id, "copies_ms": 5},
        )
        await it.send()
        state = await it.control.quiet()
        complaints = [
            item for item in it.subscriber.notifications if (item.record or {}).get("complaint")
        ]
        assert len(complaints) == 3
        assert len({item.envelope["MessageId"] for item in complaints}) == ids
        assert len({item.envelope["Message"] for item in complaints}) == 1
        (line,) = await it.control.lines("ledger")
        assert Counter(fact["event"] for fact in line["facts"])["Complaint"] == 1
        duplicates = "duplicates_same_id" if same_id else "duplicates_new_id"
        assert state["events"][duplicates] == 2


async def test_an_early_event_is_there_before_the_answer() -> None:
    async with scene() as it:
        await it.script({"event": "delivery", "early": True}, {"event": "complaint", "after_ms": 5})
        message_id = await it.send()
        assert it.subscriber.events(message_id)[:1] == ["Delivery"]
        state = await it.control.quiet()
        assert state["events"]["early"] == 1


async def test_an_early_event_that_nobody_takes_does_not_keep_the_answer() -> None:
    async with scene() as it:
        it.subscriber.status_of = lambda _received, _n: None
        await it.script({"event": "delivery", "early": True})
        assert await it.send()


async def test_all_events_of_a_share_of_messages_come_before_the_answer() -> None:
    times = EventTimes(send_ms=(0, 1), outcome_ms=(1, 2), feedback_ms=(1, 2), early_share=1.0)
    async with scene(event_times=times) as it:
        message_id = await it.send("complaint@simulator.amazonses.com")
        assert sorted(it.subscriber.events(message_id)) == ["Complaint", "Delivery", "Send"]


async def test_a_share_of_events_comes_late_in_an_old_envelope() -> None:
    times = EventTimes(
        send_ms=(0, 1), outcome_ms=(1, 2), late_share=0.5, late_ms=(40, 60), late_age_s=3600
    )
    async with scene(event_times=times) as it:
        for number in range(20):
            await it.send(f"u{number}@example.com")
        state = await it.control.quiet()
        late = [
            item
            for item in it.subscriber.notifications
            if at(json.loads(item.envelope["Message"])["mail"]["timestamp"])
            - at(item.envelope["Timestamp"])
            > timedelta(minutes=59)
        ]
        assert 0 < len(late) < 40
        assert state["events"]["late"] == len(late)


@pytest.mark.parametrize(
    ("bounce_type", "subtype"),
    [(kind, subtype) for kind, subtypes in BOUNCE_SUBTYPES.items() for subtype in subtypes],
)
async def test_every_bounce_can_be_had(bounce_type: str, subtype: str) -> None:
    async with scene() as it:
        await it.script({"event": "bounce", "bounce_type": bounce_type, "bounce_subtype": subtype})
        await it.send()
        await it.control.quiet()
        bounce = it.record("Bounce")["bounce"]
        assert (bounce["bounceType"], bounce["bounceSubType"]) == (bounce_type, subtype)


async def test_every_complaint_and_delay_can_be_had() -> None:
    async with scene() as it:
        for feedback in FEEDBACK_TYPES:
            await it.script({"event": "complaint", "feedback_type": feedback})
            await it.send(f"{feedback}@example.com")
        for delay in DELAY_TYPES:
            await it.script({"event": "delay", "delay_type": delay, "status": "4.9.9"})
            await it.send(f"{delay}@example.com")
        await it.script({"event": "complaint", "complaint_subtype": "OnAccountSuppressionList"})
        await it.send("listed@example.com")
        await it.control.quiet()
        complaints = [item["complaint"] for item in it.subscriber.records if "complaint" in item]
        delays = [
            item["deliveryDelay"] for item in it.subscriber.records if "deliveryDelay" in item
        ]
    types = {item.get("complaintFeedbackType", "none") for item in complaints}
    assert types == set(FEEDBACK_TYPES)
    assert {item["complaintSubType"] for item in complaints} == {None, "OnAccountSuppressionList"}
    assert {item["delayType"] for item in delays} == set(DELAY_TYPES)
    assert {item["delayedRecipients"][0]["status"] for item in delays} == {"4.9.9"}


async def test_the_remaining_events_have_their_shapes() -> None:
    async with scene(concurrent_deliveries=1) as it:
        await it.script(
            {"event": "open", "after_ms": 10},
            {"event": "click", "after_ms": 20, "link": "https://example.com/cart"},
            {"event": "subscription", "after_ms": 30},
            {"event": "auto-reply", "after_ms": 40},
            {"event": "rendering-failure", "after_ms": 50, "template_name": "t", "error": "No x."},
            {"event": "reject", "after_ms": 60},
        )
        await it.send()
        await it.control.quiet()
        assert it.events == [
            "Send",
            "Open",
            "Click",
            "Subscription",
            "Bounce",
            "Rendering Failure",
            "Reject",
        ]
        assert set(it.record("Open")["open"]) == {"ipAddress", "timestamp", "userAgent"}
        assert it.record("Click")["click"]["link"] == "https://example.com/cart"
        subscription = it.record("Subscription")["subscription"]
        assert subscription["newTopicPreferences"]["unsubscribeAll"] is True
        assert it.record("Bounce")["bounce"]["bouncedRecipients"] == [
            {"emailAddress": "ann@example.com"}
        ]
        failure = it.record("Rendering Failure")["failure"]
        assert failure == {"templateName": "t", "errorMessage": "No x."}


@pytest.mark.parametrize(
    ("outcome", "events"),
    [
        ("open", ["Delivery", "Open", "Send"]),
        ("click", ["Click", "Delivery", "Open", "Send"]),
        ("subscription", ["Delivery", "Send", "Subscription"]),
        ("rendering-failure", ["Rendering Failure"]),
    ],
)
async def test_rules_have_outcomes_with_engagement(outcome: str, events: list[str]) -> None:
    async with scene() as it:
        await it.control.post("rules", rules=[{"match": "*", "outcome": outcome}])
        await it.send()
        await it.control.quiet()
        assert sorted(it.events) == events


async def test_members_of_a_record_can_be_replaced_and_left_out() -> None:
    async with scene() as it:
        await it.script(
            {
                "event": "bounce",
                "fields": {"bounceSubType": "NeverHeardOf", "novelty": [1]},
                "omit": ["feedbackId"],
            }
        )
        await it.send()
        await it.control.quiet()
        bounce = it.record("Bounce")["bounce"]
        assert bounce["bounceSubType"] == "NeverHeardOf"
        assert bounce["novelty"] == [1]
        assert "feedbackId" not in bounce
        (line,) = await it.control.lines("ledger")
        details = {fact["event"]: fact["detail"] for fact in line["facts"]}
        assert details == {"Send": None, "Bounce": "Permanent/NeverHeardOf"}


async def test_unknown_members_can_stand_everywhere() -> None:
    async with scene(event_times=EventTimes(outcome_ms=(1, 2), unknown_fields=True)) as it:
        await it.send()
        await it.control.quiet()
        record = it.record("Delivery")
        for place in (record, record["mail"], record["delivery"]):
            assert "simulatedMember" in place


async def test_recipients_of_a_message_can_share_a_record() -> None:
    times = EventTimes(outcome_ms=(1, 2), merge_recipients=True)
    async with scene(event_times=times) as it:
        everyone = [f"u{number}@example.com" for number in range(3)]
        await it.control.post("rules", rules=[{"match": "u2@*", "outcome": "bounce"}])
        await it.send(Destination={"ToAddresses": everyone})
        await it.control.quiet()
        assert it.record("Delivery")["delivery"]["recipients"] == everyone[:2]
        assert len(it.record("Bounce")["bounce"]["bouncedRecipients"]) == 1
        (line,) = await it.control.lines("ledger")
        assert Counter(fact["event"] for fact in line["facts"]) == {
            "Send": 3,
            "Delivery": 2,
            "Bounce": 1,
        }


async def test_identities_notify_beside_event_publishing() -> None:
    async with scene() as it:
        await it.control.post("events", legacy="beside")
        await it.send("bounce@simulator.amazonses.com")
        await it.control.quiet()
        (legacy,) = [item for item in it.subscriber.records if "notificationType" in item]
        assert sorted(
            item["eventType"] for item in it.subscriber.records if "eventType" in item
        ) == [
            "Bounce",
            "Send",
        ]
        assert legacy["notificationType"] == "Bounce"
        assert legacy["bounce"] == it.record("Bounce")["bounce"]
        assert not {"tags", "headers", "commonHeaders", "headersTruncated"} & set(legacy["mail"])
        assert legacy["mail"]["sourceIp"] == "127.0.0.1"
        (line,) = await it.control.lines("ledger")
        assert [fact["event"] for fact in line["facts"]] == ["Send", "Bounce"]


async def test_identities_notify_without_a_configuration_set() -> None:
    async with scene() as it:
        await it.control.post("events", legacy="instead", legacy_headers=True)
        mail = simple_mail("complaint@simulator.amazonses.com")
        del mail["ConfigurationSetName"]
        await asyncio.to_thread(it.ses.send_email, **mail)
        await it.control.quiet()
        assert [item["notificationType"] for item in it.subscriber.records] == [
            "Delivery",
            "Complaint",
        ]
        headers = it.subscriber.records[0]["mail"]["headers"]
        assert {"name": "Subject", "value": "Your order"} in headers


async def test_one_event_of_a_script_can_be_of_the_identity() -> None:
    async with scene() as it:
        await it.script({"event": "delivery"}, {"event": "bounce", "after_ms": 10, "legacy": True})
        await it.send()
        await it.control.quiet()
        kinds = [
            item.get("eventType") or item["notificationType"] for item in it.subscriber.records
        ]
        assert Counter(kinds) == {"Send": 1, "Delivery": 1, "Bounce": 1}
        (bounce,) = [item for item in it.subscriber.records if "bounce" in item]
        assert "eventType" not in bounce


def _raw(payload: bytes) -> dict[str, Any]:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.com", "b@example.com", "x"
    message.set_content("See attachment.")
    message.add_attachment(
        payload, maintype="application", subtype="octet-stream", filename="a.txt"
    )
    return {"Raw": {"Data": message.as_bytes()}}


def _simple(payload: bytes) -> dict[str, Any]:
    simple = simple_mail()["Content"]["Simple"]
    return {"Simple": simple | {"Attachments": [{"FileName": "a.txt", "RawContent": payload}]}}


@pytest.mark.parametrize("content", [_raw, _simple])
async def test_a_virus_is_accepted_and_then_rejected(content: Any) -> None:
    async with scene(event_times=QUICK) as it:
        rejected = await it.send(Content=content(VIRUS))
        harmless = await it.send(Content=content(b"nothing"))
        await it.control.quiet()
        assert sorted(it.subscriber.events(rejected)) == ["Reject", "Send"]
        assert sorted(it.subscriber.events(harmless)) == ["Delivery", "Send"]
        assert it.record("Reject")["reject"] == {"reason": "Bad content"}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            {"event": "vanish"},
            "Field 'event' in step 0 of rule 0 must be one of auto-reply, bounce, ",
        ),
        ({"event": "open", "legacy": True}, "Field 'legacy' in step 0 of rule 0 is possible "),
        ({"event": "open", "copies": 0}, "Field 'copies' in step 0 of rule 0 must be a whole "),
        (
            {"event": "open", "after_ms": [5, 1]},
            "Field 'after_ms' in step 0 of rule 0 must be whole",
        ),
        (
            {"event": "open", "link": "x"},
            "Unknown field 'link' in step 0 of rule 0; known fields: ",
        ),
    ],
)
async def test_a_bad_step_is_named(step: dict[str, Any], message: str) -> None:
    async with Simulator(quick_settings()) as simulator, aiohttp.ClientSession() as session:
        rules = [{"match": "*", "script": [step]}]
        told = await Control(session, simulator.url).refusal("rules", rules=rules)
        assert told.startswith(message)
