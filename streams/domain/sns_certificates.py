"""Signing certificates of Amazon SNS: from which URL one may be fetched, and which one is taken."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from streams.domain.errors import BadMessage, Unavailable
from streams.domain.sns import TopicArn

MAX_BYTES: Final = 16 * 1024
_SUFFIX: Final = {
    "aws": "amazonaws.com",
    "aws-us-gov": "amazonaws.com",
    "aws-cn": "amazonaws.com.cn",
}
_PATH: Final = re.compile(r"/SimpleNotificationService-[0-9A-Fa-f]{16,128}\.pem")


def fault_of_url(url: str, topic: TopicArn) -> str | None:
    """None if a certificate may be fetched from it, else what is wrong with it. Allowed is https, exactly the SNS host of the
    topic's region and partition, exactly the certificate's path, and nothing else.

    The text is compared, not parsed, so that nothing can be understood in two ways.
    """
    origin = f"https://sns.{topic.region}.{_SUFFIX[topic.partition]}"
    if not url.startswith("https://"):
        return "SigningCertURL is not https"
    if not url.startswith(f"{origin}/"):
        return "the host of SigningCertURL is not that of SNS in the topic's region"
    if _PATH.fullmatch(url, len(origin)) is None:
        return "the path of SigningCertURL is not that of a certificate of SNS"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate with an RSA key."""

    key: RSAPublicKey
    not_before: datetime
    not_after: datetime

    def valid_at(self, now: datetime) -> bool:
        return self.not_before <= now <= self.not_after


def read_certificate(pem: bytes) -> Certificate:
    """Unavailable if it is not a certificate (a proxy's page, a cut answer); BadMessage if its key is not RSA."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = certificate.public_key()
    except ValueError as error:
        raise Unavailable("what was served is not a certificate") from error
    except UnsupportedAlgorithm as error:
        raise BadMessage("the key of the signing certificate is of an unknown kind") from error
    if not isinstance(key, RSAPublicKey):
        raise BadMessage("the key of the signing certificate is not RSA")
    return Certificate(
        key=key,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )
