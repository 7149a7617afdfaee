"""Records of mail.delivery-events as events that PostgreSQL can keep."""

from typing import Any, Final

import orjson

from streams.domain.delivery_events import DeliveryEvent, decode
from streams.domain.errors import BadMessage

_HEX: Final = frozenset("0123456789abcdef")
_YEARS: Final = range(1990, 2200)


def read_event(value: bytes | None) -> DeliveryEvent:
    """The event of a record's value, U+0000 replaced by U+FFFD. BadMessage names what is wrong, never the content."""
    if value is None:
        raise BadMessage("not a delivery event: the record has no value")
    if b"\\u0000" in value:
        try:
            value = orjson.dumps(_without_nul(orjson.loads(value)))
        except (ValueError, TypeError) as error:
            raise BadMessage("not a delivery event: not JSON") from error
    event = _decoded(value)
    if event.time.year not in _YEARS:
        raise BadMessage("not a delivery event: its time is of another century")
    texts = (event.tenant, event.provider_message_id, event.reason)
    if not all(text is None or isinstance(text, str) for text in texts):
        raise BadMessage("not a delivery event: tenant, provider_message_id or reason is no text")
    if len(event.recipient_key) != 32 or not _HEX.issuperset(event.recipient_key):
        raise BadMessage("not a delivery event: recipient_key is not 32 hex digits")
    return event


def _decoded(value: bytes) -> DeliveryEvent:
    try:
        return decode(value)
    except BadMessage as error:
        # The text of a ValueError quotes the value, which may be anybody's address.
        cause = error.__cause__
        what = f"{cause} is missing" if isinstance(cause, KeyError) else type(cause).__name__
        raise BadMessage(f"not a delivery event: {what}") from error


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\ufffd")
        case dict():
            return {_without_nul(k): _without_nul(v) for k, v in value.items()}
        case list():
            return [_without_nul(v) for v in value]
        case _:
            return value
