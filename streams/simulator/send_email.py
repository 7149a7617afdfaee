"""A SendEmail call, read and validated as SES does it."""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from email.utils import getaddresses

import orjson

from streams.simulator.addresses import domain_of, mailbox_address
from streams.simulator.content import Content, Headers, read_content
from streams.simulator.members import Members, read_json, required_text, structure, structures
from streams.simulator.members import text as text_member
from streams.simulator.members import texts as text_members
from streams.simulator.refusals import bad_request, not_found

MAX_RECIPIENTS = 50
_TAG_NAME = re.compile(r"(?=.{1,256}\Z)(?:ses:)?[A-Za-z0-9_-]+")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_-]{1,256}")
_CONFIGURATION_SET = re.compile(r"[A-Za-z0-9_-]{1,64}")

Tags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A valid call: bare addresses, and the headers as events show them."""

    source: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    bcc: tuple[str, ...]
    configuration_set: str | None
    tags: Tags
    subject: str
    headers: Headers
    content_digest: str

    @property
    def recipients(self) -> tuple[str, ...]:
        return self.to + self.cc + self.bcc


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    sender: str
    to: list[str]
    cc: list[str]
    bcc: list[str]


def read_send_email(body: bytes, configuration_sets: Collection[str]) -> Submission:
    """The submission of a request body, or the error that SES answers."""
    members = read_json(body)
    content = read_content(members)
    envelope = _envelope(members, content)
    source = mailbox_address(envelope.sender)
    to, cc, bcc = (
        tuple(mailbox_address(mailbox) for mailbox in mailboxes)
        for mailboxes in (envelope.to, envelope.cc, envelope.bcc)
    )
    _check_recipient_count(len(to) + len(cc) + len(bcc))
    reply_to = text_members(members, "ReplyToAddresses")
    for mailbox in [*reply_to, *_feedback_address(members)]:
        mailbox_address(mailbox)
    _refuse_what_does_not_exist(members)
    return Submission(
        source=source,
        to=to,
        cc=cc,
        bcc=bcc,
        configuration_set=_configuration_set(members, content, configuration_sets),
        tags=_tags(members, content),
        subject=content.subject,
        headers=content.headers
        if content.mime_headers is not None
        else _headers(envelope, reply_to, content),
        content_digest=_digest(members),
    )


def _envelope(members: Members, content: Content) -> _Envelope:
    destination = structure(members, "Destination")
    sender = text_member(members, "FromEmailAddress")
    if content.mime_headers is not None:
        sender = sender or content.mime_value("From")
        if destination is None:
            return _Envelope(
                sender=_present(sender),
                to=_header_addresses(content, "To"),
                cc=_header_addresses(content, "Cc"),
                bcc=_header_addresses(content, "Bcc"),
            )
    destination = destination or {}
    return _Envelope(
        sender=_present(sender),
        to=text_members(destination, "ToAddresses"),
        cc=text_members(destination, "CcAddresses"),
        bcc=text_members(destination, "BccAddresses"),
    )


def _present(sender: str | None) -> str:
    if not sender:
        raise bad_request("FromEmailAddress is missing: it is required.")
    return sender


def _header_addresses(content: Content, name: str) -> list[str]:
    return [address for _, address in getaddresses(content.mime_values(name)) if address]


def _feedback_address(members: Members) -> list[str]:
    address = text_member(members, "FeedbackForwardingEmailAddress")
    return [] if address is None else [address]


def _check_recipient_count(count: int) -> None:
    if count == 0:
        raise bad_request("Recipient list is empty: at least one recipient is required.")
    if count > MAX_RECIPIENTS:
        raise bad_request(f"Recipient count exceeds {MAX_RECIPIENTS}.")


def _refuse_what_does_not_exist(members: Members) -> None:
    """Tenants, endpoints and contact lists are not simulated: none exists in the account."""
    tenant = text_member(members, "TenantName")
    if tenant is not None:
        raise not_found(f"Tenant {tenant} does not exist.")
    endpoint = text_member(members, "EndpointId")
    if endpoint is not None:
        raise not_found(f"Endpoint {endpoint} does not exist.")
    options = structure(members, "ListManagementOptions")
    if options is not None:
        name = required_text(options, "ContactListName")
        raise not_found(f"List with name: {name} doesn't exist.")


def _configuration_set(members: Members, content: Content, known: Collection[str]) -> str | None:
    name = text_member(members, "ConfigurationSetName")
    if name is None and content.mime_headers is not None:
        name = content.mime_value("X-SES-CONFIGURATION-SET")
    if name is None:
        return None
    if not _CONFIGURATION_SET.fullmatch(name):
        raise bad_request("ConfigurationSetName must be 1 to 64 characters of [A-Za-z0-9_-].")
    if name not in known:
        raise not_found(f"Configuration set <{name}> does not exist.")
    return name


def _tags(members: Members, content: Content) -> Tags:
    pairs = [
        (required_text(tag, "Name"), required_text(tag, "Value"))
        for tag in structures(members, "EmailTags")
    ]
    if not pairs and content.mime_headers is not None:
        pairs = _header_tags(content.mime_value("X-SES-MESSAGE-TAGS") or "")
    for name, value in pairs:
        if not _TAG_NAME.fullmatch(name):
            raise bad_request("Tag name must be 1 to 256 characters of [A-Za-z0-9_-].")
        if not _TAG_VALUE.fullmatch(value):
            raise bad_request("Tag value must be 1 to 256 characters of [A-Za-z0-9_-].")
    return tuple(pairs)


def _header_tags(value: str) -> list[tuple[str, str]]:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    return [(name.strip(), tag.strip()) for name, _, tag in (part.partition("=") for part in parts)]


def _headers(envelope: _Envelope, reply_to: list[str], content: Content) -> Headers:
    """What SES writes for Simple content; bcc stays out of it."""
    headers = [("From", envelope.sender)]
    for name, mailboxes in (("Reply-To", reply_to), ("To", envelope.to), ("Cc", envelope.cc)):
        if mailboxes:
            headers.append((name, ", ".join(mailboxes)))
    headers.append(("Subject", content.subject))
    headers.append(("MIME-Version", "1.0"))
    return (*headers, *content.headers)


def _digest(members: Members) -> str:
    """Equal for equal content, whatever the order of the members."""
    encoded = orjson.dumps(members["Content"], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()


def sender_identities(source: str) -> tuple[str, str]:
    """The two identities that allow a sender: its address and its domain."""
    return source.lower(), domain_of(source)
