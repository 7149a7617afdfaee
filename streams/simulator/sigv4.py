"""Verification of AWS Signature Version 4, as the receiving side does it."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from streams.simulator.clock import iso_basic, parse_iso_basic
from streams.simulator.refusals import RefusedError

MAX_AGE_S = 300.0
ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<credential>[^,\s]+),\s*"
    r"SignedHeaders=(?P<headers>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as it came over the wire; header names in lower case, target undecoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The credential scope that a service asks for, and the words of its protocol."""

    region: str
    service: str
    missing_code: str
    incomplete_code: str
    unknown_key_code: str


def ses_scope(region: str) -> Scope:
    return Scope(
        region=region,
        service="ses",
        missing_code="MissingAuthenticationTokenException",
        incomplete_code="IncompleteSignatureException",
        unknown_key_code="UnrecognizedClientException",
    )


def sns_scope(region: str) -> Scope:
    return Scope(
        region=region,
        service="sns",
        missing_code="MissingAuthenticationToken",
        incomplete_code="IncompleteSignature",
        unknown_key_code="InvalidClientTokenId",
    )


def sqs_scope(region: str) -> Scope:
    return Scope(
        region=region,
        service="sqs",
        missing_code="MissingAuthenticationToken",
        incomplete_code="IncompleteSignature",
        unknown_key_code="InvalidClientTokenId",
    )


def canonical_request(request: SignedRequest, signed_headers: list[str]) -> str:
    """The text that both sides hash; paths are encoded once more, as everywhere but on S3."""
    headers = "".join(
        f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signed_headers
    )
    return "\n".join(
        [
            request.method,
            quote(request.path or "/", safe="/-_.~"),
            _canonical_query(request.query),
            headers,
            ";".join(signed_headers),
            hashlib.sha256(request.body).hexdigest(),
        ]
    )


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    pairs = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        pairs.append((quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~")))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


class SignatureVerifier:
    """Checks requests against one access key; keeps the derived key of the day."""

    def __init__(self, *, access_key: str, secret_key: str) -> None:
        self._access_key = access_key
        self._secret = secret_key
        self._derived: dict[tuple[str, str, str], bytes] = {}

    def verify(self, request: SignedRequest, scope: Scope, now: float) -> None:
        """Raise what AWS answers to a request that it cannot authenticate."""
        authorization = request.headers.get("authorization")
        if authorization is None:
            raise RefusedError(
                code=scope.missing_code, status=403, message="Missing Authentication Token"
            )
        match = _AUTHORIZATION.fullmatch(authorization.strip())
        credential = match["credential"].split("/") if match else []
        signed_at = request.headers.get("x-amz-date", "")
        if match is None or len(credential) != 5 or credential[4] != "aws4_request":
            raise RefusedError(
                code=scope.incomplete_code,
                status=400,
                message="Authorization header requires 'Credential', 'SignedHeaders' and "
                "'Signature' parameters of AWS4-HMAC-SHA256.",
            )
        access_key, day, region, service, _ = credential
        if access_key != self._access_key:
            raise RefusedError(
                code=scope.unknown_key_code,
                status=403,
                message="The security token included in the request is invalid.",
            )
        _check_time(signed_at, day, now, scope)
        _check_scope(region, service, scope)
        signed_headers = match["headers"].split(";")
        if "host" not in signed_headers:
            raise _does_not_match("'Host' must be a 'SignedHeader' in the AWS Authorization.")
        text = "\n".join(
            [
                ALGORITHM,
                signed_at,
                "/".join(credential[1:]),
                hashlib.sha256(canonical_request(request, signed_headers).encode()).hexdigest(),
            ]
        )
        key = self._key(day, region, service)
        expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, match["signature"]):
            raise _does_not_match(
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method. Consult the service "
                "documentation for details."
            )

    def _key(self, day: str, region: str, service: str) -> bytes:
        scope = (day, region, service)
        if scope not in self._derived:
            if len(self._derived) > 16:
                self._derived.clear()
            key = f"AWS4{self._secret}".encode()
            for part in (*scope, "aws4_request"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self._derived[scope] = key
        return self._derived[scope]


def _check_time(signed_at: str, day: str, now: float, scope: Scope) -> None:
    try:
        age = now - parse_iso_basic(signed_at)
    except ValueError as error:
        raise RefusedError(
            code=scope.incomplete_code,
            status=400,
            message="Authorization header requires existence of an 'X-Amz-Date' header in the "
            "form YYYYMMDD'T'HHMMSS'Z'.",
        ) from error
    if age > MAX_AGE_S:
        raise _does_not_match(
            f"Signature expired: {signed_at} is now earlier than {iso_basic(now - MAX_AGE_S)} "
            f"({iso_basic(now)} - 5 min.)"
        )
    if age < -MAX_AGE_S:
        raise _does_not_match(
            f"Signature not yet current: {signed_at} is still later than "
            f"{iso_basic(now + MAX_AGE_S)} ({iso_basic(now)} + 5 min.)"
        )
    if day != signed_at[:8]:
        raise _does_not_match(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date "
            "from HTTP."
        )


def _check_scope(region: str, service: str, scope: Scope) -> None:
    if region != scope.region:
        raise _does_not_match(
            f"Credential should be scoped to a valid region, not '{region[:64]}'."
        )
    if service != scope.service:
        raise _does_not_match(f"Credential should be scoped to correct service: '{scope.service}'.")


def _does_not_match(message: str) -> RefusedError:
    return RefusedError(code="SignatureDoesNotMatch", status=403, message=message)
