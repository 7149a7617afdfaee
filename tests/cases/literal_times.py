"""Literal times of a case, of which only the order matters."""

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from tests.cases.loading import Variant
from tests.cases.placeholders import texts
from tests.sns_signing import timestamp

_LITERAL: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+0000|\+00:00)")


def with_recent_times(variant: Variant) -> Variant:
    """The same; where a suppression of limited duration is expected and all times are literal, moved so that the newest is now.

    Such a suppression would have ended long ago, however right it was.
    """
    lasts = any(
        "for_days" in entry or "soft-bounces" in entry["reason"]
        for entry in variant["expect"]["suppressed"] or ()
    )
    found = [t for text in texts(variant["deliveries"]) for t in _LITERAL.findall(text)]
    if not lasts or not found or any("<now" in t for t in texts(variant["deliveries"])):
        return variant
    distance = datetime.now(UTC) - max(map(datetime.fromisoformat, found))

    def moved(match: re.Match[str]) -> str:
        return timestamp(datetime.fromisoformat(match[0]) + distance)

    def move(value: Any) -> Any:
        if isinstance(value, str):
            return _LITERAL.sub(moved, value)
        if isinstance(value, list):
            return [move(item) for item in value]
        return {k: move(v) for k, v in value.items()} if isinstance(value, dict) else value

    moved_variant: Variant = move(json.loads(json.dumps(dict(variant))))
    return moved_variant
