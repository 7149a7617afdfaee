"""The variants of kind sns_http against FORMAT.md."""

from typing import Any, Final

from tests.cases import words
from tests.cases.checker import Checker

_EXPECT: Final = frozenset(
    {"status", "reason", "published", "certificate_fetches", "confirmations", "quarantined"}
)


def check_http(at: Checker, variant: dict[str, Any], first: bool) -> None:
    at.keys(
        variant,
        {"name", "headers", "expect"},
        {
            "continues",
            "needs",
            "setup",
            "envelope",
            "body",
            "encoding",
            "sign",
            "repeat",
            "concurrent",
            "retry_for_s",
        },
    )
    if "continues" in variant and (variant["continues"] is not True or first):
        at.at("continues").wrong("is true only, and never for the first variant")
    if "needs" in variant:
        at.at("needs").word(variant["needs"], words.NEEDS)
    if "encoding" in variant:
        at.at("encoding").word(variant["encoding"], words.ENCODINGS)
    for key in ("repeat", "concurrent", "retry_for_s"):
        if key in variant:
            at.at(key).positive(variant[key])
    _check_texts_by_name(at.at("headers"), variant.get("headers", {}))
    _check_setup(at.at("setup"), variant.get("setup", {}))
    if ("envelope" in variant) == ("body" in variant):
        at.wrong("has exactly one of envelope and body")
    if "envelope" in variant:
        _check_envelope(at, variant)
    elif "sign" in variant:
        at.at("sign").wrong("belongs to an envelope")
    if "body" in variant and not isinstance(variant["body"], str):
        _check_stream(at.at("body"), variant["body"])
    _check_http_expect(at.at("expect"), variant.get("expect"), variant)


def _check_texts_by_name(at: Checker, value: Any) -> None:
    if not isinstance(value, dict):
        at.wrong("must be an object")
        return
    for name, text in value.items():
        at.at(name).text(text, empty=True)


def _check_setup(at: Checker, setup: Any) -> None:
    may = {"topics", "kafka", "confirm", "basic_auth", "certificates"}
    if not at.keys(setup, (), may):
        return
    if "topics" in setup:
        at.at("topics").texts(setup["topics"])
    if "kafka" in setup:
        at.at("kafka").word(setup["kafka"], words.KAFKA)
    if "confirm" in setup:
        at.at("confirm").word(setup["confirm"], words.CONFIRM)
    if "basic_auth" in setup:
        pair = setup["basic_auth"]
        if not isinstance(pair, str) or ":" not in pair:
            at.at("basic_auth").wrong("must be user:password")
    certificates = setup.get("certificates", {})
    if not isinstance(certificates, dict):
        at.at("certificates").wrong("must be an object")
        return
    for url, answer in certificates.items():
        where = at.at("certificates").at(url)
        where.word(answer, words.CERTIFICATES)
        if url not in ("*", "<certificate-url>", "<new-certificate-url>") and "://" not in url:
            where.wrong("is neither a placeholder, nor a URL, nor *")


def _check_envelope(at: Checker, variant: dict[str, Any]) -> None:
    envelope, sign = variant["envelope"], variant.get("sign")
    at.at("sign").word(sign, words.SIGN)
    if not isinstance(envelope, dict):
        at.at("envelope").wrong("must be an object")
        return
    if sign != "none" and envelope.get("Signature") != "<signature>":
        at.at("envelope: Signature").wrong(f"must be <signature> with sign {sign!r:.40}")
    if sign == "none" and "Signature" in envelope:
        at.at("envelope: Signature").wrong("must not be there with sign 'none'")


def _check_stream(at: Checker, body: Any) -> None:
    if not at.keys(body, {"repeat", "bytes"}):
        return
    at.at("repeat").text(body["repeat"])
    if body["bytes"] is not None:
        at.at("bytes").positive(body["bytes"])


def _check_http_expect(at: Checker, expect: Any, variant: dict[str, Any]) -> None:
    if not at.keys(expect, _EXPECT, {"headers"}):
        return
    if expect["status"] is not None:
        at.at("status").one_of(expect["status"], words.STATUSES)
    if expect["reason"] is not None:
        at.at("reason").one_of(expect["reason"], words.HTTP_REASONS)
    if not at.errors:
        _check_agreement(at, expect)
    for key in ("certificate_fetches", "confirmations", "quarantined"):
        if expect[key] is not None:
            at.at(key).count(expect[key])
    if "headers" in expect and expect["headers"] is not None:
        _check_texts_by_name(at.at("headers"), expect["headers"])
    if expect["published"] is None:
        return
    for number, event in enumerate(at.at("published").list_of(expect["published"]), 1):
        where = at.at("published").at(str(number))
        if where.keys(event, {"type", "recipient"}):
            where.at("type").word(event["type"], words.EVENT_TYPES)
            where.at("recipient").text(event["recipient"])


def _check_agreement(at: Checker, expect: dict[str, Any]) -> None:
    """A status that no reason comes with, or a reason that no status comes with, is a slip of the pen."""
    if expect["status"] is None or expect["reason"] is None:
        return
    allowed = [words.HTTP_REASONS[reason] for reason in expect["reason"]]
    for status in expect["status"]:
        if not any(status in statuses for statuses in allowed):
            at.at("status").wrong(f"no reason comes with {status}")
    for reason, statuses in zip(expect["reason"], allowed, strict=True):
        if not statuses & set(expect["status"]):
            at.at("reason").wrong(f"{reason!r} comes with no such status")
