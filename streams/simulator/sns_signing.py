"""The key, the certificate and the signatures of the simulated SNS."""

import asyncio
import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from streams.simulator.settings import SignatureVersions

NOTIFICATION_FIELDS = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION_FIELDS = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)


class Signer(Protocol):
    """Signs texts; version "1" is SHA-1, "2" is SHA-256."""

    async def sign(self, text: bytes, version: str) -> bytes: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningIdentity:
    """A private key, its self-made certificate, and the path under which SNS would serve it."""

    key: rsa.RSAPrivateKey
    certificate_pem: bytes
    certificate_path: str

    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def make_identity(key_bits: int, now: float) -> SigningIdentity:
    """Takes a tenth of a second for 2048 bits."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=key_bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    today = datetime.fromtimestamp(now, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=365))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("sns.amazonaws.com")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    name_digest = hashlib.sha256(pem).hexdigest()[:32]
    return SigningIdentity(
        key=key,
        certificate_pem=pem,
        certificate_path=f"/SimpleNotificationService-{name_digest}.pem",
    )


def sign(key: rsa.RSAPrivateKey, text: bytes, version: str) -> bytes:
    # SHA-1 is what SignatureVersion 1 is.
    digest = hashes.SHA1() if version == "1" else hashes.SHA256()  # noqa: S303
    return key.sign(text, padding.PKCS1v15(), digest)


def text_to_sign(envelope: Mapping[str, str]) -> bytes:
    """Name and value of each signed field that is there, each followed by a newline."""
    notification = envelope["Type"] == "Notification"
    fields = NOTIFICATION_FIELDS if notification else CONFIRMATION_FIELDS
    return "".join(
        f"{field}\n{envelope[field]}\n" for field in fields if field in envelope
    ).encode()


class ThreadSigner:
    """Signs in one thread; OpenSSL releases the interpreter lock meanwhile."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sns-signer")

    async def sign(self, text: bytes, version: str) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, sign, self._key, text, version)

    async def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


class VersionChoice:
    """The signature version of each notification of a topic."""

    def __init__(self, versions: SignatureVersions) -> None:
        self.versions = versions
        self._count = count()

    def next(self) -> str:
        if self.versions is SignatureVersions.MIXED:
            return ("1", "2")[next(self._count) % 2]
        return self.versions.value
