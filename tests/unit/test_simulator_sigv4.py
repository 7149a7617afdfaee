"""Signature Version 4 is checked as AWS checks it; botocore is the other side."""

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from streams.simulator.refusals import RefusedError
from streams.simulator.sigv4 import SignatureVerifier, SignedRequest, ses_scope

HOST = "http://127.0.0.1:8080"
SECRET = "secret"
VERIFIER = SignatureVerifier(access_key="test", secret_key=SECRET)
SCOPE = ses_scope("eu-central-1")


def signed(
    method: str = "POST",
    target: str = "/v2/email/outbound-emails",
    body: bytes = b'{"a":1}',
    *,
    key: str = "test",
    secret: str = SECRET,
    service: str = "ses",
    region: str = "eu-central-1",
) -> SignedRequest:
    request = AWSRequest(method=method, url=HOST + target, data=body)
    request.headers["Content-Type"] = "application/json"
    SigV4Auth(Credentials(key, secret), service, region).add_auth(request)
    prepared: dict[str, Any] = {k.lower(): v for k, v in request.headers.items()}
    path, _, query = target.partition("?")
    return SignedRequest(
        method=method,
        path=path,
        query=query,
        headers={"host": "127.0.0.1:8080"} | prepared,
        body=body,
    )


def signing_time(request: SignedRequest) -> float:
    text = request.headers["x-amz-date"]
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def changed(request: SignedRequest, **changes: Any) -> SignedRequest:
    fields = {
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
        "body": request.body,
    }
    return SignedRequest(**(fields | changes))


def refusal(request: SignedRequest, *, later_s: float = 0.0) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        VERIFIER.verify(request, SCOPE, signing_time(request) + later_s)
    return caught.value


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/v2/email/outbound-emails", b'{"a":1}'),
        ("GET", "/v2/email/account", b""),
        ("DELETE", "/v2/email/suppression/addresses/x%2By%40example.com", b""),
        ("GET", "/v2/email/suppression/addresses?Reason=BOUNCE&PageSize=5", b""),
        ("GET", "/v2/email/suppression/addresses?StartDate=2026-01-02T03%3A04%3A05Z", b""),
    ],
)
def test_what_botocore_signs_is_accepted(method: str, target: str, body: bytes) -> None:
    request = signed(method, target, body)
    VERIFIER.verify(request, SCOPE, signing_time(request) + 299)


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"a":2}'},
        {"path": "/v2/email/account"},
        {"query": "x=1"},
        {"method": "PUT"},
    ],
)
def test_a_changed_request_does_not_match_its_signature(change: dict[str, Any]) -> None:
    error = refusal(changed(signed(), **change))
    assert (error.code, error.status) == ("SignatureDoesNotMatch", 403)
    assert error.message.startswith("The request signature we calculated does not match")


def test_another_secret_does_not_match() -> None:
    assert refusal(signed(secret="other")).code == "SignatureDoesNotMatch"


def test_a_signature_older_than_five_minutes_has_expired() -> None:
    request = signed()
    error = refusal(request, later_s=301)
    at = request.headers["x-amz-date"]
    moment = signing_time(request)
    earliest = datetime.fromtimestamp(moment + 1, UTC).strftime("%Y%m%dT%H%M%SZ")
    now = datetime.fromtimestamp(moment + 301, UTC).strftime("%Y%m%dT%H%M%SZ")
    assert (error.code, error.status) == ("SignatureDoesNotMatch", 403)
    assert error.message == (
        f"Signature expired: {at} is now earlier than {earliest} ({now} - 5 min.)"
    )


def test_a_signature_of_the_future_is_refused() -> None:
    assert refusal(signed(), later_s=-301).message.startswith("Signature not yet current: ")


def test_a_replaced_date_does_not_revive_an_old_signature() -> None:
    request = signed()
    later = datetime.fromtimestamp(signing_time(request) + 400, UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {**request.headers, "x-amz-date": later}
    assert refusal(changed(request, headers=headers)).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(("region", "service"), [("us-east-1", "ses"), ("eu-central-1", "sns")])
def test_another_scope_is_refused(region: str, service: str) -> None:
    error = refusal(signed(region=region, service=service))
    assert (error.code, error.status) == ("SignatureDoesNotMatch", 403)
    assert error.message.startswith("Credential should be scoped to")


def test_an_unknown_access_key_is_not_recognised() -> None:
    error = refusal(signed(key="somebody"))
    assert (error.code, error.status) == ("UnrecognizedClientException", 403)


def test_a_missing_signature_is_named() -> None:
    request = signed()
    headers = {k: v for k, v in request.headers.items() if k != "authorization"}
    error = refusal(changed(request, headers=headers))
    assert (error.code, error.status) == ("MissingAuthenticationTokenException", 403)


@pytest.mark.parametrize("authorization", ["Bearer x", "AWS4-HMAC-SHA256 Credential=test/x", ""])
def test_a_malformed_signature_is_incomplete(authorization: str) -> None:
    request = signed()
    error = refusal(changed(request, headers={**request.headers, "authorization": authorization}))
    assert error.code == "IncompleteSignatureException"


@pytest.mark.parametrize("date", ["yesterday", "20260102T000000Z\n", ""])
def test_a_malformed_date_is_incomplete(date: str) -> None:
    request = signed()
    spoilt = changed(request, headers={**request.headers, "x-amz-date": date})
    with pytest.raises(RefusedError) as caught:
        VERIFIER.verify(spoilt, SCOPE, signing_time(request))
    assert caught.value.code == "IncompleteSignatureException"
