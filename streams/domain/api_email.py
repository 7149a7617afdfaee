"""An e-mail as it is posted: checked field by field and as a whole, all faults at once, and made a row of email_outbox."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from streams.domain.addresses import recipient_key
from streams.domain.api_fields import (
    Addresses,
    FileName,
    Headers,
    Line,
    Name,
    OneAddress,
    Sender,
    Subject,
    Tags,
    Time,
    Variables,
)
from streams.domain.api_keys import may_send_from
from streams.domain.api_problems import Fault
from streams.domain.attachments import MOST, Places
from streams.domain.attempts import new_attempt_id
from streams.domain.errors import BadMessage
from streams.domain.mail_content import LARGEST_BODY
from streams.domain.mailboxes import ascii_domain_of, name_and_address

MOST_RECIPIENTS: Final = 50
LARGEST_TEXTS: Final = 30_000_000
TEST_PREFIX: Final = "test:"
_STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True)
_EXAMPLE: Final[dict[str, JsonValue]] = {
    "from": "Shop <shop@example.com>",
    "to": "ann@example.com",
    "subject": "Your order 1042",
    "text": "Thank you for order 1042.",
    "tags": {"kind": "order"},
    "send_after": "2099-01-01T09:30:00Z",
}
# Names of other services, where ours differ.
_ELSEWHERE: Final = {
    "content": "attachments are given by reference: url, name, sha256 and size",
    "path": "attachments are given by reference: url, name, sha256 and size",
    "filename": "it is called name here",
    "content_type": "it is called type here",
    "replyTo": "it is called reply_to here",
    "text_body": "it is called text here",
    "html_body": "it is called html here",
    "react": "render it first, and give the HTML as html",
    "stream": "it is called lane here",
    "template_id": "give the template's name as template",
}


class PostedAttachment(BaseModel):
    """A file by reference: it is fetched when the mail is sent, and has to be the very bytes that are named here."""

    model_config = _STRICT

    url: str = Field(
        pattern=r"^(https|s3|file)://[!-~]+$",
        max_length=2000,
        description="Where it lies: below one of the places that the operator allows (MAILSTREAMS_ATTACHMENT_PLACES).",
    )
    name: FileName = Field(description="Its name for the reader.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=1, le=LARGEST_TEXTS, description="In bytes.")
    type: (
        Annotated[
            str,
            Field(
                pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(; ?[A-Za-z0-9-]+=[A-Za-z0-9_.-]+)?$",
                max_length=78,
            ),
        ]
        | None
    ) = Field(default=None, description="Media type; application/octet-stream by default.")
    content_id: Annotated[str, Field(pattern=r"^[!-;=?-~]{1,78}$")] | None = Field(
        default=None, description="Shown within the HTML as cid:..., instead of for download."
    )


class PostedEmail(BaseModel):
    """One message to one recipient: a subject with text or html, or a template with its variables."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"examples": [_EXAMPLE]}
    )

    from_: Sender = Field(
        alias="from", description="`shop@example.com` or `Shop <shop@example.com>`."
    )
    to: OneAddress = Field(
        description="One address. For several recipients post several e-mails (`/v1/emails/batch`), or use cc."
    )
    cc: Addresses | None = Field(default=None, description="With to and bcc at most 50 addresses.")
    bcc: Addresses | None = None
    reply_to: OneAddress | None = None
    subject: Subject | None = None
    text: Annotated[str, Field(max_length=LARGEST_TEXTS)] | None = None
    html: Annotated[str, Field(max_length=LARGEST_TEXTS)] | None = None
    template: Name | None = Field(default=None, description="Name of a template of the tenant.")
    template_version: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = Field(
        default=None, description="The newest one when it is sent, by default."
    )
    variables: Variables | None = None
    headers: Headers | None = None
    tags: Tags | None = Field(default=None, description="Carried to SES and back in its events.")
    attachments: Annotated[list[PostedAttachment], Field(max_length=MOST)] | None = None
    send_after: Time | None = Field(default=None, description="Not before this time.")
    scheduled_at: Time | None = Field(default=None, description="Another name of send_after.")
    expires_at: Time | None = Field(
        default=None, description="What could not be sent until then ends as expired."
    )
    lane: Literal["transactional", "bulk"] = "transactional"
    dedup_key: Line | None = Field(
        default=None,
        description="A second e-mail of the tenant under the same key is not made: its id is the first one's.",
    )
    on_ambiguous: Literal["hold", "resend", "resend-when-silent"] = Field(
        default="hold", description="What becomes of it if nobody knows whether SES took it."
    )

    def row(self, id_: UUID, *, salt: bytes, test: bool, traceparent: str | None) -> dict[str, Any]:
        """The columns of its row, without those that are null."""
        name, sender = name_and_address(self.from_)
        to = self.to[0]
        columns = {
            "id": str(id_),
            "recipient": to,
            "recipient_key": recipient_key(to, salt),
            "sender": ascii_domain_of(sender),
            "sender_name": name,
            "reply_to": self.reply_to[0] if self.reply_to else None,
            "dedup_key": _dedup_key(self.dedup_key, test=test),
            "attachments": None
            if self.attachments is None
            else [a.model_dump(exclude_none=True) for a in self.attachments],
            "send_after": self.send_after or self.scheduled_at,
            "traceparent": traceparent,
        }
        same = ("cc", "bcc", "subject", "text", "html", "template", "template_version", "lane")
        also = ("variables", "headers", "tags", "expires_at", "on_ambiguous")
        columns |= {field: getattr(self, field) for field in (*same, *also)}
        return {column: value for column, value in columns.items() if value is not None}


def new_outbox_id(now_ms: int, random: bytes) -> UUID:
    """A UUID of version 7 from milliseconds since 1970 and ten random bytes."""
    return new_attempt_id(now_ms, random)


def _dedup_key(given: str | None, *, test: bool) -> str | None:
    """Of a test key in a room of its own: a trial must not keep real mail from being sent."""
    return f"{TEST_PREFIX}{given}" if given is not None and test else given


class Allowed:
    """What a tenant and the installation allow beyond the form of an e-mail."""

    def __init__(self, *, senders: tuple[str, ...] | None, places: Places, now: datetime) -> None:
        self.senders = senders
        self.places = places
        self.now = now


def read_email(given: Any, allowed: Allowed, *, at: str = "") -> PostedEmail | list[Fault]:
    """The e-mail, or everything that is wrong with it; at: the pointer to it in the body."""
    if not isinstance(given, dict):
        return [Fault(at, "write the e-mail as a JSON object")]
    faults: list[Fault] = []
    email = None
    try:
        email = PostedEmail.model_validate(given)
    except ValidationError as error:
        faults += faults_of(error, at=at)
    faults += [Fault(f"{at}/{field}", what) for field, what in _as_a_whole(given)]
    if email is not None:
        faults += [Fault(f"{at}/{field}", what) for field, what in _against(email, allowed)]
    return faults if email is None or faults else email


def faults_of(error: ValidationError, *, at: str = "") -> list[Fault]:
    """Each with its place; nothing of the input is repeated."""
    return [
        Fault(_pointer(at, e["loc"]), _sentence(e["type"], e["msg"], e["loc"]))
        for e in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _pointer(at: str, place: Sequence[int | str]) -> str:
    names = (str(name).replace("~", "~0").replace("/", "~1") for name in place if name != "[key]")
    return "/".join((at, *names))


def _sentence(kind: str, message: str, place: Sequence[int | str]) -> str:
    if kind == "extra_forbidden":
        name = str(place[-1])
        return _ELSEWHERE.get(name, "there is no such field: take it out")
    if kind == "too_long" and place and place[-1] == "to":
        return "one e-mail has one recipient: post several (/v1/emails/batch), or use cc"
    if kind == "missing":
        return "this field is required: add it"
    if kind == "string_pattern_mismatch":
        return message.replace("String should match pattern", "it has to match")
    return message


def _as_a_whole(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the fields say together, as far as they are there."""

    def has(field: str) -> bool:
        return given.get(field) is not None

    if has("template"):
        for field in ("subject", "text", "html"):
            if has(field):
                yield field, "the template has it: give either a template or subject and body"
    else:
        if not has("subject"):
            yield "subject", "this field is required without a template: add it"
        if not has("text") and not has("html"):
            yield "text", "text or html is required without a template: add one of them"
        for field in ("template_version", "variables"):
            if has(field):
                yield field, "it belongs to a template: name one, or take it out"
    if has("send_after") and has("scheduled_at"):
        yield "scheduled_at", "it is another name of send_after: give one of them"
    named = sum(_count(given.get(field)) for field in ("to", "cc", "bcc"))
    if named > MOST_RECIPIENTS:
        yield (
            "cc",
            f"{named} recipients: SES takes at most {MOST_RECIPIENTS} in to, cc and bcc together",
        )


def _count(addresses: Any) -> int:
    return len(addresses) if isinstance(addresses, list) else int(addresses is not None)


def _against(email: PostedEmail, allowed: Allowed) -> Iterator[tuple[str, str]]:
    """What is allowed here and now."""
    sender = ascii_domain_of(name_and_address(email.from_)[1])
    if not may_send_from(allowed.senders, sender):
        yield "from", "it is none of the tenant's sender identities: use one, or have it added"
    due = email.send_after or email.scheduled_at
    if email.expires_at is not None and email.expires_at <= max(due or allowed.now, allowed.now):
        yield "expires_at", "it is over before the e-mail is due: choose a later time"
    texts = sum(len(part.encode()) for part in (email.text, email.html) if part)
    if texts > LARGEST_TEXTS:
        yield "html", f"text and html have {texts} bytes, at most {LARGEST_TEXTS} are taken"
    files = sum(a.size for a in email.attachments or ())
    if texts + files > LARGEST_BODY:
        yield "attachments", f"with text and html more than {LARGEST_BODY} bytes: SES takes no more"
    for n, attachment in enumerate(email.attachments or ()):
        try:
            allowed.places.find(attachment.url)
        except BadMessage as error:
            yield f"attachments/{n}/url", str(error)
