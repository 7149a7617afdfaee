"""What the simulator publishes after acceptance, how it is delivered, and what the ledger says of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from streams.simulator.server import Simulator
from streams.simulator.settings import EventTimes
from tests.simulator_rig import (
    QUICK,
    TOPIC_ARN,
    Control,
    Endpoint,
    Received,
    client,
    endpoint,
    quick_settings,
    simple_mail,
    until,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A simulator with one confirmed subscriber."""

    simulator: Simulator
    subscriber: Endpoint
    control: Control
    ses: Any

    async def send(self, to: str = "ann@example.com", **changes: Any) -> str:
        answer = await asyncio.to_thread(self.ses.send_email, **simple_mail(to, **changes))
        message_id: str = answer["MessageId"]
        return message_id

    def record(self, message_id: str, event: str) -> dict[str, Any]:
        (found,) = [
            record
            for record in self.subscriber.records
            if record["mail"]["messageId"] == message_id and record["eventType"] == event
        ]
        return found


@asynccontextmanager
async def scene(**changes: Any) -> AsyncIterator[Scene]:
    async with (
        endpoint() as subscriber,
        Simulator(quick_settings(subscribe=(subscriber.url,), **changes)) as simulator,
        aiohttp.ClientSession() as session,
    ):
        subscriber.simulator_url = simulator.url
        control = Control(session, simulator.url)
        ses = client("sesv2", simulator.url)
        try:
            await until(lambda: len(subscriber.received) >= 2)
            yield Scene(simulator=simulator, subscriber=subscriber, control=control, ses=ses)
        finally:
            ses.close()


async def test_every_fate_publishes_its_events_with_the_tags_of_the_call() -> None:
    fates = {
        "success@simulator.amazonses.com": ["Send", "Delivery"],
        "bounce+1@simulator.amazonses.com": ["Send", "Bounce"],
        "complaint@simulator.amazonses.com": ["Send", "Delivery", "Complaint"],
        "ooto@simulator.amazonses.com": ["Send", "Delivery", "Bounce"],
        "suppressionlist@simulator.amazonses.com": ["Send", "Bounce"],
        "late@example.com": ["Send", "DeliveryDelay", "Delivery"],
        "virus@example.com": ["Send", "Reject"],
        "ann@example.com": ["Send", "Delivery"],
    }
    rules = [
        {"match": "late@*", "outcome": "delay", "delay_type": "MailboxFull"},
        {"match": "virus@*", "outcome": "reject"},
    ]
    async with scene() as it:
        await it.control.post("rules", rules=rules)
        sent = {await it.send(address): address for address in fates}
        await it.control.quiet()
        for message_id, address in sent.items():
            assert sorted(it.subscriber.events(message_id)) == sorted(fates[address]), address
        for record in it.subscriber.records:
            assert record["mail"]["tags"]["attempt"] == ["att-1"]
            assert record["mail"]["tags"]["outbox"] == ["out-1"]
        suppressed = it.record(_id(sent, "suppressionlist@simulator.amazonses.com"), "Bounce")
        assert suppressed["bounce"]["bounceSubType"] == "Suppressed"
        reject = it.record(_id(sent, "virus@example.com"), "Reject")
        assert reject["reject"] == {"reason": "Bad content"}


def _id(sent: dict[str, str], address: str) -> str:
    return next(message_id for message_id, to in sent.items() if to == address)


async def test_a_script_knows_in_advance_who_will_bounce() -> None:
    addresses = [f"user{n}@example.com" for n in range(60)]
    async with scene() as it:
        await it.control.post(
            "rules",
            rules=[{"match": "*@example.com", "share": 0.3, "outcome": "bounce"}],
            seed="known",
        )
        told = (await it.control.post("outcomes", addresses=addresses))["outcomes"]
        for address in addresses:
            await it.send(address)
        await it.control.quiet()
        ledger = await it.control.lines("ledger")
        bounced = {
            fact["recipient"]
            for line in ledger
            for fact in line["facts"]
            if fact["event"] == "Bounce"
        }
        assert bounced == {address for address in addresses if told[address]["outcome"] == "bounce"}
        assert 0 < len(bounced) < len(addresses)


async def test_the_ledger_holds_what_was_accepted_and_what_was_published() -> None:
    async with scene() as it:
        first = await it.send("bounce@simulator.amazonses.com")
        await it.send("bob@example.com", EmailTags=[{"Name": "outbox", "Value": "out-1"}])
        with pytest.raises(it.ses.exceptions.BadRequestException):
            await it.send("nobody")
        state = await it.control.quiet()
        lines = await it.control.lines("ledger")
        assert [line["sequence"] for line in lines] == [1, 2]
        assert lines[0]["message_id"] == first
        assert (lines[0]["attempt"], lines[0]["outbox"]) == ("att-1", "out-1")
        assert (lines[1]["attempt"], lines[1]["outbox"]) == (None, "out-1")
        assert lines[0]["outcomes"] == {"bounce@simulator.amazonses.com": "bounce"}
        assert lines[0]["answer"] == "sent"
        assert [(fact["event"], fact["detail"]) for fact in lines[0]["facts"]] == [
            ("Send", None),
            ("Bounce", "Permanent/General"),
        ]
        assert len(lines[0]["content_digest"]) == 64
        assert lines == await it.control.lines("ledger?after=0")
        assert lines[1:] == await it.control.lines("ledger?after=1")
        assert state["accepted"] == state["accepted_recipients"] == 2
        assert state["accepted_again"] == {"attempt": 0, "outbox": 1}
        assert state["refused"] == {"BadRequestException": 1}
        assert state["events"]["published"] == state["events"]["delivered"] == 4
        message = await it.control.get(f"messages/{first}")
        assert message["request"]["Content"] == simple_mail()["Content"]


async def test_a_message_without_a_configuration_set_has_no_events() -> None:
    async with scene() as it:
        await asyncio.to_thread(
            it.ses.send_email,
            FromEmailAddress="shop@example.com",
            Destination={"ToAddresses": ["ann@example.com"]},
            Content=simple_mail()["Content"],
        )
        state = await it.control.get("state")
        assert state["accepted"] == 1
        assert state["events"]["pending"] == 0
        assert (await it.control.lines("ledger"))[0]["facts"] == []


async def test_a_suppressed_address_is_accepted_and_bounces() -> None:
    async with scene() as it:
        await asyncio.to_thread(
            it.ses.put_suppressed_destination, EmailAddress="ann@example.com", Reason="COMPLAINT"
        )
        message_id = await it.send("Ann@example.com")
        await it.control.quiet()
        bounce = it.record(message_id, "Bounce")["bounce"]
        assert (bounce["bounceType"], bounce["bounceSubType"]) == (
            "Permanent",
            "OnAccountSuppressionList",
        )


async def test_hard_bounces_and_complaints_go_to_the_suppression_list_by_themselves() -> None:
    rules = [
        {"match": "gone@*", "outcome": "bounce", "bounce_subtype": "NoEmail"},
        {"match": "full@*", "outcome": "bounce", "bounce_type": "Transient"},
        {"match": "angry@*", "outcome": "complaint"},
        {"match": "happy@*", "outcome": "complaint", "feedback_type": "not-spam"},
    ]
    async with scene() as it:
        await it.control.post("rules", rules=rules)
        names = ("gone", "full", "angry", "happy")
        for address in [*(f"{n}@example.com" for n in names), "bounce@simulator.amazonses.com"]:
            await it.send(address)
        await it.control.quiet()
        listed = await asyncio.to_thread(it.ses.list_suppressed_destinations)
        reasons = {
            entry["EmailAddress"]: entry["Reason"]
            for entry in listed["SuppressedDestinationSummaries"]
        }
        assert reasons == {"gone@example.com": "BOUNCE", "angry@example.com": "COMPLAINT"}
        entry = await asyncio.to_thread(
            it.ses.get_suppressed_destination, EmailAddress="gone@example.com"
        )
        assert entry["SuppressedDestination"]["Attributes"]["MessageId"]


async def test_a_server_error_is_tried_again_with_the_same_message_id() -> None:
    async with scene() as it:
        tries: Counter[str] = Counter()

        def fail_twice(received: Received, _number: int) -> int:
            message_id = received.headers["x-amz-sns-message-id"]
            tries[message_id] += 1
            return 503 if tries[message_id] <= 2 else 200

        it.subscriber.status_of = fail_twice
        await it.send()
        state = await it.control.quiet()
        assert sorted(tries.values()) == [3, 3]
        bodies = {(r.headers["x-amz-sns-message-id"], r.text) for r in it.subscriber.notifications}
        assert len(bodies) == 2
        assert state["events"]["delivered"] == 2
        assert state["events"]["retries"] == 4


async def test_a_client_error_is_a_dead_letter_at_once() -> None:
    async with scene() as it:
        it.subscriber.status_of = lambda _received, _number: 403
        message_id = await it.send()
        state = await it.control.quiet()
        letters = (await it.control.get("dead-letters"))["dead_letters"]
        assert state["events"]["dead"] == len(letters) == 2
        assert state["events"]["retries"] == 0
        assert {letter["tries"] for letter in letters} == {1}
        assert {letter["error"] for letter in letters} == {"status 403"}
        assert all(message_id in letter["body"]["Message"] for letter in letters)
        assert {letter["queue"] for letter in letters} == {None}


async def test_what_fails_for_good_is_a_dead_letter_after_four_tries() -> None:
    async with scene() as it:
        it.subscriber.status_of = lambda _received, _number: 500
        await it.send()
        await it.control.quiet()
        letters = (await it.control.get("dead-letters"))["dead_letters"]
        assert [letter["tries"] for letter in letters] == [4, 4]


async def test_a_redrive_policy_names_the_queue_of_the_dead_letters() -> None:
    async with scene() as it:
        queue = "arn:aws:sqs:eu-central-1:111122223333:dead"
        sns = client("sns", it.simulator.url)
        (subscription,) = (await it.control.get("state"))["subscriptions"]
        await asyncio.to_thread(
            sns.set_subscription_attributes,
            SubscriptionArn=subscription["arn"],
            AttributeName="RedrivePolicy",
            AttributeValue=f'{{"deadLetterTargetArn": "{queue}"}}',
        )
        sns.close()
        it.subscriber.status_of = lambda _received, _number: 400
        await it.send()
        await it.control.quiet()
        letters = (await it.control.get("dead-letters"))["dead_letters"]
        assert {letter["queue"] for letter in letters} == {queue}


async def test_an_endpoint_that_does_not_answer_in_time_is_tried_again() -> None:
    async with scene(delivery_timeout_s=0.2) as it:
        seen: set[str] = set()

        def hang_once(received: Received, _number: int) -> int | None:
            message_id = received.headers["x-amz-sns-message-id"]
            if message_id in seen:
                return 200
            seen.add(message_id)
            return None

        it.subscriber.status_of = hang_once
        await it.send()
        state = await it.control.quiet()
        assert state["events"]["delivered"] == state["events"]["retries"] == 2


async def test_an_endpoint_that_is_away_is_subscribed_and_served_when_it_is_back() -> None:
    async with scene(retry_time_scale=0.02) as it:
        async with endpoint() as away:
            port = int(away.url.rpartition(":")[2].partition("/")[0])
        await it.control.post("subscriptions", endpoint=away.url)
        states = {
            s["endpoint"]: s["state"] for s in (await it.control.get("state"))["subscriptions"]
        }
        assert states == {it.subscriber.url: "confirmed", away.url: "pending"}
        async with endpoint(port) as back:
            back.simulator_url = it.simulator.url
            await until(lambda: any(r.kind == "Notification" for r in back.received))
            message_id = await it.send()
            await until(lambda: len(back.events(message_id)) == 2)


async def test_one_fact_can_be_delivered_twice_under_the_same_and_under_another_id() -> None:
    async with scene(event_times=EventTimes(outcome_ms=(1, 2), duplicate_share=1.0)) as it:
        for number in range(10):
            await it.send(f"user{number}@example.com")
        state = await it.control.quiet()
        events = state["events"]
        texts = Counter(item.envelope["Message"] for item in it.subscriber.notifications)
        ids = {item.envelope["MessageId"] for item in it.subscriber.notifications}
        assert events["published"] == len(texts) == 20
        assert set(texts.values()) == {2}
        assert events["duplicates_same_id"] + events["duplicates_new_id"] == 20
        assert min(events["duplicates_same_id"], events["duplicates_new_id"]) > 0
        assert len(ids) == 20 + events["duplicates_new_id"]
        assert events["delivered"] == 40
        ledger = await it.control.lines("ledger")
        assert sum(len(line["facts"]) for line in ledger) == 20


async def test_events_can_be_held_until_they_are_released() -> None:
    async with scene() as it:
        await it.control.post("hold", events=True)
        message_id = await it.send()
        assert (await it.control.get("state"))["events"]["planned"] == 2
        assert it.subscriber.events(message_id) == []
        await it.control.post("hold", events=False)
        await it.control.quiet()
        assert sorted(it.subscriber.events(message_id)) == ["Delivery", "Send"]


async def test_reordered_events_keep_their_own_times() -> None:
    times = EventTimes(send_ms=(0, 1), outcome_ms=(5, 10), feedback_ms=(5, 10), reorder_share=1.0)
    async with scene(event_times=times) as it:
        for number in range(12):
            await it.send(f"complaint+{number}@simulator.amazonses.com")
        await it.control.quiet()
        ledger = await it.control.lines("ledger")
        orders = [tuple(fact["event"] for fact in line["facts"]) for line in ledger]
        assert len(set(orders)) > 1
        for line in ledger:
            by_time = sorted(line["facts"], key=lambda fact: str(fact["occurred_at"]))
            assert by_time[0]["event"] == "Send"


async def test_credentials_in_the_endpoint_are_sent_only_when_asked_for() -> None:
    async with endpoint() as guarded, Simulator(quick_settings()) as simulator:
        guarded.demands = 'Basic realm="events"'
        sns = client("sns", simulator.url)
        await asyncio.to_thread(
            sns.subscribe,
            TopicArn=TOPIC_ARN,
            Protocol="http",
            Endpoint=guarded.url.replace("http://", "http://user:pass%20word@"),
        )
        sns.close()
        await until(lambda: len(guarded.received) == 2)
        asked, answered = guarded.received
        assert "authorization" not in asked.headers
        assert answered.headers["authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="


async def test_bad_documents_are_refused_in_one_sentence_and_change_nothing() -> None:
    async with scene() as it:
        before = await it.control.get("state")
        assert await it.control.refusal("hold", answer=True) == (
            "Unknown field 'answer'; known fields: answers, events."
        )
        assert await it.control.refusal("account", rate=5, rat=6) == (
            "Unknown field 'rat'; known fields: rate, burst_s, quota, sending_enabled, "
            "enforcement_status, production_access, suspended, "
            "verify_identities."
        )
        assert await it.control.refusal("account", rate=5, quota="x") == (
            "Field 'quota' must be a number of at least -1."
        )
        assert await it.control.refusal("events", send_ms=[5, 1]) == (
            "Field 'send_ms' must be two whole milliseconds, from and to."
        )
        assert await it.control.refusal("topic", signature_version="3") == (
            "Field 'signature_version' must be one of 1, 2, mixed."
        )
        assert (await it.control.get("state"))["account"] == before["account"]


async def test_limits_can_be_changed_while_it_runs() -> None:
    async with scene(event_times=QUICK) as it:
        await it.control.post("account", rate=14, quota=50_000)
        quota = (await asyncio.to_thread(it.ses.get_account))["SendQuota"]
        assert (quota["MaxSendRate"], quota["Max24HourSend"]) == (14.0, 50_000.0)
        await it.control.post("account", suspended=True)
        with pytest.raises(it.ses.exceptions.AccountSuspendedException):
            await it.send()
