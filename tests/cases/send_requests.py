"""What the requests of SendEmail say: content of kind Simple by its members, content of kind Raw by its parsed MIME."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import getaddresses
from typing import Any, Final

from streams.domain.addresses import normalise
from tests.cases.differences import Difference

LONGEST_LINE: Final = 998
_TAG: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_TAG_NAME: Final = re.compile(r"(?:ses:)?[A-Za-z0-9_-]{1,256}")
_RECIPIENTS: Final = ("to", "cc", "bcc")
_BREAK: Final = re.compile(r"[\r\n]")
_RAW_HEADER: Final = re.compile(rb"\A(?:[!-9;-~]+:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*\r\n")

Request = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One request as SES would send it. told: every name, value and address that becomes part of a header."""

    to: Sequence[str]
    subject: str | None
    told: Sequence[str]
    tags: Sequence[tuple[str, str]]
    raw: bytes | None = None


def check_request(wanted: Mapping[str, Any], requests: Sequence[Request]) -> list[Difference]:
    """What is not as wanted, in the first request that shows it."""
    found: dict[str, Difference] = {}
    for mail in map(read, requests):
        for difference in _differences(wanted, mail):
            found.setdefault(difference.key, difference)
    return list(found.values())


def read(request: Request) -> Mail:
    content = request.get("Content") or {}
    tags = [(str(t.get("Name")), str(t.get("Value"))) for t in request.get("EmailTags") or ()]
    destination = request.get("Destination") or {}
    to = [str(a) for part in destination.values() for a in part or ()]
    senders = [str(request.get("FromEmailAddress", ""))]
    replies = [str(a) for a in request.get("ReplyToAddresses") or ()]
    told = [*senders, *replies, *to, *(text for tag in tags for text in tag)]
    if "Raw" in content:
        return _raw(base64.b64decode(content["Raw"]["Data"]), to=to, told=told, tags=tags)
    simple = content.get("Simple") or {}
    subject = simple.get("Subject") or {}
    headers = [(str(h.get("Name")), str(h.get("Value"))) for h in simple.get("Headers") or ()]
    hidden = [value for name, value in headers if name.lower() in _RECIPIENTS]
    return Mail(
        to=[*to, *hidden],
        subject=_as_read(str(subject.get("Data", "")), str(subject.get("Charset", "US-ASCII"))),
        told=[*told, str(subject.get("Data", "")), *(t for pair in headers for t in pair)],
        tags=tags,
    )


def _as_read(text: str, charset: str) -> str:
    """SES takes seven bits unless a character set is named."""
    return text if charset.upper() == "UTF-8" else text.encode("ascii", "replace").decode()


def _raw(data: bytes, *, to: list[str], told: list[str], tags: list[tuple[str, str]]) -> Mail:
    message: EmailMessage = BytesParser(_class=EmailMessage, policy=policy.SMTP).parsebytes(data)
    if not to:
        to = [
            address
            for name in _RECIPIENTS
            for _, address in getaddresses([str(v) for v in message.get_all(name, [])])
        ]
    return Mail(
        to=to,
        subject=str(message["subject"]) if message["subject"] is not None else None,
        told=[*told, *(text for pair in message.items() for text in map(str, pair))],
        tags=tags,
        raw=data,
    )


def _differences(wanted: Mapping[str, Any], mail: Mail) -> Iterator[Difference]:
    if "to" in wanted:
        expected, found = sorted(map(_bare, wanted["to"])), sorted(map(_bare, mail.to))
        if expected != found:
            yield Difference(key="request: to", expected=expected, found=found)
    if "subject" in wanted and mail.subject != wanted["subject"]:
        yield Difference(key="request: subject", expected=wanted["subject"], found=mail.subject)
    if wanted.get("one_line"):
        broken = [text for text in mail.told if _BREAK.search(text)]
        if broken:
            yield Difference(key="request: one_line", expected=[], found=broken)
    if wanted.get("tags_valid"):
        bad = [t for t in mail.tags if not (_TAG_NAME.fullmatch(t[0]) and _TAG.fullmatch(t[1]))]
        if bad:
            yield Difference(key="request: tags_valid", expected=[], found=bad)
    if mail.raw is not None:
        longest = max((len(line) for line in mail.raw.split(b"\r\n")), default=0)
        if longest > LONGEST_LINE or not _RAW_HEADER.match(mail.raw):
            yield Difference(
                key="request: MIME",
                expected=f"whole headers, lines of at most {LONGEST_LINE} bytes",
                found=f"{longest} bytes",
            )


def _bare(address: str) -> str:
    """Without a display name; domains compare without case."""
    if address.endswith(">") and "<" in address:
        return normalise(Address(addr_spec=address.rpartition("<")[2][:-1]).addr_spec)
    return normalise(address)
