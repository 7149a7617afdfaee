"""What a handler is given, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from streams.domain.api_email import faults_of
from streams.domain.api_keys import ApiKey
from streams.domain.api_problems import Fault, Kind, Refused, invalid, refused

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that is allowed, with its body read; size: bytes of that."""

    key: ApiKey
    body: Any = None
    size: int = 0
    query: BaseModel
    id: UUID | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None

    def posted(self, model: type[Model]) -> Model:
        """The body as this; refuses it with all its faults."""
        if not isinstance(self.body, dict):
            raise Refused(invalid([Fault("", "post a JSON object")]))
        try:
            return model.model_validate(self.body)
        except ValidationError as error:
            raise Refused(invalid(faults_of(error))) from None

    @property
    def by_whom(self) -> str:
        """As it stands in the audit log."""
        return f"API key {self.key.id}"

    def change(self) -> None:
        """Refuses to change what exists for a test key."""
        if self.key.test:
            raise refused(Kind.FORBIDDEN, "a test key changes nothing that exists: use a live key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """outcome: as the metric counts it."""

    status: int = 200
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    outcome: str = "ok"
