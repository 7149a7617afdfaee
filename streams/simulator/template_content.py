"""Template content: a stored or an inline template with its data."""

from collections.abc import Mapping, Sequence
from typing import Any

from streams.simulator.content import (
    Content,
    check_size,
    checked_headers,
    read_attachments,
    read_headers,
)
from streams.simulator.members import Members, structure, text
from streams.simulator.refusals import bad_request
from streams.simulator.template_language import RenderingError
from streams.simulator.templates import (
    Template,
    Templates,
    check_template,
    read_data,
    read_template,
)

_SOURCES = ("TemplateName", "TemplateArn", "TemplateContent")


class TemplateCall:
    """The Template structure of a call, checked once; rendered once a message."""

    def __init__(self, members: Members, templates: Templates) -> None:
        self.name, self._template = _template(members, templates)
        self._data = read_data(text(members, "TemplateData"))
        self._headers = read_headers(members)
        checked_headers(self._headers)
        self._attached, self._infected = read_attachments(members)

    def content(
        self,
        data: Mapping[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Content:
        """What the message says; `data` and `headers` take the place of those of the call."""
        replaced = {name.lower() for name, _ in headers}
        kept = [header for header in self._headers if header[0].lower() not in replaced]
        result = Content(
            subject=self._template.subject,
            headers=checked_headers([*kept, *headers]),
            infected=self._infected,
            template_name=self.name,
        )
        try:
            rendered = self._template.rendered({**self._data, **(data or {})})
        except RenderingError as error:
            return _failed(result, str(error))
        check_size(rendered.size + self._attached)
        return Content(
            subject=" ".join(rendered.subject.split()),
            headers=result.headers,
            infected=self._infected,
            template_name=self.name,
        )


def _failed(content: Content, error: str) -> Content:
    return Content(
        subject=content.subject,
        headers=content.headers,
        template_name=content.template_name,
        rendering_error=error,
    )


def _template(members: Members, templates: Templates) -> tuple[str, Template]:
    if sum(members.get(source) is not None for source in _SOURCES) != 1:
        raise bad_request(f"Template must hold exactly one of {', '.join(_SOURCES)}.")
    inline = structure(members, "TemplateContent")
    if inline is not None:
        template = read_template(inline)
        check_template(template, inline=True)
        return "", template
    arn = text(members, "TemplateArn")
    name = text(members, "TemplateName") if arn is None else templates.named_by(arn)
    return name or "", templates.get(name or "")
