"""From which URL a signing certificate may be fetched, which one is taken, and how often it is fetched."""

import asyncio
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from streams.adapters.sns import (
    KEEP_FAILURE_S,
    KEEP_S,
    KEPT,
    CertificateFetcher,
    SnsCertificates,
)
from streams.domain.errors import BadMessage, Misconfigured, Unavailable
from streams.domain.sns import TopicArn
from streams.domain.sns_certificates import fault_of_url, read_certificate
from tests.sns_signing import CERTIFICATE_URL, NOW, TOPIC, certificate, signing_key

FILE = "SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
HOST = "sns.eu-central-1.amazonaws.com"


def topic(text: str = TOPIC) -> TopicArn:
    parsed = TopicArn.parse(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("arn", "host"),
    [
        (TOPIC, HOST),
        ("arn:aws:sns:us-east-1:111122223333:t", "sns.us-east-1.amazonaws.com"),
        ("arn:aws-cn:sns:cn-north-1:111122223333:t", "sns.cn-north-1.amazonaws.com.cn"),
        ("arn:aws-us-gov:sns:us-gov-west-1:111122223333:t", "sns.us-gov-west-1.amazonaws.com"),
    ],
)
def test_the_host_of_the_topics_region_and_partition_is_allowed(arn: str, host: str) -> None:
    assert fault_of_url(f"https://{host}/{FILE}", topic(arn)) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        f"http://{HOST}/{FILE}",
        f"HTTPS://{HOST.upper()}/{FILE}",
        f"//{HOST}/{FILE}",
        f" https://{HOST}/{FILE}",
        f"https://{HOST}/{FILE}\n",
        f"https://{HOST}/{FILE} ",
        f"https://{HOST}:443/{FILE}",
        f"https://{HOST}:8443/{FILE}",
        f"https://{HOST}./{FILE}",
        f"https://user@{HOST}/{FILE}",
        f"https://{HOST}@evil.example/{FILE}",
        f"https://{HOST}\\@evil.example/{FILE}",
        f"https://evil.example#@{HOST}/{FILE}",
        f"https://{HOST}.evil.example/{FILE}",
        f"https://evil.example/{HOST}/{FILE}",
        f"https://{HOST}/{FILE}?x=http://evil.example",
        f"https://{HOST}/{FILE}#x",
        f"https://{HOST}/{FILE};x",
        f"https://{HOST}/../evil/{FILE}",
        f"https://{HOST}//{FILE}",
        f"https://{HOST}/%2e/{FILE}",
        f"https://{HOST}/a/{FILE}",
        f"https://{HOST}/x{FILE}",
        f"https://{HOST}/?Action=Publish&x=.pem",
        f"https://{HOST}/SimpleNotificationService-fake.pem",
        f"https://{HOST}/SimpleNotificationService-.pem",
        f"https://{HOST}/SimpleNotificationService-0123456789abcdef.pem.exe",
        f"https://{HOST}/SimpleNotificationService-٠١٢٣٤٥٦٧٨٩٠١٢٣٤٥٦٧.pem",
        f"https://sns.us-east-1.amazonaws.com/{FILE}",
        f"https://sns.eu-central-1.amazonaws.com.cn/{FILE}",
        f"https://sns.eu-central-1.s3.amazonaws.com/{FILE}",
        f"https://sns.s3.amazonaws.com/{FILE}",
        f"https://s3.amazonaws.com/bucket/{FILE}",
        f"https://snsxeu-central-1.amazonaws.com/{FILE}",
        f"https://169.254.169.254/{FILE}",
        "file:///etc/ssl/x.pem",
    ],
)
def test_every_other_url_is_refused(url: str) -> None:
    assert fault_of_url(url, topic()) is not None


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        (f"http://{HOST}/{FILE}", "not https"),
        (f"https://{HOST}.evil.example/{FILE}", "the host of SigningCertURL"),
        (f"https://{HOST}/SimpleNotificationService-0123456789abcde.pem", "the path of"),
    ],
)
def test_a_refusal_names_the_part_of_the_url_that_is_wrong(url: str, fault: str) -> None:
    assert fault in str(fault_of_url(url, topic()))


def test_a_certificate_is_valid_within_its_dates() -> None:
    found = read_certificate(certificate(days=(-1, 1)))
    assert found.valid_at(NOW)
    assert not found.valid_at(NOW - timedelta(days=2))
    assert not found.valid_at(NOW + timedelta(days=2))


@pytest.mark.parametrize("served", [b"", b"<html>busy</html>", certificate()[:300]])
def test_what_is_no_certificate_may_be_one_later(served: bytes) -> None:
    with pytest.raises(Unavailable):
        read_certificate(served)


def test_a_key_that_is_not_rsa_is_never_taken() -> None:
    with pytest.raises(BadMessage):
        read_certificate(certificate(ec.generate_private_key(ec.SECP256R1())))


class Source(CertificateFetcher):
    """Serves what it is told, and counts."""

    def __init__(self, *served: bytes | Unavailable) -> None:
        super().__init__()
        self.served = list(served)
        self.fetched: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        await self.gate.wait()
        answer = self.served.pop(0) if len(self.served) > 1 else self.served[0]
        if isinstance(answer, Unavailable):
            raise answer
        return answer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def numbered(number: int) -> str:
    return f"https://{HOST}/SimpleNotificationService-{number:032x}.pem"


async def settled() -> None:
    """Lets fetches that are not waited for come to their end."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_burst_fetches_a_certificate_once() -> None:
    source = Source(certificate())
    source.gate.clear()
    certificates = SnsCertificates(source, now=lambda: NOW)
    asked = [asyncio.create_task(certificates.get(CERTIFICATE_URL)) for _ in range(50)]
    await asyncio.sleep(0)
    source.gate.set()
    found = await asyncio.gather(*asked)
    assert {c.key.public_numbers() for c in found} == {
        signing_key("trusted").public_key().public_numbers()
    }
    assert len(source.fetched) == 1
    await certificates.get(CERTIFICATE_URL)
    assert len(source.fetched) == 1


async def test_a_request_that_gives_up_leaves_the_fetch_to_the_others() -> None:
    source = Source(certificate())
    source.gate.clear()
    certificates = SnsCertificates(source, now=lambda: NOW)
    first = asyncio.create_task(certificates.get(CERTIFICATE_URL))
    second = asyncio.create_task(certificates.get(CERTIFICATE_URL))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    source.gate.set()
    await second
    assert len(source.fetched) == 1


async def test_a_failure_is_remembered_for_two_seconds() -> None:
    source, clock = Source(Unavailable("busy"), certificate()), Clock()
    certificates = SnsCertificates(source, clock=clock, now=lambda: NOW)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await certificates.get(CERTIFICATE_URL)
    assert len(source.fetched) == 1
    clock.now += KEEP_FAILURE_S
    await certificates.get(CERTIFICATE_URL)


async def test_a_certificate_due_for_renewal_serves_until_there_is_a_newer_one() -> None:
    source, clock = Source(certificate(), Unavailable("busy"), certificate()), Clock()
    certificates = SnsCertificates(source, clock=clock, now=lambda: NOW)
    first = await certificates.get(CERTIFICATE_URL)
    clock.now += KEEP_S
    for _ in range(3):
        assert await certificates.get(CERTIFICATE_URL) is first
        await settled()
    assert len(source.fetched) == 2
    clock.now += KEEP_FAILURE_S
    await certificates.get(CERTIFICATE_URL)
    await settled()
    assert await certificates.get(CERTIFICATE_URL) is not first
    assert len(source.fetched) == 3


async def test_nobody_waits_for_the_renewal_of_a_certificate() -> None:
    source, clock = Source(certificate()), Clock()
    certificates = SnsCertificates(source, clock=clock, now=lambda: NOW)
    first = await certificates.get(CERTIFICATE_URL)
    clock.now += KEEP_S
    source.gate.clear()
    async with asyncio.timeout(1):
        for _ in range(100):
            assert await certificates.get(CERTIFICATE_URL) is first
    await settled()
    assert len(source.fetched) == 2
    await certificates.stop()


async def test_one_that_has_expired_is_our_trouble_while_no_newer_one_can_be_had() -> None:
    """Refused for good would be an event lost because of a host that does not answer."""
    source, clock = Source(certificate(days=(-1, 1)), Unavailable("busy"), certificate()), Clock()
    now = [NOW]
    certificates = SnsCertificates(source, clock=clock, now=lambda: now[0])
    await certificates.get(CERTIFICATE_URL)
    clock.now += KEEP_S
    now[0] += timedelta(days=2)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await certificates.get(CERTIFICATE_URL)
    clock.now += KEEP_FAILURE_S
    assert (await certificates.get(CERTIFICATE_URL)).valid_at(now[0])


@pytest.mark.parametrize("days", [(-3, -1), (1, 3)], ids=["expired", "not yet valid"])
async def test_what_is_not_valid_now_is_fetched_again_soon(days: tuple[int, int]) -> None:
    source, clock = Source(certificate(days=days), certificate()), Clock()
    certificates = SnsCertificates(source, clock=clock, now=lambda: NOW)
    for _ in range(3):
        assert not (await certificates.get(CERTIFICATE_URL)).valid_at(NOW)
    assert len(source.fetched) == 1
    clock.now += KEEP_FAILURE_S
    assert (await certificates.get(CERTIFICATE_URL)).valid_at(NOW)


async def test_a_certificate_is_kept_no_longer_than_it_is_valid() -> None:
    source, clock = Source(certificate(days=(-1, 1))), Clock()
    almost_over = NOW + timedelta(days=1) - timedelta(minutes=1)
    certificates = SnsCertificates(source, clock=clock, now=lambda: almost_over)
    await certificates.get(CERTIFICATE_URL)
    clock.now += 59
    await certificates.get(CERTIFICATE_URL)
    assert len(source.fetched) == 1
    clock.now += 1
    await certificates.get(CERTIFICATE_URL)
    await settled()
    assert len(source.fetched) == 2


async def test_made_up_urls_do_not_push_out_a_certificate() -> None:
    source = Source(certificate(), Unavailable("404"))
    certificates = SnsCertificates(source, now=lambda: NOW)
    await certificates.get(CERTIFICATE_URL)
    for number in range(1000):
        with pytest.raises(Unavailable):
            await certificates.get(numbered(number))
    await certificates.get(CERTIFICATE_URL)
    assert source.fetched.count(CERTIFICATE_URL) == 1


async def test_the_cache_is_bounded() -> None:
    source = Source(certificate())
    certificates = SnsCertificates(source, now=lambda: NOW)
    for number in range(KEPT + 1):
        await certificates.get(numbered(number))
    await certificates.get(numbered(1))
    assert source.fetched.count(numbered(1)) == 1
    await certificates.get(numbered(0))
    assert source.fetched.count(numbered(0)) == 2


async def test_stopping_ends_the_fetches_under_way() -> None:
    source = Source(certificate())
    source.gate.clear()
    certificates = SnsCertificates(source, now=lambda: NOW)
    asked = asyncio.create_task(certificates.get(CERTIFICATE_URL))
    await asyncio.sleep(0)
    await certificates.stop()
    with pytest.raises(asyncio.CancelledError):
        await asked


@pytest.mark.parametrize("source", ["", "127.0.0.1:80", "ftp://x", "http://x/path", "http://x?q"])
def test_a_certificate_source_that_is_no_base_url_is_refused_at_start(source: str) -> None:
    with pytest.raises(Misconfigured, match="MAILSTREAMS_SNS_CERTIFICATE_SOURCE"):
        CertificateFetcher(source)
