"""Stored templates, and what becomes of one with its data."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from streams.simulator.members import Members
from streams.simulator.members import text as text_member
from streams.simulator.refusals import already_exists, bad_request, not_found
from streams.simulator.template_language import TemplateSyntaxError, check_syntax, render

MAX_TEMPLATE_BYTES = 500 * 1024
MAX_DATA_LENGTH = 262_144
MAX_TEMPLATES = 10_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A subject and one or two bodies, each with tags."""

    subject: str
    text: str | None
    html: str | None

    @property
    def size(self) -> int:
        return sum(len(part.encode()) for part in (self.subject, self.text or "", self.html or ""))

    def as_json(self) -> dict[str, str]:
        parts = {"Subject": self.subject, "Text": self.text, "Html": self.html}
        return {name: part for name, part in parts.items() if part is not None}

    def rendered(self, data: Mapping[str, Any]) -> "Template":
        """The parts with their values, or a RenderingError."""
        return Template(
            subject=render(self.subject, data, html=False),
            text=None if self.text is None else render(self.text, data, html=False),
            html=None if self.html is None else render(self.html, data, html=True),
        )


def check_template(template: Template, *, inline: bool = False) -> None:
    """A BadRequestException unless SES would take it."""
    if not template.subject:
        raise bad_request("The template must have a subject.")
    if not template.text and not template.html:
        raise bad_request("The template must have a text or an HTML part.")
    if template.size > MAX_TEMPLATE_BYTES:
        raise bad_request("The template is larger than 500 KB.")
    try:
        for part in (template.subject, template.text or "", template.html or ""):
            check_syntax(part, plain=inline)
    except TemplateSyntaxError as error:
        raise bad_request(f"The template is not valid: {error}") from error


def read_template(content: Members) -> Template:
    return Template(
        subject=text_member(content, "Subject") or "",
        text=text_member(content, "Text"),
        html=text_member(content, "Html"),
    )


def read_data(text: str | None, name: str = "TemplateData") -> dict[str, Any]:
    """The values of a template: a JSON object, empty if there is none."""
    if text is None:
        return {}
    if len(text) > MAX_DATA_LENGTH:
        raise bad_request(f"{name} must be at most {MAX_DATA_LENGTH} characters.")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"{name} is not valid JSON.") from error
    if not isinstance(document, dict):
        raise bad_request(f"{name} must be a JSON object.")
    return document


class Templates:
    """The account's templates, by name, in the order of their creation."""

    def __init__(self, arn_prefix: str) -> None:
        self._arn_prefix = arn_prefix
        self._templates: dict[str, tuple[Template, float]] = {}

    def create(self, name: str, template: Template, at: float) -> None:
        if not _NAME.fullmatch(name):
            raise bad_request("TemplateName must be 1 to 64 characters of [A-Za-z0-9_-].")
        check_template(template)
        if name in self._templates:
            raise already_exists(f"Template {name} already exists.")
        if len(self._templates) >= MAX_TEMPLATES:
            raise bad_request(f"At most {MAX_TEMPLATES} templates are allowed.")
        self._templates[name] = (template, at)

    def update(self, name: str, template: Template) -> None:
        self.get(name)
        check_template(template)
        self._templates[name] = (template, self._templates[name][1])

    def delete(self, name: str) -> None:
        self.get(name)
        del self._templates[name]

    def get(self, name: str) -> Template:
        found = self._templates.get(name)
        if found is None:
            raise not_found(f"Template {name} does not exist.")
        return found[0]

    def named_by(self, arn: str) -> str:
        """The name in an ARN of this account and region."""
        name = arn.removeprefix(self._arn_prefix)
        if name == arn:
            raise not_found(f"Template {arn} does not exist.")
        return name

    def created(self) -> Iterator[tuple[str, float]]:
        for name, (_, at) in self._templates.items():
            yield name, at
