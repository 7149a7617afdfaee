"""The whole sender on real PostgreSQL and Kafka: from a committed row to SES and back."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

import devservers
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.attempts import Email
from streams.domain.mail_content import send_email_body as make_body
from streams.domain.templates import Content, Renderer, Template
from streams.domain.topics import Lane, Topics, unreadable
from streams.sending import signing
from streams.sending.dispatch import IDLE_S, Dispatch
from streams.suppression_table import SuppressionTable
from tests.integration.sender_rig import (
    Rig,
    hang_up,
    ready,
    refusing,
    rig_on,
    running,
    tag,
    until,
)
from tests.integration.sender_rows import due_of, execute, insert, one, row_of

pytestmark = pytest.mark.servers


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


async def records_in(rig: Rig, topic: str) -> int:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=rig.bootstrap_servers)
    await consumer.start()
    try:
        numbers = consumer.partitions_for_topic(topic) or ()
        partitions = [TopicPartition(topic, n) for n in numbers]
        return sum((await consumer.end_offsets(partitions)).values())
    finally:
        await consumer.stop()


async def test_committed_rows_are_sent_once_each_and_their_offsets_committed(rig: Rig) -> None:
    ids = await rig.fill(200)
    ids += await rig.fill(50, lane="bulk", tenant="shop")
    async with running(rig.sender()):
        await rig.all_in("submitted", 250)
        await rig.all_committed()
    assert sorted(rig.ses.accepted) == sorted(map(str, ids))
    attempts = await one(
        rig.database,
        "SELECT count(*) AS n, count(DISTINCT provider_message_id) AS ids FROM email_attempt WHERE outcome = 'accepted'",
    )
    assert attempts == {"n": 250, "ids": 250}
    assert await one(rig.database, "SELECT * FROM email_lease") is None


async def test_request_is_signed_and_carries_the_attempt(rig: Rig) -> None:
    id_ = await insert(rig.database, tags=json.dumps({"ref": "1"}))
    async with running(rig.sender()):
        await rig.all_in("submitted", 1)
    [body], [headers] = rig.ses.calls, rig.ses.headers
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/eu-central-1/ses/aws4_request" in headers["Authorization"]
    assert headers["Content-Type"] == "application/json"
    attempt = await one(rig.database, "SELECT id FROM email_attempt")
    assert tag(body, "attempt") == str(attempt["id"])
    assert (tag(body, "outbox"), tag(body, "ref")) == (str(id_), "1")
    assert body["ConfigurationSetName"] == "mailstreams"


async def test_nothing_is_sent_before_the_suppressions_are_fresh(rig: Rig) -> None:
    rig.hand.beats = False
    await rig.fill(3)
    sender = rig.sender()
    async with running(sender):
        await until(
            lambda: "had no heartbeat" in sender.health.missing().get("suppression_table", "")
        )
        assert rig.ses.calls == []
        assert await rig.states() == {"pending": 3}
        rig.hand.beats = True
        await rig.all_in("submitted", 3)
        await ready(sender)


async def test_nothing_is_sent_before_the_rate_is_known(rig: Rig) -> None:
    await execute(rig.database, "DELETE FROM send_rate")
    await rig.fill(3)
    sender = rig.sender()
    async with running(sender):
        await until(lambda: "not known yet" in sender.health.missing().get("send_rate", ""))
        assert rig.ses.calls == []
        await rig.rate()
        await rig.all_in("submitted", 3)


async def test_suppressed_recipient_is_not_called_and_takes_no_permit(rig: Rig) -> None:
    sender = rig.sender()
    async with running(sender):
        await ready(sender)
        await execute(
            rig.database,
            "INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key('ann@example.com'), 'complaint')",
        )
        warm = await insert(rig.database, recipient="bob@example.com")
        await rig.all_in("submitted", 1)
        granted = await rig.permits_granted()
        id_ = await insert(rig.database)
        await rig.all_in("suppressed", 1)
        assert (await row_of(rig.database, id_))["reason"] == "complaint"
        assert rig.ses.accepted == [str(warm)]
        assert await rig.permits_granted() == granted
        await rig.all_committed()


async def test_suppression_that_only_memory_knows_does_not_stop_a_message(rig: Rig) -> None:
    key = (await one(rig.database, "SELECT recipient_key('ann@example.com') AS key"))["key"]
    lifted = {"suppressions": [{"tenant": "*", "lane": "*", "reason": "manual"}]}
    await until(lambda: bool(rig.hand._keys))
    await rig.hand.send(
        rig.topics.suppressions, key.encode(), json.dumps(lifted).encode(), sequence=0
    )
    sender = rig.sender()
    async with running(sender):
        await ready(sender)
        await insert(rig.database)
        await rig.all_in("submitted", 1)


async def test_suppression_of_a_moment_ago_is_seen_by_the_claim_alone(rig: Rig) -> None:
    """Memory does not know it yet: the feed is not carried."""
    sender = rig.sender()
    async with running(sender):
        await ready(sender)
        id_ = await insert(rig.database, send_after=datetime.now(UTC) + timedelta(seconds=0.5))
        async with rig.database.transaction() as connection:
            await connection.execute("ALTER TABLE suppression DISABLE TRIGGER announce_insert")
            await connection.execute(
                "INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key('ann@example.com'), 'manual')"
            )
        await rig.all_in("suppressed", 1)
        assert rig.ses.calls == []
        assert (await row_of(rig.database, id_))["attempts"] == 0


async def test_replay_of_the_topic_takes_no_permit_and_calls_nobody(rig: Rig) -> None:
    await rig.fill(100)
    async with running(rig.sender()):
        await rig.all_in("submitted", 100)
        await rig.all_committed()
        granted, calls = await rig.permits_granted(), len(rig.ses.calls)
        for topic, key, value in list(rig.hand.carried):
            if topic == rig.topics.outbox(Lane.TRANSACTIONAL):
                await rig.hand.send(topic, key, value)
        await rig.all_committed()
        assert await rig.permits_granted() == granted
        assert len(rig.ses.calls) == calls


async def test_one_call_a_recipient_at_a_time_while_others_go_on(rig: Rig) -> None:
    rig.ses.delay_s = 0.15
    async with rig.database.transaction() as connection:
        for _ in range(5):
            await insert(connection)
    await rig.fill(10)
    async with running(rig.sender()):
        await rig.all_in("submitted", 15)
    assert rig.ses.most_of_one_recipient == 1
    assert rig.ses.most_at_once > 1
    assert not rig.sent_twice()


async def test_rate_is_kept_by_two_senders_together(rig: Rig) -> None:
    await rig.rate(20.0)
    await rig.fill(60)
    async with running(rig.sender(), rig.sender()):
        await rig.all_in("submitted", 60)
    times = rig.ses.times
    most = max(sum(begin <= at < begin + 1 for at in times) for begin in times)
    assert most <= 22  # 5 % of lateness, and the way to the stub
    assert times[-1] - times[0] < 6


async def test_sender_without_work_waits_between_its_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: asyncio.Queue[float] = asyncio.Queue()
    step = Dispatch.step

    async def watched(dispatch: Dispatch) -> float:
        began.put_nowait(time.monotonic())
        return await step(dispatch)

    monkeypatch.setattr(Dispatch, "step", watched)
    await insert(rig.database)
    async with running(rig.sender()):
        await rig.all_in("submitted", 1)
        while not began.empty():
            began.get_nowait()
        # The first ones may still have the end of the call and of its outcome for work.
        times = [await began.get() for _ in range(9)]
    assert times[-1] - times[3] >= 4 * IDLE_S


async def test_message_of_many_recipients_pays_for_all_of_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    take_permits = OutboxStore.take_permits

    async def watched(store: OutboxStore, scope: str, costs: Sequence[float], **more: Any) -> Any:
        asked.extend(costs)
        return await take_permits(store, scope, costs, **more)

    monkeypatch.setattr(OutboxStore, "take_permits", watched)
    await insert(rig.database, cc=["bob@example.com"], bcc=["cid@example.com", "dan@example.com"])
    async with running(rig.sender()):
        await rig.all_in("submitted", 1)
        # More than once if a slot was missed, and then at a higher price.
        assert asked
        assert min(asked) >= 4
        assert await rig.permits_granted() >= 4
    [body] = rig.ses.calls
    assert body["Destination"]["BccAddresses"] == ["cid@example.com", "dan@example.com"]


async def test_throttled_row_goes_out_later_uncharged(rig: Rig) -> None:
    rig.ses.answer = refusing(
        429, "TooManyRequestsException", "Maximum sending rate exceeded.", times=2
    )
    id_ = await insert(rig.database)
    async with running(rig.sender()):
        await rig.all_in("submitted", 1)
    assert len(rig.ses.calls) == 3
    assert (await row_of(rig.database, id_))["attempts"] == 1


async def test_account_stop_pauses_everybody_and_keeps_the_row(rig: Rig) -> None:
    rig.ses.answer = refusing(400, "SendingPausedException", "Sending is paused for this account.")
    first = await insert(rig.database)
    async with running(rig.sender()):
        await until(lambda: len(rig.ses.calls) == 1)

        async def waits() -> bool:
            due = await due_of(rig.database, first)
            return due is not None and due["why"] == "paused"

        await until(waits)
        second = await insert(rig.database, recipient="bob@example.com")

        async def second_waits() -> bool:
            return await due_of(rig.database, second) is not None

        await until(second_waits)
    assert len(rig.ses.calls) == 1
    assert await rig.states() == {"pending": 2}
    assert (await row_of(rig.database, first))["attempts"] == 0
    pause = await one(rig.database, "SELECT scope, who, reason FROM pause")
    assert (pause["scope"], pause["who"]) == ("account", "sender")


async def test_unverified_sender_stops_only_its_own_mail(rig: Rig) -> None:
    text = "Email address is not verified. The following identities failed the check in region EU-CENTRAL-1: bad@example.org"
    rig.ses.answer = refusing(400, "MessageRejected", text, times=1)
    bad = await insert(rig.database, sender="bad@example.org")
    async with running(rig.sender()):
        await until(lambda: len(rig.ses.calls) == 1)

        async def paused() -> bool:
            return await one(rig.database, "SELECT FROM pause WHERE scope = 'sender'") is not None

        await until(paused)
        await insert(rig.database, recipient="bob@example.com")
        await rig.all_in("submitted", 1)
    row = await row_of(rig.database, bad)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert "bad@example.org" not in row["reason"]


async def test_permanent_refusal_ends_in_a_dead_letter(rig: Rig) -> None:
    rig.ses.answer = refusing(400, "MessageRejected", "virus for ann@example.com")
    id_ = await insert(rig.database)
    async with running(rig.sender()):
        await rig.all_in("failed", 1)
    letter = await one(rig.database, "SELECT outbox_id, class, reason FROM dead_letter")
    assert (letter["outbox_id"], letter["class"]) == (id_, "message-rejected")
    assert "virus for <address>" in letter["reason"]


async def test_connection_that_ends_after_the_request_is_unknown_and_called_once(rig: Rig) -> None:
    rig.ses.answer = hang_up
    id_ = await insert(rig.database)
    async with running(rig.sender()):
        await rig.all_in("ambiguous", 1)
        await rig.all_committed()
    assert len(rig.ses.calls) == 1
    unsettled = await one(rig.database, "SELECT outbox_id FROM email_unsettled")
    assert unsettled == {"outbox_id": id_}


async def test_answer_that_does_not_come_in_time_is_unknown(rig: Rig) -> None:
    rig.ses.delay_s = 3.0
    await insert(rig.database)
    async with running(rig.sender(read_timeout_s=0.5)):
        await rig.all_in("ambiguous", 1)


async def test_endpoint_that_is_not_there_for_one_message_is_tried_again_and_charged(
    rig: Rig,
) -> None:
    await rig.ses.stop()
    id_ = await insert(rig.database)
    async with running(rig.sender()):

        async def refused() -> bool:
            return await one(rig.database, "SELECT FROM email_attempt") is not None

        await until(refused)
        await rig.ses.start()
        await rig.all_in("submitted", 1)
    row = await row_of(rig.database, id_)
    outcomes = await one(
        rig.database, "SELECT array_agg(outcome ORDER BY number) AS outcomes FROM email_attempt"
    )
    assert outcomes["outcomes"][-1] == "accepted"
    assert set(outcomes["outcomes"][:-1]) == {"retry"}
    assert row["attempts"] == len(outcomes["outcomes"])


async def test_template_that_cannot_be_rendered_fails_alone(rig: Rig) -> None:
    await execute(
        rig.database,
        "INSERT INTO template (tenant, name, version, subject, text) VALUES "
        "('default', 'welcome', 1, 'Old {{ name }}', 'Hi'), ('default', 'welcome', 2, 'Hello {{ name }}', 'Hi {{ name }}')",
    )
    given: list[dict[str, Any]] = [
        {"template": "welcome", "variables": json.dumps({"name": "Ann"})},
        {"template": "welcome", "template_version": 1, "variables": json.dumps({"name": "Bob"})},
        {"template": "welcome"},
        {"template": "welcome", "template_version": 9},
        {"template": "nothing"},
    ]
    async with rig.database.transaction() as connection:
        ids = [
            await insert(
                connection, recipient=f"user{n}@example.com", subject=None, text=None, **columns
            )
            for n, columns in enumerate(given)
        ]
    async with running(rig.sender()):
        await rig.all_in("submitted", 2)
        await rig.all_in("failed", 3)
    subjects = sorted(c["Content"]["Simple"]["Subject"]["Data"] for c in rig.ses.calls)
    assert subjects == ["Hello Ann", "Old Bob"]
    reasons = [(await row_of(rig.database, id_))["reason"] for id_ in ids[2:]]
    assert "needs a variable that was not given" in reasons[0]
    assert all("does not exist for tenant default" in reason for reason in reasons[1:])


async def test_row_that_cannot_be_read_fails_alone(rig: Rig) -> None:
    """PostgreSQL takes numbers and nesting that no JSON reader of ours takes; the trouble of one tenant is nobody else's."""
    await execute(
        rig.database,
        "INSERT INTO template (tenant, name, version, subject, text) VALUES ('default', 'welcome', 1, 'Hello', 'Hi')",
    )
    given = ['{"n": 1e400}', '{"n": ' + "[" * 1500 + "]" * 1500 + "}"]
    async with rig.database.transaction() as connection:
        bad = [
            await insert(
                connection, subject=None, text=None, template="welcome", variables=variables
            )
            for variables in given
        ]
    await rig.fill(20)
    async with running(rig.sender()):
        await rig.all_in("submitted", 20)
        await rig.all_in("failed", 2)
        await rig.all_committed()
    for id_ in bad:
        assert "variables cannot be read" in (await row_of(rig.database, id_))["reason"]
    letters = await one(rig.database, "SELECT count(*) AS n FROM dead_letter")
    assert letters == {"n": 2}


async def test_call_that_cannot_be_made_costs_only_its_row(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours, in making the content of one row and the request of another."""
    content, body = Renderer.render, make_body

    def render(self: Renderer, template: Template, variables: Any) -> Content:
        if "fault" in variables:
            raise OSError("secret")
        return content(self, template, variables)

    def send_email_body(email: Email, *args: Any, **named: Any) -> bytes:
        if email.subject == "fault":
            raise KeyError("secret")
        return body(email, *args, **named)

    monkeypatch.setattr(Renderer, "render", render)
    monkeypatch.setattr(signing, "send_email_body", send_email_body)
    await execute(
        rig.database,
        "INSERT INTO template (tenant, name, version, subject, text) VALUES ('default', 'welcome', 1, 'Hello', 'Hi')",
    )
    bad = [
        await insert(rig.database, subject="fault"),
        await insert(
            rig.database,
            subject=None,
            text=None,
            template="welcome",
            variables=json.dumps({"fault": 1}),
        ),
    ]
    await rig.fill(20)
    async with running(rig.sender()):
        await rig.all_in("submitted", 20)
        await rig.all_in("failed", 2)
        await rig.all_committed()
    reasons = [(await row_of(rig.database, id_))["reason"] for id_ in bad]
    assert "KeyError" in reasons[0]
    assert "OSError" in reasons[1]
    assert "secret" not in "".join(reasons)


async def test_outage_of_the_endpoint_costs_no_attempts_where_many_messages_wait(rig: Rig) -> None:
    """The circuit opens; the message that failed first is charged, once."""
    await rig.ses.stop()
    ids = await rig.fill(30)

    async def failures() -> int:
        found = await one(
            rig.database,
            "SELECT count(*) AS n FROM email_attempt WHERE error_class = 'unreachable'",
        )
        return int(found["n"])

    async def many() -> bool:
        return await failures() >= 25

    async with running(rig.sender()):
        await until(many, 60)
        states = await rig.states()
        await rig.ses.start()
        await rig.all_in("submitted", 30, 60)
    assert states["failed"] == 0
    assert sorted(rig.ses.accepted) == sorted(map(str, ids))
    charged = await one(
        rig.database,
        "SELECT count(*) FILTER (WHERE attempts > 1) AS rows, max(attempts) AS most FROM email_outbox",
    )
    assert charged["rows"] <= 1
    assert charged["most"] <= 2


async def test_rate_whose_row_is_far_ahead_of_the_clock_does_not_stop_the_mail(rig: Rig) -> None:
    """As after the server's clock was set back by an hour."""
    await execute(
        rig.database, "UPDATE send_rate SET next_free = clock_timestamp() + interval '1 hour'"
    )
    await rig.fill(20)
    async with running(rig.sender()):
        await rig.all_in("submitted", 20, 10)
    ahead = await one(
        rig.database,
        "SELECT extract(epoch FROM next_free - clock_timestamp())::float8 AS s FROM send_rate",
    )
    assert ahead["s"] < 1


async def test_rate_that_one_large_message_may_have_taken_is_waited_for(rig: Rig) -> None:
    await rig.rate(1.0)
    await execute(
        rig.database, "UPDATE send_rate SET next_free = clock_timestamp() + interval '90 seconds'"
    )
    await rig.fill(1)
    sender = rig.sender()
    async with running(sender):
        await until(lambda: "no permit" in sender.health.missing().get("permits", ""))
        assert rig.ses.calls == []
        await execute(rig.database, "UPDATE send_rate SET next_free = clock_timestamp()")
        await rig.all_in("submitted", 1, 10)
        await ready(sender)


async def test_clock_of_this_machine_does_not_decide_what_is_fresh(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = SuppressionTable.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "clock", lambda: 4_000_000_000.0)
    await insert(rig.database)
    async with running(rig.sender()):
        await rig.all_in("submitted", 1)


async def test_unreadable_pointer_is_set_aside_and_the_others_go_on(rig: Rig) -> None:
    topic = rig.topics.outbox(Lane.TRANSACTIONAL)
    await until(lambda: bool(rig.hand._keys))
    for value in (b"nonsense", None, b"{}"):
        await rig.hand.send(topic, uuid4().hex.encode(), value)
    await rig.fill(5)
    async with running(rig.sender()):
        await rig.all_in("submitted", 5)
        await rig.all_committed()
    consumer = AIOKafkaConsumer(
        unreadable(topic), bootstrap_servers=rig.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        found = [await asyncio.wait_for(consumer.getone(), 10) for _ in range(3)]
    finally:
        await consumer.stop()
    headers = [dict(record.headers) for record in found]
    assert {h["stage"] for h in headers} == {b"sender"}
    assert all(h["reason"].startswith(b"not a pointer") for h in headers)


async def test_too_many_unreadable_pointers_stop_the_reading_and_health_says_why(rig: Rig) -> None:
    topic = rig.topics.outbox(Lane.BULK)
    await until(lambda: bool(rig.hand._keys))
    for _ in range(101):
        await rig.hand.send(topic, b"k", b"nonsense")
    sender = rig.sender()
    async with running(sender):
        await until(lambda: "unreadable" in sender.health.missing().get("pointers", ""))
        await insert(rig.database)
        await asyncio.wait_for(rig.hand.carry(), 5)
        await until(lambda: sender._intake._left)
    assert rig.ses.calls == []


async def test_after_a_halt_the_next_sender_begins_behind_what_was_unreadable(rig: Rig) -> None:
    topic = rig.topics.outbox(Lane.TRANSACTIONAL)
    await until(lambda: bool(rig.hand._keys))
    for _ in range(101):
        await rig.hand.send(topic, b"k", b"nonsense")
    first, second = rig.sender(), rig.sender()
    async with running(first):
        await until(lambda: "unreadable" in first.health.missing().get("pointers", ""))
        await until(lambda: first._intake._left)
        await rig.all_committed()
    await rig.fill(5)
    async with running(second):
        await rig.all_in("submitted", 5)
        await ready(second)
    assert await records_in(rig, unreadable(topic)) == 101


async def test_row_that_is_cancelled_after_its_pointer_came_is_not_sent(rig: Rig) -> None:
    rig.hand.beats = False
    id_ = await insert(rig.database)
    sender = rig.sender()
    async with running(sender):
        await until(lambda: "suppression_table" in sender.health.missing())
        await execute(
            rig.database, "UPDATE email_outbox SET state = 'cancelled' WHERE id = $1", id_
        )
        rig.hand.beats = True
        await rig.all_committed()
    assert rig.ses.calls == []


async def test_pointer_that_comes_before_its_row_can_be_seen_waits_for_it(rig: Rig) -> None:
    sender = rig.sender()
    async with running(sender):
        await ready(sender)
        async with rig.database.transaction() as writer:
            id_ = await insert(writer)
            row = await writer.fetchrow("SELECT * FROM outbox_feed ORDER BY seq DESC LIMIT 1")
            assert row is not None
            topic = rig.topics.of_aggregate(row["aggregatetype"])
            await rig.hand.send(topic, row["aggregateid"].encode(), row["payload"].encode())
            await rig.hand.send(topic, uuid4().hex.encode(), b"{}")
            # Records of other partitions or behind it are read meanwhile; this one's offset is not committed.
            await until(lambda: sender._intake.waiting(Lane.TRANSACTIONAL) == 1)
            assert await rig.uncommitted() >= 1
        await rig.all_in("submitted", 1)
        await rig.all_committed()
    assert rig.ses.accepted == [str(id_)]
