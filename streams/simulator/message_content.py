"""The content of a SendEmail call: Simple, Raw or Template."""

import codecs

from streams.simulator.content import (
    Content,
    check_size,
    checked_headers,
    read_attachments,
    read_headers,
)
from streams.simulator.members import Members, missing, structure, text
from streams.simulator.raw_content import read_raw
from streams.simulator.refusals import bad_request
from streams.simulator.template_content import TemplateCall
from streams.simulator.templates import Templates

_KINDS = ("Simple", "Raw", "Template")


def read_content(members: Members, templates: Templates) -> Content:
    """The one kind of content that the call has."""
    content = structure(members, "Content")
    if content is None:
        raise missing("Content")
    given = [(kind, structure(content, kind)) for kind in _KINDS]
    parts = [(kind, part) for kind, part in given if part is not None]
    if len(parts) != 1:
        raise bad_request("Content must hold exactly one of Simple, Raw and Template.")
    ((kind, part),) = parts
    if kind == "Simple":
        return _simple(part)
    return read_raw(part) if kind == "Raw" else TemplateCall(part, templates).content()


def _simple(simple: Members) -> Content:
    subject, size = _subject(simple)
    size += _body_size(simple)
    attached, infected = read_attachments(simple)
    check_size(size + attached)
    headers = checked_headers(read_headers(simple))
    return Content(subject=subject, headers=headers, infected=infected)


def _subject(simple: Members) -> tuple[str, int]:
    subject = structure(simple, "Subject")
    if subject is None:
        raise missing("Subject")
    data, size = _data(subject, "Subject")
    if "\r" in data or "\n" in data:
        raise bad_request("Subject must not contain line breaks.")
    return data, size


def _body_size(simple: Members) -> int:
    body = structure(simple, "Body")
    if body is None:
        raise missing("Body")
    parts = [(name, structure(body, name)) for name in ("Text", "Html")]
    given = [_data(part, f"Body.{name}")[1] for name, part in parts if part is not None]
    if not given:
        raise bad_request("Body must hold Text, Html or both.")
    return sum(given)


def _data(part: Members, where: str) -> tuple[str, int]:
    data = text(part, "Data")
    if data is None:
        raise missing(f"{where}.Data")
    charset = text(part, "Charset") or "UTF-8"
    try:
        codecs.lookup(charset)
    except (LookupError, ValueError) as error:
        raise bad_request(f"{where}.Charset is not a known character set.") from error
    return data, len(data.encode())
