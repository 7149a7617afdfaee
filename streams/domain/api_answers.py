"""What the accept API answers, for the OpenAPI document; a test holds the answers to it."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from streams.domain.api_requests import EveryLane, Lane
from streams.domain.states import State

_ANSWER: Final = ConfigDict(extra="forbid", frozen=True)
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class FaultAnswer(BaseModel):
    """One thing that is wrong."""

    model_config = _ANSWER

    pointer: str = Field(
        description='JSON pointer (RFC 6901) into the body, or "?name" of the query.'
    )
    detail: str = Field(description="What to change.")


class ProblemAnswer(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str
    title: str
    status: int
    detail: str = Field(description="What to do.")
    errors: list[FaultAnswer] | None = None
    reason: str | None = Field(default=None, description="Of a suppression.")
    since: datetime | None = Field(default=None, description="Of a suppression.")
    until: datetime | None = Field(default=None, description="Of a suppression that ends.")
    state: State | None = Field(default=None, description="Of a message that has ended.")
    data: list[dict[str, Any]] | None = Field(
        default=None, description="Of a batch of which nothing was accepted: each e-mail's result."
    )


class AcceptedAnswer(BaseModel):
    """An e-mail whose row is committed."""

    model_config = _ANSWER

    id: UUID
    duplicate: Literal[True] | None = Field(
        default=None, description="Its dedup_key was used before: this is the first one's id."
    )
    test: Literal[True] | None = Field(
        default=None, description="Posted with a test key: it is never sent."
    )


class ErrorAnswer(BaseModel):
    """An e-mail of a batch that was not accepted."""

    model_config = _ANSWER

    error: ProblemAnswer


class BatchAnswer(BaseModel):
    """A result for each e-mail, in the order of the request."""

    model_config = _ANSWER

    data: list[AcceptedAnswer | ErrorAnswer]
    test: Literal[True] | None = None


class EmailAnswer(BaseModel):
    """A message in a list."""

    model_config = _ANSWER

    id: UUID
    state: State
    reason: str | None
    lane: Lane
    from_: str = Field(alias="from")
    to: str
    send_after: datetime | None
    created_at: datetime
    changed_at: datetime


class EventAnswer(BaseModel):
    """Something that happened to a message: in this project, at SES or at a recipient."""

    model_config = _ANSWER

    at: datetime | None = None
    event: str
    recipient: str | None = None
    reason: str | None = None


class EmailDetailsAnswer(EmailAnswer):
    """A message, without its content."""

    cc: list[str] | None
    bcc: list[str] | None
    reply_to: str | None
    subject: str | None
    template: str | None
    template_version: int | None
    tags: dict[str, str]
    dedup_key: str | None
    expires_at: datetime | None
    attempts: int
    events: list[EventAnswer]


class EmailPageAnswer(BaseModel):
    """Messages, newest first. Go on with next_cursor until it is null; a page may be empty before that."""

    model_config = _ANSWER

    data: list[EmailAnswer]
    next_cursor: UUID | None


class CancelledAnswer(BaseModel):
    """The message will not be sent."""

    model_config = _ANSWER

    id: UUID
    state: Literal["cancelled"]


class RescheduledAnswer(BaseModel):
    """The message has another time."""

    model_config = _ANSWER

    id: UUID
    send_after: datetime


class SuppressionAnswer(BaseModel):
    """A suppression in force. Addresses are not kept: recipient_key stands for one."""

    model_config = _ANSWER

    recipient_key: Key
    of_all_tenants: bool
    lane: EveryLane
    reason: str
    created_at: datetime
    expires_at: datetime | None


class SuppressionPageAnswer(BaseModel):
    """Suppressions in the order of their recipients' keys."""

    model_config = _ANSWER

    data: list[SuppressionAnswer]
    next_cursor: Key | None


class SuppressedAnswer(BaseModel):
    """What became of a suppression that was asked for."""

    model_config = _ANSWER

    recipient_key: Key
    outcome: Literal["added", "extended", "was there"]


class LiftedSuppression(BaseModel):
    """A suppression that is gone."""

    model_config = _ANSWER

    lane: EveryLane
    reason: str


class LiftedAnswer(BaseModel):
    """What is gone, and what is left: of all tenants, which an operator lifts."""

    model_config = _ANSWER

    recipient_key: Key
    lifted: list[LiftedSuppression]
    left: list[SuppressionAnswer]
