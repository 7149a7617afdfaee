"""A SendEmail call, read and validated as SES does it."""

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass
from email.utils import getaddresses

import orjson

from streams.simulator.addresses import mailbox_address
from streams.simulator.configuration_sets import check_set_name
from streams.simulator.content import Content, Headers
from streams.simulator.members import Members, read_json, required_text, structure, structures
from streams.simulator.members import text as text_member
from streams.simulator.members import texts as text_members
from streams.simulator.message_content import read_content
from streams.simulator.refusals import bad_request, not_found
from streams.simulator.templates import Templates

MAX_RECIPIENTS = 50
_TAG_NAME = re.compile(r"(?=.{1,256}\Z)(?:ses:)?[A-Za-z0-9_-]+")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_-]{1,256}")
_NO_TEMPLATES = Templates("")

Addresses = tuple[str, ...]
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
    operation: str = "SendEmail"
    infected: bool = False
    template_name: str | None = None
    rendering_error: str | None = None
    """Why it will never be sent, if its template could not be rendered."""

    @property
    def recipients(self) -> tuple[str, ...]:
        return self.to + self.cc + self.bcc


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Who sends to whom, as the call or the headers of its content say it."""

    sender: str
    to: list[str]
    cc: list[str]
    bcc: list[str]


def read_send_email(
    body: bytes, configuration_sets: Container[str], templates: Templates = _NO_TEMPLATES
) -> Submission:
    """The submission of a request body, or the error that SES answers."""
    members = read_json(body)
    content = read_content(members, templates)
    envelope = _envelope(members, content)
    source = mailbox_address(envelope.sender)
    to, cc, bcc = recipients_of(envelope)
    reply_to = reply_addresses(members)
    refuse_what_does_not_exist(members)
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
        else written_headers(envelope, reply_to, content),
        content_digest=digest(members["Content"]),
        infected=content.infected,
        template_name=content.template_name,
        rendering_error=content.rendering_error,
    )


def recipients_of(envelope: Envelope) -> tuple[Addresses, Addresses, Addresses]:
    """The bare addresses of To, Cc and Bcc, checked and counted."""
    to, cc, bcc = (
        tuple(mailbox_address(mailbox) for mailbox in mailboxes)
        for mailboxes in (envelope.to, envelope.cc, envelope.bcc)
    )
    _check_recipient_count(len(to) + len(cc) + len(bcc))
    return to, cc, bcc


def reply_addresses(members: Members) -> list[str]:
    """Those of ReplyToAddresses, checked, as is the address for feedback."""
    reply_to = text_members(members, "ReplyToAddresses")
    for mailbox in [*reply_to, *_feedback_address(members)]:
        mailbox_address(mailbox)
    return reply_to


def _envelope(members: Members, content: Content) -> Envelope:
    destination = structure(members, "Destination")
    sender = text_member(members, "FromEmailAddress")
    if content.mime_headers is not None:
        sender = sender or content.mime_value("From")
        if destination is None:
            return Envelope(
                sender=_present(sender),
                to=_header_addresses(content, "To"),
                cc=_header_addresses(content, "Cc"),
                bcc=_header_addresses(content, "Bcc"),
            )
    return destination_envelope(_present(sender), destination or {})


def destination_envelope(sender: str, destination: Members) -> Envelope:
    return Envelope(
        sender=sender,
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


def refuse_what_does_not_exist(members: Members) -> None:
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


def _configuration_set(members: Members, content: Content, known: Container[str]) -> str | None:
    name = text_member(members, "ConfigurationSetName")
    if name is None and content.mime_headers is not None:
        name = content.mime_value("X-SES-CONFIGURATION-SET")
    return known_set(name, known)


def known_set(name: str | None, known: Container[str]) -> str | None:
    if name is None:
        return None
    check_set_name(name)
    if name not in known:
        raise not_found(f"Configuration set <{name}> does not exist.")
    return name


def _tags(members: Members, content: Content) -> Tags:
    pairs = tag_pairs(members, "EmailTags")
    if not pairs and content.mime_headers is not None:
        pairs = _header_tags(content.mime_value("X-SES-MESSAGE-TAGS") or "")
    return checked_tags(pairs)


def tag_pairs(members: Members, name: str) -> list[tuple[str, str]]:
    return [
        (required_text(tag, "Name"), required_text(tag, "Value"))
        for tag in structures(members, name)
    ]


def checked_tags(pairs: list[tuple[str, str]]) -> Tags:
    for name, value in pairs:
        if not _TAG_NAME.fullmatch(name):
            raise bad_request("Tag name must be 1 to 256 characters of [A-Za-z0-9_-].")
        if not _TAG_VALUE.fullmatch(value):
            raise bad_request("Tag value must be 1 to 256 characters of [A-Za-z0-9_-].")
    return tuple(pairs)


def _header_tags(value: str) -> list[tuple[str, str]]:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    return [(name.strip(), tag.strip()) for name, _, tag in (part.partition("=") for part in parts)]


def written_headers(envelope: Envelope, reply_to: list[str], content: Content) -> Headers:
    """What SES writes for Simple and Template content; bcc stays out of it."""
    headers = [("From", envelope.sender)]
    for name, mailboxes in (("Reply-To", reply_to), ("To", envelope.to), ("Cc", envelope.cc)):
        if mailboxes:
            headers.append((name, ", ".join(mailboxes)))
    headers.append(("Subject", content.subject))
    headers.append(("MIME-Version", "1.0"))
    return (*headers, *content.headers)


def digest(content: Members) -> str:
    """Equal for equal content, whatever the order of the members."""
    encoded = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()
