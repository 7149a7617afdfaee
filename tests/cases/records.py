"""Records of the two topics of an intake, read by their public form alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.fernet import Fernet

PREFIX = "mailstreams.email."


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One delivery event."""

    id: str
    type: str
    time: datetime
    key: str
    bounce: str | None
    reason: str | None


def published(records: Sequence[Any]) -> list[Published]:
    """The distinct events, by their ids."""
    found = {event.id: event for event in map(_event, records)}
    return list(found.values())


def _event(record: Any) -> Published:
    body = json.loads(record.value)
    data = body["data"]
    bounce = data.get("bounce") or {}
    return Published(
        id=body["id"],
        type=body["type"].removeprefix(PREFIX),
        time=datetime.fromisoformat(body["time"]),
        key=data["recipient_key"],
        bounce=bounce.get("type"),
        reason=bounce.get("reason"),
    )


def quarantined(records: Sequence[Any], key: bytes) -> list[bytes]:
    """The distinct raw payloads that were kept; each has to be encrypted under the key."""
    fernet = Fernet(key)
    return sorted({fernet.decrypt(record.value) for record in records})
