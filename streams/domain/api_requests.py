"""What is asked of the accept API beside posting e-mails: small bodies and queries."""

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from streams.domain.api_fields import Address, Line, Time
from streams.domain.states import State

MOST_IN_A_BATCH: Final = 500
_STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True)
_QUERY: Final = ConfigDict(extra="forbid", frozen=True)
Lane = Literal["transactional", "bulk"]
EveryLane = Literal["*", "transactional", "bulk"]
Limit = Annotated[int, Field(ge=1, le=100, description="Rows of a page.")]


class EmailQuery(BaseModel):
    """Which messages are listed, newest first. A page may have fewer rows than asked for, or none, and yet be followed by others."""

    model_config = _QUERY

    limit: Limit = 50
    cursor: UUID | None = Field(default=None, description="next_cursor of the page before.")
    state: State | None = None
    lane: Lane | None = None
    to: Address | None = Field(default=None, description="Only to this recipient.")


class SuppressionQuery(BaseModel):
    """Which suppressions are listed."""

    model_config = _QUERY

    limit: Limit = 50
    cursor: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = Field(
        default=None, description="next_cursor of the page before."
    )
    address: Address | None = Field(
        default=None, description="Only of this recipient, and then those of all tenants too."
    )


class NoQuery(BaseModel):
    """An address that takes no query."""

    model_config = _QUERY


class PostedSuppression(BaseModel):
    """An address that the tenant does not want to mail."""

    model_config = _STRICT

    address: Address
    lane: Literal["*", "transactional", "bulk"] = Field(
        default="*", description="Only for this lane."
    )
    why: Line = Field(description="Kept in the audit log. No personal data.")
    expires_at: Time | None = Field(default=None, description="For good, by default.")


class PostedLift(BaseModel):
    """A suppression of the tenant that shall be no more."""

    model_config = _STRICT

    address: Address
    lane: Literal["*", "transactional", "bulk"] = Field(
        default="*", description='Only of this lane; "*": of all.'
    )
    why: Line = Field(description="Kept with the lift. No personal data.")


class PostedReschedule(BaseModel):
    """Another time for a message that is scheduled."""

    model_config = _STRICT

    send_after: Time


class PostedCancel(BaseModel):
    """Why a message is cancelled; subscribers are told it."""

    model_config = _STRICT

    reason: Line = "cancelled by its tenant"
