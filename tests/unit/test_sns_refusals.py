"""What strangers cause leaves a bounded trace in the log, and an alarm when nothing else comes."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from streams.adapters.sns import CertificateFetcher, SnsCertificates
from streams.domain.errors import Unavailable
from streams.domain.sns import Reason
from streams.intake import Verdict
from streams.refusals import Refusals
from streams.runtime.logs import Seldom
from tests.sns_signing import CERTIFICATE_URL


def sample(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def test_one_line_a_kind_and_second_and_the_others_are_counted() -> None:
    now = [0.0]
    seldom = Seldom(1.0, clock=lambda: now[0])
    assert [seldom.left_out("a") for _ in range(4)] == [0, None, None, None]
    assert seldom.left_out("b") == 0
    now[0] = 1.0
    assert [seldom.left_out("a"), seldom.left_out("a")] == [3, None]
    now[0] = 5.0
    assert seldom.left_out("a") == 1


@pytest.mark.parametrize("reason", list(Reason))
def test_the_alarm_grows_with_whatever_is_not_200_and_ends_with_what_is(reason: Reason) -> None:
    refusals = Refusals()
    refusals.tell(Verdict(reason=Reason.ACCEPTED))
    for _ in range(3):
        refusals.tell(Verdict(reason=reason))
    expected = 0 if reason.status == 200 else 3
    assert sample("mailstreams_events_refused_since_accepted") == expected


def test_the_time_of_the_last_accepted_one_moves_with_nothing_else() -> None:
    refusals = Refusals()
    refusals.tell(Verdict(reason=Reason.ACCEPTED))
    before = sample("mailstreams_events_last_accepted_timestamp_seconds")
    assert before > 1_700_000_000
    for reason in set(Reason) - {Reason.ACCEPTED}:
        refusals.tell(Verdict(reason=reason))
    assert sample("mailstreams_events_last_accepted_timestamp_seconds") == before


def test_what_an_unknown_topic_calls_itself_is_told_short_and_visible(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claimed = "arn:aws:sns:\x1b[2J\n\u202e\ud800" + "x" * 1000
    Refusals().tell(Verdict(reason=Reason.UNKNOWN_TOPIC, claimed_topic=claimed))
    (record,) = caplog.records
    told = record.__dict__["claimed_topic"]
    assert told.startswith("arn:aws:sns:\ufffd[2J\ufffd\ufffd\ufffdxxx")
    assert len(told) == 300
    assert record.__dict__["topic"] is None


class Nowhere(CertificateFetcher):
    async def fetch(self, _url: str) -> bytes:
        raise Unavailable("the certificate's host answered 404")


async def test_made_up_certificate_urls_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificates = SnsCertificates(Nowhere())
    urls = [CERTIFICATE_URL.replace("0123456789abcdef", f"{n:016x}") for n in range(100)]
    found = await asyncio.gather(*map(certificates.get, urls), return_exceptions=True)
    await certificates.stop()
    assert all(isinstance(error, Unavailable) for error in found)
    told = [r for r in caplog.records if r.__dict__.get("action") == "events.certificate_failed"]
    assert len(told) <= 3
