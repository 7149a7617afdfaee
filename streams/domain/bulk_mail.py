"""The body of SES v2 SendBulkEmail: what its entries share, and each entry with the content that we rendered.

The template is three placeholders, one a part, and each entry brings the parts as values. Three braces take a value as it
is, and values are not read as templates again: what stands in them is data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from streams.domain.attempts import Email
from streams.domain.errors import BadMessage
from streams.domain.mail_content import destination, from_address, headers, one_line, tags
from streams.domain.templates import Content
from streams.domain.topics import Lane

MAX_ENTRIES: Final = 50
# Of the service model, which counts characters: ours are bytes, which are never fewer.
LARGEST_DATA: Final = 262_144
MOST_HEADERS: Final = 15
# Of a whole call: a longer one takes long to write, and all that time its entries are neither sent nor not sent.
LARGEST_CALL: Final = 4 * 1024 * 1024
_SUBJECT, _TEXT, _HTML = "subject", "text", "html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all entries of a call have in common. The tenant too, so that no message waits for what another tenant's did."""

    tenant: str
    from_address: str
    reply_to: str | None
    ses_tenant: str | None
    has_text: bool
    has_html: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkEntry:
    """One message as an entry: the JSON of it, and what it shares with the others of its call."""

    shared: Shared
    body: bytes


def bulk_entry(email: Email, content: Content, *, ses_tenant: str | None) -> BulkEntry | None:
    """The message as an entry; None if a bulk call cannot carry it as SendEmail does, or would be refused for it."""
    if not _is_expressible(email, content):
        return None
    try:
        subject = one_line(content.subject, "subject")
        parts = {_SUBJECT: subject, _TEXT: content.text, _HTML: content.html}
        data = orjson.dumps({name: part for name, part in parts.items() if part is not None})
        if len(data) > LARGEST_DATA:
            return None
        shared = Shared(
            tenant=email.tenant,
            from_address=from_address(email),
            reply_to=None if email.reply_to is None else one_line(email.reply_to, "reply_to"),
            ses_tenant=ses_tenant,
            has_text=content.text is not None,
            has_html=content.html is not None,
        )
        body = orjson.dumps(_entry(email, data.decode("utf-8")))
    except (BadMessage, TypeError):  # SendEmail says what is wrong with it
        return None
    return BulkEntry(shared=shared, body=body)


def _is_expressible(email: Email, content: Content) -> bool:
    return (
        email.lane is Lane.BULK
        and not (email.attachments or email.cc or email.bcc)
        and len(email.headers) <= MOST_HEADERS
        # White space of a subject that comes out of a template may be folded.
        and content.subject == " ".join(content.subject.split())
        and content.subject != ""
    )


def _entry(email: Email, data: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Destination": destination(email),
        "ReplacementEmailContent": {"ReplacementTemplate": {"ReplacementTemplateData": data}},
        "ReplacementTags": tags(email),
    }
    if email.headers:
        entry["ReplacementHeaders"] = headers(email)
    return entry


def send_bulk_email_body(
    shared: Shared, entries: Sequence[bytes], *, configuration_set: str
) -> bytes:
    """The JSON that is signed and posted; entries: those of BulkEntry, all of this Shared, in the order of the results."""
    template = {"Subject": _placeholder(_SUBJECT)}
    # Without values of an entry nothing would be rendered: every name has one here as well.
    defaults = {_SUBJECT: ""}
    if shared.has_text:
        template["Text"], defaults[_TEXT] = _placeholder(_TEXT), ""
    if shared.has_html:
        template["Html"], defaults[_HTML] = _placeholder(_HTML), ""
    data = orjson.dumps(defaults).decode("ascii")
    body: dict[str, Any] = {
        "FromEmailAddress": shared.from_address,
        "DefaultContent": {"Template": {"TemplateContent": template, "TemplateData": data}},
        "BulkEmailEntries": [orjson.Fragment(entry) for entry in entries],
        "ConfigurationSetName": configuration_set,
    }
    if shared.ses_tenant is not None:
        body["TenantName"] = shared.ses_tenant
    if shared.reply_to is not None:
        body["ReplyToAddresses"] = [shared.reply_to]
    return orjson.dumps(body)


def _placeholder(name: str) -> str:
    return f"{{{{{{{name}}}}}}}"
