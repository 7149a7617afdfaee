"""The doctor as a whole: what its findings amount to, what it never repeats, and parts that do not answer or break."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from streams.doctor import Doctor, judge_settings
from streams.domain.diagnosis import Finding, Level, clean, error, exit_code, ok, unseen, warning
from streams.domain.diagnosis_kafka import Cluster, Heartbeats
from streams.domain.diagnosis_replication import Place, Replication
from streams.domain.errors import Misconfigured, Unavailable
from streams.ports.doctor import PostgresFacts, Sources
from streams.runtime.settings import Settings
from tests.command_line import mailstreams

SALT = "0123456789abcdef"
PASSWORD = "a-very-secret-word"


def settings(**given: Any) -> Settings:
    return Settings.model_validate({"recipient_salt": SALT} | given)


def test_warnings_are_no_failure_and_what_is_wrong_outweighs_what_was_not_seen() -> None:
    right, doubtful = ok("kafka.reach", "."), warning("kafka.copies", ".")
    away, wrong = unseen("kafka.reach", "."), error("kafka.topics", ".")
    assert exit_code([right]) == 0
    assert exit_code([right, doubtful]) == 0
    assert exit_code([right, doubtful, away]) == 2
    assert exit_code([away, wrong]) == 1


def test_an_id_that_is_in_no_list_cannot_be_told() -> None:
    with pytest.raises(ValueError, match=r"kafka\.mood"):
        ok("kafka.mood", "fine")


def test_whatever_a_server_says_no_secret_password_or_address_is_repeated() -> None:
    said = f"no entry for {PASSWORD}, password=hunter2 of ann@example.com\nand more"
    found = clean(error("postgres.reach", said), [PASSWORD, ""]).found
    assert found == "no entry for ***, password=*** of *** and more"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"recipient_salt": "short"}, {"settings.salt": "error"}),
        ({"unreadable_key": "short"}, {"settings.unreadable-key": "error"}),
        ({"sns_topics": ()}, {"settings.sns-topics": "warning"}),
        ({"sender_journal": "/nowhere/at/all/journal"}, {"settings.journal": "error"}),
        ({"sender_journal": "/tmp/journal"}, {}),  # noqa: S108 nothing is written
    ],
)
def test_settings_that_a_stage_would_refuse_are_told(
    given: dict[str, Any], found: dict[str, str]
) -> None:
    right = {
        "unreadable_key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
        "sns_topics": ("arn:aws:sns:eu-central-1:111122223333:events",),
    }
    judged = judge_settings(settings(**(right | given)))
    assert {f.id: f.level for f in judged if f.level is not Level.OK} == found


def test_settings_that_are_not_legal_are_the_one_finding() -> None:
    done = mailstreams("doctor", "--json", environment={"MAILSTREAMS_PARTITIONS": "0"})
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit"]) == (1, 1)
    [finding] = document["findings"]
    assert finding["id"] == "settings.legal"
    assert "MAILSTREAMS_PARTITIONS" in finding["found"]


class Kafka:
    """A broker that answers as told."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    async def cluster(self, _: Iterable[str], /) -> Cluster:
        if self._failure is not None:
            raise self._failure
        return Cluster(brokers=[1], topics={})

    async def heartbeats(self, _topic: str, _partitions: int, /) -> Heartbeats:
        raise AssertionError("there is no topic to ask for")


@asynccontextmanager
async def never() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


def refused() -> AbstractAsyncContextManager[PostgresFacts]:
    raise Misconfigured(f"no password {PASSWORD}")


async def away(_: Place | None) -> Replication:
    raise Unavailable("PostgreSQL does not answer")


async def examined(postgres: Any, kafka: Kafka) -> dict[str, Finding]:
    given = settings(postgres_dsn=f"postgresql://x:{PASSWORD}@127.0.0.1/x")
    sources = Sources(postgres=postgres, replication=away, kafka=kafka, ses=None)
    found = await Doctor(given, sources, within_s=0.05).examine()
    return {finding.id: finding for finding in found}


async def test_a_part_that_never_answers_is_one_finding_and_the_others_are_looked_at() -> None:
    found = await examined(never, Kafka())
    assert found["postgres.reach"].unseen
    assert found["replication.reach"].unseen
    assert found["kafka.topics"].level is Level.ERROR


async def test_a_fault_of_the_doctor_is_told_without_its_text() -> None:
    found = await examined(never, Kafka(RuntimeError(PASSWORD)))
    assert found["kafka.reach"].unseen
    assert "RuntimeError in test_doctor.py" in found["kafka.reach"].found
    assert PASSWORD not in str(found)


async def test_a_refusal_is_an_error_without_the_password() -> None:
    found = await examined(refused, Kafka())
    assert (found["postgres.reach"].level, found["postgres.reach"].unseen) == (Level.ERROR, False)
    assert PASSWORD not in str(found)
