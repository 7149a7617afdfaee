"""Signatures against implementations that are not ours, in both directions.

LocalStack (its functions are taken out of the installed source, since the package cannot be imported without its server)
signs as SNS does: both versions, Subject if it is there, a list of its own for confirmations. It is wrong where Subject is
null in the JSON: it would sign the text None, but never sends such an envelope.

moto is right for messages without Subject, and only for version 2: it leaves Subject out of what it signs although it puts it into
the envelope, so its messages with a subject must be refused, as those of a forger who added one. It has no confirmations.

What our own signers make (that of the tests and the simulator's) is checked with LocalStack's string and the command openssl.
"""

import ast
import base64
import importlib.util
import json
import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from streams.domain.sns import Envelope, Refusal, is_genuine, read_envelope
from streams.domain.sns_certificates import fault_of_url, read_certificate
from streams.simulator.sns_signing import make_identity, sign, text_to_sign
from tests.sns_signing import (
    CERTIFICATE_URL,
    TOPIC,
    confirmation,
    notification,
    signed,
    signing_key,
)

SUBJECTS = [None, "Amazon SES Email Event Notification", "Grüße\n日本"]
MESSAGES = ['{"eventType":"Send"}', "a\nSubject\nb", 'ü 😀 \u2028 \\ " \t', ""]


class MessageType(StrEnum):
    """What LocalStack's functions ask for of its models."""

    Notification = "Notification"
    SubscriptionConfirmation = "SubscriptionConfirmation"
    UnsubscribeConfirmation = "UnsubscribeConfirmation"


@pytest.fixture(scope="module")
def localstack() -> SimpleNamespace:
    """compute_canonical_string, get_message_signature and create_sns_message_body, and the certificate that goes with them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from localstack.services.sns.certificate import SNS_SERVER_CERT, SNS_SERVER_PRIVATE_KEY
        from localstack.utils.strings import to_bytes, to_str
        from localstack.utils.time import timestamp_millis
    package = importlib.util.find_spec("localstack")
    assert package is not None
    assert package.submodule_search_locations is not None
    path = Path(next(iter(package.submodule_search_locations))) / "services/sns/publisher.py"
    wanted = {
        "compute_canonical_string",
        "get_message_signature",
        "create_sns_message_body",
        "prepare_message_attributes",
    }
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    assert {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} == wanted
    for node in tree.body:
        assert isinstance(node, ast.FunctionDef)
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
    path_of_certificate = CERTIFICATE_URL.removeprefix("https://sns.eu-central-1.amazonaws.com")
    names: dict[str, Any] = {
        "base64": base64,
        "json": json,
        "hashes": hashes,
        "padding": padding,
        "to_bytes": to_bytes,
        "to_str": to_str,
        "timestamp_millis": timestamp_millis,
        "SNS_SERVER_PRIVATE_KEY": SNS_SERVER_PRIVATE_KEY,
        "SnsMessageType": MessageType,
        "is_raw_message_delivery": lambda _: False,
        "get_cert_base_url": lambda: "https://sns.eu-central-1.amazonaws.com",
        "create_unsubscribe_url": lambda base, arn: f"{base}/?Action=Unsubscribe&A={arn}",
        "create_subscribe_url": lambda base, arn, token: f"{base}/?TopicArn={arn}&Token={token}",
        "sns_constants": SimpleNamespace(SNS_CERT_ENDPOINT=path_of_certificate),
    }
    exec(compile(tree, str(path), "exec"), names)  # noqa: S102 the installed package's own functions
    return SimpleNamespace(**{n: names[n] for n in wanted}, certificate=SNS_SERVER_CERT.encode())


def localstack_body(
    localstack: SimpleNamespace, kind: str, message: str, subject: str | None, version: str
) -> bytes:
    context = SimpleNamespace(
        type=kind,
        message_id="a25b194c-af3e-56e6-9f1a-0cd87519db5a",
        message_content=lambda _protocol: message,
        subject=subject,
        token="a" * 64,
        message_attributes={"a": {"DataType": "String", "StringValue": "b"}},
    )
    subscriber = {"Protocol": "https", "TopicArn": TOPIC, "SubscriptionArn": f"{TOPIC}:1"}
    attributes = {"signature_version": version}
    body: str = localstack.create_sns_message_body(context, subscriber, attributes)
    return body.encode()


def well_formed(body: bytes) -> Envelope:
    envelope = read_envelope(body)
    assert not isinstance(envelope, Refusal)
    assert fault_of_url(envelope.certificate_url, envelope.topic) is None
    return envelope


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("message", MESSAGES)
def test_what_localstack_signs_is_genuine(
    localstack: SimpleNamespace, version: str, subject: str | None, message: str
) -> None:
    body = localstack_body(localstack, "Notification", message, subject, version)
    assert ("Subject" in json.loads(body)) == (subject is not None)
    envelope = well_formed(body)
    assert envelope.signature_version == version
    assert is_genuine(envelope, read_certificate(localstack.certificate).key)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_what_localstack_signs_as_confirmation_is_genuine(
    localstack: SimpleNamespace, version: str, kind: str
) -> None:
    body = localstack_body(localstack, kind, "You have chosen", None, version)
    assert is_genuine(well_formed(body), read_certificate(localstack.certificate).key)


@pytest.mark.parametrize("name", ["Message", "MessageId", "Subject", "Timestamp", "Type", "Token"])
def test_a_change_of_what_localstack_signed_is_a_forgery(
    localstack: SimpleNamespace, name: str
) -> None:
    kind = "SubscriptionConfirmation" if name in ("Token", "Type") else "Notification"
    fields = json.loads(localstack_body(localstack, kind, "{}", "x", "2"))
    changed = {"Type": "UnsubscribeConfirmation", "Timestamp": "2026-01-15T12:00:00.000Z"}
    body = json.dumps({**fields, name: changed.get(name, "changed")}).encode()
    assert not is_genuine(well_formed(body), read_certificate(localstack.certificate).key)


# moto ----------------------------------------------------------------------------------------------------------------


def moto_data(message: str, subject: str | None) -> tuple[bytes, bytes]:
    """The body of a notification as moto posts it, and the certificate that it serves."""
    import boto3
    from moto import mock_aws
    from moto.sns.models import sns_backends

    with mock_aws():
        client = boto3.client(
            "sns",
            region_name="eu-central-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        topic = client.create_topic(Name="ses-events")["TopicArn"]
        client.subscribe(TopicArn=topic, Protocol="http", Endpoint="http://127.0.0.1:1/sns")
        backend = sns_backends["123456789012"]["eu-central-1"]
        subscription = next(iter(backend.subscriptions.values()))
        data = subscription.get_post_data(message, "a25b194c", subject)
        name = data["SigningCertURL"].rpartition("/")[2]
        return json.dumps(data).encode(), backend._message_public_keys[name]


@pytest.mark.parametrize("message", MESSAGES)
def test_what_moto_signs_without_a_subject_is_genuine(message: str) -> None:
    body, pem = moto_data(message, None)
    assert is_genuine(well_formed(body), read_certificate(pem).key)


def test_what_moto_posts_with_a_subject_it_did_not_sign() -> None:
    body, pem = moto_data("{}", "Amazon SES Email Event Notification")
    assert not is_genuine(well_formed(body), read_certificate(pem).key)
    fields = json.loads(body)
    del fields["Subject"]
    assert is_genuine(well_formed(json.dumps(fields).encode()), read_certificate(pem).key)


# Our own signers ------------------------------------------------------------------------------------------------------


def signed_by_tests(fields: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    return json.loads(signed(fields)), signing_key("trusted").public_key()


def signed_by_simulator(fields: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    identity = make_identity(2048, 1_768_478_400.0)
    signature = sign(identity.key, text_to_sign(fields), fields["SignatureVersion"])
    key = x509.load_pem_x509_certificate(identity.certificate_pem).public_key()
    return {**fields, "Signature": base64.b64encode(signature).decode()}, key


OURS = [
    *(
        notification(message, SignatureVersion=version, **subject)
        for message in MESSAGES
        for version in "12"
        for subject in ({}, {"Subject": "Grüße"}, {"Subject": ""})
    ),
    *(
        confirmation(kind, SignatureVersion=version)
        for kind in ("SubscriptionConfirmation", "UnsubscribeConfirmation")
        for version in "12"
    ),
]


@pytest.mark.parametrize("signer", [signed_by_tests, signed_by_simulator])
def test_what_our_signers_make_verifies_with_localstacks_string(
    localstack: SimpleNamespace, signer: Callable[[Mapping[str, Any]], tuple[dict[str, Any], Any]]
) -> None:
    for fields in OURS:
        envelope, key = signer(fields)
        text: str = localstack.compute_canonical_string(envelope, envelope["Type"])
        digest = hashes.SHA256() if envelope["SignatureVersion"] == "2" else hashes.SHA1()  # noqa: S303
        signature = base64.b64decode(envelope["Signature"])
        key.verify(signature, text.encode(), padding.PKCS1v15(), digest)  # raises if it is none
        assert is_genuine(well_formed(json.dumps(envelope).encode()), key)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no command openssl")
@pytest.mark.parametrize("signer", [signed_by_tests, signed_by_simulator])
@pytest.mark.parametrize("version", ["1", "2"])
def test_what_our_signers_make_verifies_with_openssl(
    localstack: SimpleNamespace,
    signer: Callable[[Mapping[str, Any]], tuple[dict[str, Any], Any]],
    version: str,
    tmp_path: Path,
) -> None:
    envelope, key = signer(notification("Grüße", SignatureVersion=version, Subject="x"))
    public = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "key.pem").write_bytes(public)
    (tmp_path / "signature").write_bytes(base64.b64decode(envelope["Signature"]))
    text: str = localstack.compute_canonical_string(envelope, "Notification")

    def verified(data: bytes) -> bool:
        digest = {"1": "-sha1", "2": "-sha256"}[version]
        command = ["openssl", "dgst", digest, "-verify", "key.pem", "-signature", "signature"]
        return subprocess.run(command, cwd=tmp_path, input=data, check=False).returncode == 0

    assert verified(text.encode())
    assert not verified(text.encode()[:-1])
