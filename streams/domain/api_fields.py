"""Types of the accept API's fields: what each takes is said once, for checking and for the OpenAPI document."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from streams.domain.attachments import REFUSED_ENDINGS
from streams.domain.mailboxes import ascii_domain_of, name_and_address

LARGEST_VARIABLES: Final = 262_144
_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEADER_NAME: Final = re.compile(r"[!-9;-~]{1,126}")
_HEADER_VALUE: Final = re.compile(r"[ -~]{1,870}")
_DECIDED: Final = re.compile(
    r"to|cc|bcc|from|sender|subject|reply-to|return-path|date|message-id|mime-version"
    r"|content-(type|transfer-encoding|disposition|id|description|length)|resent-.*|dkim-signature|x-ses-.*",
    re.IGNORECASE,
)
_TAG_NAME: Final = re.compile(r"(ses:)?[A-Za-z0-9_-]{1,252}")
_TAG: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_OURS: Final = frozenset({"attempt", "outbox", "tenant", "traceparent"})
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, tzinfo=UTC)


def fault(text: str) -> PydanticCustomError:
    """A refusal in our words; braces would be read as places of a template."""
    return PydanticCustomError("refused", "{text}", {"text": text})


def plain_address(given: str) -> str:
    """The address with its domain in ASCII; what SES does not take is refused."""
    if "<" in given:
        raise fault("give the address alone: names before recipients are not kept")
    address = ascii_domain_of(given)
    if len(address) <= 320 and _ADDRESS.fullmatch(address):
        return address
    if not address.rpartition("@")[0].isascii():
        raise fault("SES takes ASCII only before the @: use another address of this recipient")
    raise fault("write one address like name@example.com")


def _sender(given: str) -> str:
    name, address = name_and_address(given)
    if name is not None and (len(name) > 200 or _CONTROL.search(name)):
        raise fault("the name has to be one line of at most 200 characters")
    plain_address(address)
    return given


def _one_line(given: str) -> str:
    if _CONTROL.search(given):
        raise fault("take out the line breaks and control characters")
    return given


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _paired(given: Any) -> Any:
    """Pairs as an object; a list of {name, value}, as other services have them, becomes one."""
    if not isinstance(given, list):
        return given
    pairs: dict[Any, Any] = {}
    for item in given:
        if not isinstance(item, Mapping) or item.keys() != {"name", "value"}:
            raise fault('write each as {"name": ..., "value": ...}, or all as one object')
        if not isinstance(item["name"], str) or item["name"] in pairs:
            raise fault("each name has to be a text that stands once")
        pairs[item["name"]] = item["value"]
    return pairs


def _headers(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not _HEADER_NAME.fullmatch(name):
            raise fault("a header's name has 1 to 126 visible ASCII characters without a colon")
        if _DECIDED.fullmatch(name):
            raise fault(f"header {name} is decided by another field, or by us: take it out")
        if not _HEADER_VALUE.fullmatch(value):
            raise fault(f"header {name} needs a value of 1 to 870 printable ASCII characters")
    return given


def _tags(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not _TAG_NAME.fullmatch(name) or name in _OURS:
            raise fault(
                f"a tag's name has 1 to 252 letters, digits, _ and -, and is none of {', '.join(sorted(_OURS))}"
            )
        if not _TAG.fullmatch(value):
            raise fault(f"tag {name} needs a value of 1 to 256 letters, digits, _ and -")
    return given


def _variables(given: dict[str, Any]) -> dict[str, Any]:
    if len(orjson.dumps(given)) > LARGEST_VARIABLES:
        raise fault(f"variables have more than {LARGEST_VARIABLES} bytes: make them smaller")
    return given


def _time(given: Any) -> datetime:
    if isinstance(given, str) and _TIME.fullmatch(given):
        try:
            at = datetime.fromisoformat(given.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        else:
            if _FIRST <= at < _LAST:
                return at
    raise fault("write a time like 2026-12-01T09:30:00Z, between the years 1970 and 9999")


def _file_name(given: str) -> str:
    if "." in given and given.rpartition(".")[2].strip().lower() in REFUSED_ENDINGS:
        raise fault("SES takes no file with such an ending in its name")
    return given


_ANY_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 1000}


def _addresses_schema(most: int) -> dict[str, Any]:
    many = {"type": "array", "items": _ANY_TEXT, "minItems": 1, "maxItems": most}
    return {"anyOf": [_ANY_TEXT, many]}


def _pairs_schema(most: int, longest: int) -> dict[str, Any]:
    value = {"type": "string", "minLength": 1, "maxLength": longest}
    pair = {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "value": value},
        "required": ["name", "value"],
        "additionalProperties": False,
    }
    one = {"type": "object", "additionalProperties": value, "maxProperties": most}
    return {"anyOf": [one, {"type": "array", "items": pair, "maxItems": most}]}


Address = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(plain_address)]
Sender = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_sender)]
OneAddress = Annotated[
    list[Address],
    Field(min_length=1, max_length=1),
    BeforeValidator(_listed),
    WithJsonSchema(_addresses_schema(1)),
]
Addresses = Annotated[
    list[Address],
    Field(min_length=1, max_length=49),
    BeforeValidator(_listed),
    WithJsonSchema(_addresses_schema(49)),
]
Headers = Annotated[
    dict[str, str],
    Field(max_length=15),
    AfterValidator(_headers),
    BeforeValidator(_paired),
    WithJsonSchema(_pairs_schema(15, 870)),
]
Tags = Annotated[
    dict[str, str],
    Field(max_length=5),
    AfterValidator(_tags),
    BeforeValidator(_paired),
    WithJsonSchema(_pairs_schema(5, 256)),
]
Variables = Annotated[dict[str, Any], AfterValidator(_variables)]
Time = Annotated[
    datetime, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})
]
Subject = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_one_line)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
FileName = Annotated[
    str, Field(pattern=r"^[^\x00-\x1f\x7f/\\]{1,255}$"), AfterValidator(_file_name)
]
Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
