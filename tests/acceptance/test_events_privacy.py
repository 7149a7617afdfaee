"""A thousand marked messages through every stage: no address, subject, header or body stands in a topic, log or metric.

Everything written is searched for the markers as raw bytes, in any case, in Base64 and in hexadecimal; percent-encoding,
quoted-printable and return paths leave the letters of a marker as they are, so they are found too. The domain of a recipient alone may
stand in a topic (a provider names the mail server that refused), never in a log or metric.
"""

import base64
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

import devservers
from demo.system import STAGES, System, get
from streams.domain.topics import Topics, unreadable
from tests.acceptance.conftest import Connection, system_on

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

MESSAGES: Final = 1000
LOCAL, DOMAIN = "ZqxLocal", "zqxdomain"
SUBJECT, HEADER, BODY, VARIABLE = "ZqxSubject", "ZqxHeader", "ZqxBody", "ZqxVariable"
FAULT, NOTICE = "ZqxFault", "ZqxNotice"
NEVER: Final = (LOCAL, SUBJECT, HEADER, BODY, VARIABLE, FAULT, NOTICE)

# How other mail servers write whom they refused.
DIAGNOSTICS: Final = (
    "smtp; 550 5.1.1 <{address}>: Recipient address rejected: User unknown",
    "smtp; 550 5.1.1 {upper}... no such user",
    "smtp; 550 5.1.1 see https://mx.example.net/why?rcpt={percent}",
    "smtp; 550 5.1.1 bounces+{path}@mx.example.net is not wanted",
    "smtp; 550 5.1.1 {entity} unknown",
    "smtp; 550 5.1.1 sorry, no mailbox here by the name of {local}",
    'smtp; 550 5.1.1 "{local}"@{domain} does not exist',
    "rfc822; {address}, mailto:{address}, ({address})",
)


def address(n: int) -> str:
    return f"{LOCAL}{n}@{DOMAIN}{n}.example.com"


def diagnostic(n: int) -> str:
    """Each spelling meets each fate."""
    local, _, domain = address(n).partition("@")
    return DIAGNOSTICS[n // 10 % len(DIAGNOSTICS)].format(
        address=address(n),
        upper=address(n).upper(),
        percent=f"{local}%40{domain}",
        path=f"{local}={domain}",
        entity=f"{local}&#64;{domain}",
        local=local,
        domain=domain,
    )


def rule(n: int) -> dict[str, Any]:
    """What becomes of message n; all that can quote the address does."""
    match n % 10:
        case 0 | 1 | 2 | 3:
            outcome: dict[str, Any] = {"outcome": "bounce", "diagnostic": diagnostic(n)}
        case 4:
            outcome = {
                "outcome": "bounce",
                "bounce_type": "Transient",
                "bounce_subtype": "MailboxFull",
                "status": "4.2.2",
                "diagnostic": diagnostic(n),
            }
        case 5:
            outcome = {"outcome": "complaint", "fields": {"userAgent": f"FBL for {address(n)}"}}
        case 6:
            outcome = {"outcome": "delay", "diagnostic": diagnostic(n)}
        case 7:
            outcome = {
                "outcome": "click",
                "link": f"https://example.com/{address(n)}?u={address(n)}",
            }
        case 8:
            outcome = {"outcome": "subscription"}
        case _:
            outcome = {
                "outcome": "delivered",
                "fields": {"smtpResponse": f"250 2.0.0 queued for {address(n)}"},
            }
    return {"match": address(n), **outcome}


def needles(marker: str) -> set[bytes]:
    """The marker in lower-case hexadecimal, and in Base64 wherever it begins in what was encoded."""
    found = set()
    for spelled in (marker, marker.lower(), marker.upper()):
        raw = spelled.encode()
        found.add(raw.hex().encode())
        for before in range(3):
            text = base64.b64encode(b"\0" * before + raw + b"\0\0").rstrip(b"=")
            # What the neighbours have a part in is left out.
            found.add(text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6])
    return found


def search(name: str, content: bytes, markers: tuple[str, ...]) -> list[str]:
    """Where markers stand."""
    folded = content.lower()
    return [
        f"{marker} in {name}"
        for marker in markers
        if marker.lower().encode() in folded or any(n in content for n in needles(marker))
    ]


@pytest.mark.parametrize(
    "written",
    [
        b"... zqxlocal7@example.com ...",
        b"ZQXLOCAL7%40example.com",
        b"x" + base64.b64encode(b"to ZqxLocal7@example.com"),
        base64.b64encode(b"..zqxlocal7@example.com"),
        base64.urlsafe_b64encode(b"?ZQXLOCAL7"),
        b"zqxlocal7".hex().encode(),
    ],
)
def test_the_search_finds_a_marker_however_it_is_written(written: bytes) -> None:
    assert search("here", written, NEVER) == [f"{LOCAL} in here"]
    assert search("here", b"user@example.com", NEVER) == []


@pytest.fixture(scope="module")
def told(
    servers: devservers.Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, devservers.Servers]]:
    """A system that says all it can say, with everything sent, told and folded."""
    directory = tmp_path_factory.mktemp("privacy")
    with system_on(servers, directory, settings={"MAILSTREAMS_LOG_LEVEL": "debug"}) as system:
        with psycopg.connect(system.dsn, autocommit=True) as connection:
            send_all(system, connection)
        yield system, servers


def send_all(system: System, connection: Connection) -> None:
    system.control("rules", rules=[rule(n) for n in range(MESSAGES)])
    refused = {"when": "before", "lie": "error", "status": 400, "code": "MessageRejected"}
    refused["message"] = f"Address {FAULT}@example.com of {address(0)} is blacklisted."
    system.control("faults", faults=[{**refused, "next": 1}])
    connection.cursor().executemany(
        "SELECT enqueue_email(recipient => %s, sender => 'mail@example.com', subject => %s, body_text => %s, headers => %s)",
        [
            (
                address(n),
                f"{SUBJECT} {n}",
                f"{BODY} {n}",
                json.dumps({f"X-{HEADER}-{n}": f"{HEADER} value {n}"}),
            )
            for n in range(MESSAGES)
        ],
    )
    connection.execute(
        "SELECT enqueue_email(recipient => %s, sender => 'mail@example.com', template => 'nobody-made-it', variables => %s)",
        (address(MESSAGES), json.dumps({VARIABLE: VARIABLE})),
    )
    post_notice(system, f"{NOTICE} for {address(1)}: no JSON at all")
    until_told(system, connection)
    # To recipients that are suppressed by now.
    for n in range(10, 70, 10):
        connection.execute(
            "SELECT enqueue_email(recipient => %s, sender => 'mail@example.com', subject => %s, body_text => 'Hi')",
            (address(n), f"{SUBJECT} again"),
        )
    until_told(system, connection)


def post_notice(system: System, message: str) -> None:
    """A genuine notification that cannot be read."""
    answer = system.control("publish", message=message)
    assert [d["status"] for d in answer["deliveries"]] == [200], answer


def until_told(system: System, connection: Connection) -> None:
    def settled() -> bool:
        row = connection.execute(
            "SELECT count(*) FROM email_outbox WHERE state IN ('pending', 'sending', 'ambiguous')"
        ).fetchone()
        if row != (0,) or system.simulator_state()["events"]["pending"]:
            return False
        facts = {(c["outbox"], f["event"]) for c in system.ledger() for f in c["facts"]}
        row = connection.execute(
            "SELECT count(DISTINCT (outbox_id, type)) FROM email_event WHERE outbox_id IS NOT NULL"
        ).fetchone()
        return row == (len(facts),)

    system.wait_for(settled, "every message to be sent, told and folded", timeout_s=150)


def test_the_markers_have_passed_through(told: tuple[System, devservers.Servers]) -> None:
    """Else the other tests would prove nothing."""
    system, _ = told
    ledger = [call for call in system.ledger() if call["facts"]]
    sent = {call["recipients"][0]: call for call in reversed(ledger)}
    reached = [n for n in range(MESSAGES) if address(n) in sent]
    assert len(reached) >= MESSAGES - 1  # one was refused by SES
    for n in reached[::25]:
        url = f"{system.simulator_url}/control/messages/{sent[address(n)]['message_id']}"
        request = json.loads(get(url)[1])["request"]
        text = json.dumps(request)
        for marker in (f"{SUBJECT} {n}", f"{BODY} {n}", f"X-{HEADER}-{n}", f"{HEADER} value {n}"):
            assert marker in text
    with psycopg.connect(system.dsn) as connection:
        rows = connection.execute(
            "SELECT count(DISTINCT e.recipient_key) FROM email_event AS e JOIN email_outbox AS o ON o.id = e.outbox_id "
            "WHERE o.recipient ILIKE %s",
            (f"{LOCAL}%",),
        ).fetchone()
        assert rows is not None
        assert rows[0] >= MESSAGES - 1
        diagnostics = connection.execute(
            "SELECT count(*) FROM recipient_outcome WHERE bounce_diagnostic LIKE '%%' || recipient_key || '%%'"
        ).fetchone()
        assert diagnostics is not None
        assert diagnostics[0] > MESSAGES / 4
        states: dict[Any, Any] = dict(
            connection.execute("SELECT state, count(*) FROM email_outbox GROUP BY 1").fetchall()
        )
    assert states["failed"] == 2  # the refused one, and the one without its template
    assert states["suppressed"] >= 5  # the refused one may have been among them


async def test_no_marker_stands_in_any_topic(told: tuple[System, devservers.Servers]) -> None:
    system, servers = told
    records = await read_all(servers.kafka.bootstrap_servers, system.topic_prefix)
    topics = Topics(prefix=system.topic_prefix)
    for topic in (topics.delivery_events, topics.suppressions, topics.dead_letters):
        assert records.get(topic), f"nothing was written to {topic}"
    assert len(records[unreadable(topics.delivery_events)]) == 1
    assert len(records[topics.delivery_events]) > 2 * MESSAGES
    found = list(
        itertools.chain.from_iterable(
            search(f"{topic}: {content[:2000]!r}", content, NEVER)
            for topic, contents in records.items()
            for content in contents
        )
    )
    assert not found, f"{len(found)} records, the first: {found[0]}"


async def read_all(bootstrap_servers: str, prefix: str) -> Mapping[str, list[bytes]]:
    """Keys, values and headers of all records of all topics with this prefix."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        names = [name for name in await admin.list_topics() if name.startswith(prefix)]
        described = await admin.describe_topics(names)
    finally:
        await admin.close()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        partitions = [
            TopicPartition(topic["topic"], partition["partition"])
            for topic in described
            for partition in topic["partitions"]
        ]
        consumer.assign(partitions)
        found: dict[str, list[bytes]] = {}
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                batches = await consumer.getmany(timeout_ms=500)
                for where, records in batches.items():
                    found.setdefault(where.topic, []).extend(map(written, records))
        return found
    finally:
        await consumer.stop()


def written(record: Any) -> bytes:
    headers = itertools.chain.from_iterable((k.encode(), v or b"") for k, v in record.headers)
    return b"\n".join((record.key or b"", record.value or b"", *headers))


def test_no_marker_stands_in_any_log(told: tuple[System, devservers.Servers]) -> None:
    system, _ = told
    for stage in STAGES:
        log = (system.directory / f"{stage}.log").read_bytes()
        assert log, f"{stage} wrote no log"
        assert search(f"{stage}.log", log, (*NEVER, DOMAIN)) == []


def test_no_marker_stands_in_any_metric(told: tuple[System, devservers.Servers]) -> None:
    system, _ = told
    for stage in STAGES:
        text = get(system.url(stage, "/metrics"))[1]
        assert b"mailstreams_" in text
        assert search(f"metrics of {stage}", text, (*NEVER, DOMAIN)) == []


def test_no_marker_stands_in_what_is_kept_of_the_provider(
    told: tuple[System, devservers.Servers],
) -> None:
    system, _ = told
    with psycopg.connect(system.dsn) as connection:
        rows = connection.execute("SELECT payload::text FROM email_event").fetchall()
    assert search("email_event", "\n".join(str(r[0]) for r in rows).encode(), NEVER) == []
